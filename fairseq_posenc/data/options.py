"""The flags of prepare, the check of their values, and the value that holds them from there on."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fairseq_posenc.data.manifest import digests
from fairseq_posenc.data.text import Layout, Skipped, refuse
from fairseq_posenc.errors import InputError, flag_of
from fairseq_posenc.vocabulary import read_files
from fairseq_posenc.vocabulary.learning import DEFAULT_SYMBOLS, Wanted


@dataclass(frozen=True)
class Options:
    """The flags' values; see the flags of the same names."""

    text: Sequence[str]
    valid: Sequence[str]
    out: Path
    layout: Layout
    valid_fraction: float | None
    shards: int
    only: range | None
    """The numbers of the shards to write; None: all."""
    learned: Wanted
    """How to train a tokenizer, unless a vocabulary is given."""
    vocabulary: Path | None
    given: Mapping[str, bytes]
    """Its files, by name."""
    seed: int
    workers: int
    overwrite: bool

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Options":
        """Those of a command line.

        Raises:
            InputError, FileNotFoundError: the flag whose value is not possible.
        """
        _check(args)
        names = {field.name for field in fields(cls)}
        return cls(
            **{name: value for name, value in vars(args).items() if name in names},
            layout=Layout(args.text_field, args.document_per_line, Skipped() if args.skip_bad else refuse),
            learned=Wanted(*(getattr(args, name) for name in Wanted._fields)),
            given=read_files(args.vocabulary) if args.vocabulary else {},
        )

    @property
    def deciding(self) -> dict[str, Any]:
        """Those that decide the result, as the manifest has them."""
        return {
            "valid_fraction": self.valid_fraction,
            "seed": self.seed,
            "shards": self.shards,
            "text_field": self.layout.text_field,
            "document_per_line": self.layout.document_per_line,
            **({"vocabulary": digests(self.given)} if self.given else self.learned._asdict()),
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""

    def add(group: Any, flag: str, **options: Any) -> None:
        options["help"] += " (default: %(default)s)"
        group.add_argument(flag, **options)

    parser.add_argument("text", nargs="+", metavar="TEXT", help="training text")
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="the folder to write")
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--valid", nargs="+", metavar="TEXT", default=[], help="validation text")
    held.add_argument("--valid-fraction", type=float, metavar="F",
                      help="without --valid: hold out one of every 1/F documents (default: 0.01, and more, up to 0.1, "
                      "if there are less than 10 MB of text)")  # fmt: skip
    add(
        parser,
        "--text-field",
        default=Layout().text_field,
        metavar="NAME",
        help="the field with the text in JSON lines and hub data sets",
    )
    parser.add_argument("--document-per-line", action="store_true", help="in text files, every line is a document")
    parser.add_argument("--skip-bad", action="store_true",
                        help="skip what is not UTF-8, or not a JSON row with the field, rather than stop")  # fmt: skip
    add(parser, "--shards", type=int, default=1, metavar="S",
        help="distribute the training documents over this many data-bins, DIR/shard-00000 and so on")  # fmt: skip
    parser.add_argument("--only", type=_numbers, metavar="A-B",
                        help="write shards A to B alone; give the others to other processes or hosts")  # fmt: skip
    pieces = parser.add_argument_group("vocabulary")
    pieces.add_argument("--vocab-size", type=int, metavar="N",
                        help="symbols of the dictionary, with fairseq's four and <mask>; for gigabytes of text, 32768 or more "
                        f"(default: {DEFAULT_SYMBOLS}, or what the text supports)")  # fmt: skip
    add(pieces, "--model-type", choices=("unigram", "bpe"), default="unigram", help="sentencepiece's")
    add(pieces, "--character-coverage", type=float, default=0.9999, metavar="C",
        help="share of the text's characters that the vocabulary covers; the rarest become <unk>")  # fmt: skip
    add(pieces, "--sample-mb", type=int, default=64, metavar="MB",
        help="learn it from this many millions of characters, in lines drawn from the training text")  # fmt: skip
    pieces.add_argument("--vocabulary", type=Path, metavar="PATH",
                        help="use this one instead: a sentencepiece model, or a folder made by import-hf or prepare")  # fmt: skip
    add(parser, "--seed", type=int, default=1, metavar="S", help="seed for held-out documents, shards and sample")
    add(parser, "--workers", type=int, default=_usable_cores(), metavar="W",
        help="processes that encode; the result does not depend on it")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="redo a folder that was prepared from other text or options")


def _check(args: argparse.Namespace) -> None:
    if args.valid_fraction is not None and not 0 < args.valid_fraction < 1:
        raise InputError(f"--valid-fraction {args.valid_fraction}: give a share between 0 and 1, such as 0.01")
    if not 0 < args.character_coverage <= 1:
        raise InputError(f"--character-coverage {args.character_coverage}: give a share above 0, at most 1")
    for flag in ("vocab_size", "sample_mb", "workers", "shards"):
        if (value := getattr(args, flag)) is not None and value < 1:
            raise InputError(f"{flag_of(flag)} {value}: at least 1 is needed")
    if args.only and args.only.stop > args.shards:
        raise InputError(f"--only: shard {args.only.stop - 1} of --shards {args.shards}; the first is 0")
    if args.overwrite and args.only:
        raise InputError(
            f"--overwrite: not with --only, as other processes work on {args.out}. Remove the folder, then start them."
        )
    if args.vocabulary and not args.vocabulary.exists():
        raise FileNotFoundError(f"--vocabulary {args.vocabulary}: no such file")


def _numbers(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        numbers = range(int(first), int(last or first) + 1)
    except ValueError:
        numbers = range(0)
    if not numbers:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form A-B, such as 0-7")
    return numbers


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
