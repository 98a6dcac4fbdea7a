"""The flags of prepare."""

import os
from argparse import ArgumentTypeError
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..commands import option
from ..errors import InputError
from ..vocabulary import read_files
from ..vocabulary.learning import DEFAULT_SYMBOLS
from .manifest import digests
from .text import Layout, Skipped, refuse


def _numbers(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        numbers = range(int(first), int(last or first) + 1)
    except ValueError:
        numbers = range(0)
    if not numbers:
        raise ArgumentTypeError(f"{text!r} is not of the form A-B, such as 0-7")
    return numbers


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class Options:
    """The values of the flags.

    Raises:
        InputError, FileNotFoundError: flags that exclude each other, or a vocabulary that does not exist.
    """

    text: tuple[str, ...] = option("training text", names=("text",), nargs="+", metavar="TEXT")
    out: Path = option("the folder to write", metavar="DIR")
    valid: tuple[str, ...] = option("validation text", (), nargs="+", metavar="TEXT")
    valid_fraction: float | None = option(
        "without --valid: hold out one of every 1/F documents (default: 0.01, and more, up to 0.1, if there are less than 10 MB "
        "of text)", None, minimum=1e-9, maximum=0.5, metavar="F",
    )  # fmt: skip
    text_field: str = option("the field with the text in JSON lines and hub data sets", Layout().text_field, metavar="NAME")
    document_per_line: bool = option("in text files, every line is a document", False)
    skip_bad: bool = option("skip what is not UTF-8, or not a JSON row with the field, rather than stop", False)
    shards: int = option(
        "distribute the training documents over this many data-bins, DIR/shard-00000 and so on", 1, minimum=1, metavar="S"
    )
    only: range | None = option(
        "write shards A to B alone; give the others to other processes or hosts", None, parse=_numbers, metavar="A-B"
    )
    vocab_size: int | None = option(
        "symbols of the dictionary, with fairseq's four and <mask>; for gigabytes of text, 32768 or more (default: "
        f"{DEFAULT_SYMBOLS}, or what the text supports)", None, minimum=1, metavar="N", group="vocabulary",
    )  # fmt: skip
    model_type: str = option("sentencepiece's", "unigram", choices=("unigram", "bpe"), group="vocabulary")
    character_coverage: float = option(
        "share of the text's characters that the vocabulary covers; the rarest become <unk>", 0.9999, minimum=0.0, maximum=1.0,
        metavar="C", group="vocabulary",
    )  # fmt: skip
    sample_mb: int = option(
        "train it on this many millions of characters, in lines drawn from the training text", 64, minimum=1, metavar="MB",
        group="vocabulary",
    )  # fmt: skip
    vocabulary: Path | None = option(
        "use this one instead: a sentencepiece model, or a folder made by import-hf or prepare", None, metavar="PATH",
        group="vocabulary",
    )  # fmt: skip
    seed: int = option("seed for held-out documents, shards and sample", 1, metavar="S")
    workers: int = option("processes that encode; the result does not depend on it", _usable_cores(), minimum=1, metavar="W")
    overwrite: bool = option("redo a folder that was prepared from other text or options", False)

    def __post_init__(self) -> None:
        if self.valid and self.valid_fraction is not None:
            raise InputError("--valid and --valid-fraction exclude each other: the second holds out some of the training text")
        if self.only and self.only.stop > self.shards:
            raise InputError(f"--only: shard {self.only.stop - 1} of --shards {self.shards}; the first is 0")
        if self.only and self.overwrite:
            raise InputError(
                f"--overwrite: not with --only, as other processes work on {self.out}. Remove the folder, then start them."
            )
        if self.vocabulary and not self.vocabulary.exists():
            raise FileNotFoundError(f"--vocabulary {self.vocabulary}: no such file")

    @cached_property
    def layout(self) -> Layout:
        """How documents are laid out in the files."""
        return Layout(self.text_field, self.document_per_line, Skipped() if self.skip_bad else refuse)

    @cached_property
    def given(self) -> Mapping[str, bytes]:
        """The contents of the files of ``--vocabulary``, by name."""
        return read_files(self.vocabulary) if self.vocabulary else {}

    @property
    def deciding(self) -> dict[str, Any]:
        """Those that decide the result, as the manifest records them."""
        names = ["valid_fraction", "seed", "shards", "text_field", "document_per_line"]
        trained = ["vocab_size", "model_type", "character_coverage", "sample_mb"]
        values = {name: getattr(self, name) for name in (names if self.given else names + trained)}
        return values | {"vocabulary": digests(self.given)} if self.given else values
