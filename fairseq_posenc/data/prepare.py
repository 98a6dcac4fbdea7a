"""Turn raw text into a data-bin that fairseq-train reads.

Text is UTF-8 (plain, .gz or .xz), one sentence or paragraph a line, a blank line between documents; the end of
a file ends a document too. The output folder holds sentencepiece.model, dict.txt with <mask> as its last entry,
train and valid (.bin, .idx), and manifest.json. The same command again does only what is not done yet.

    fairseq-posenc prepare books/*.txt.xz --out data-bin --vocab-size 32768
    fairseq-train data-bin --task masked_lm --arch roberta_tisa …
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_posenc.data.binarize import binarize
from fairseq_posenc.data.databin import DatabinWriter
from fairseq_posenc.data.manifest import NAME as MANIFEST
from fairseq_posenc.data.manifest import Manifest
from fairseq_posenc.data.split import assign_splits, sample_lines
from fairseq_posenc.data.text import MeteredFile, Passage, read_passages
from fairseq_posenc.data.tokenizer import Tokenizer, train
from fairseq_posenc.files import atomic_write, sha256, sole_writer

MODEL, DICTIONARY = "sentencepiece.model", "dict.txt"
SPLITS = ("train", "valid")
DATA = (DICTIONARY, "train.idx", "train.bin", "valid.idx", "valid.bin")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""

    def add(group: Any, flag: str, **options: Any) -> None:
        options["help"] += " (default: %(default)s)"
        group.add_argument(flag, **options)

    parser.add_argument("text", nargs="+", metavar="TEXT", help="training text: .txt, or packed as .gz or .xz")
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="the folder to write")
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--valid", nargs="+", metavar="TEXT", default=[], help="validation text")
    add(
        held,
        "--valid-fraction",
        type=float,
        default=0.01,
        metavar="F",
        help="without --valid: hold out one of every 1/F documents",
    )
    pieces = parser.add_argument_group("vocabulary")
    add(
        pieces,
        "--vocab-size",
        type=int,
        default=32768,
        metavar="N",
        help="symbols of the dictionary, fairseq's four and <mask> included; multiples of 8 are fast on GPUs",
    )
    add(pieces, "--model-type", choices=("unigram", "bpe"), default="unigram", help="sentencepiece's")
    add(
        pieces,
        "--character-coverage",
        type=float,
        default=0.9999,
        metavar="C",
        help="share of the text's characters that get a piece; the rarest become <unk>",
    )
    add(
        pieces,
        "--sample-mb",
        type=int,
        default=64,
        metavar="MB",
        help="millions of characters, in lines drawn from the training text, that it is learned from",
    )
    pieces.add_argument(
        "--sentencepiece-model",
        metavar="FILE",
        help="use this model, as of a pretrained checkpoint, and learn none; those above have no say",
    )
    add(parser, "--seed", type=int, default=1, metavar="S", help="of held-out documents and sample")
    add(
        parser,
        "--workers",
        type=int,
        default=_usable_cores(),
        metavar="W",
        help="processes that encode; the result does not depend on it",
    )
    parser.add_argument("--overwrite", action="store_true", help="redo a folder that was prepared from something else")


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        ValueError, OSError: what is wrong with an option, a text file or the output folder, and what to do.
    """
    _check(args)
    with sole_writer(args.out):
        if args.overwrite:
            _remove(args.out, (MANIFEST, *DATA, MODEL))
        elif not (args.out / MANIFEST).exists() and (stranger := _first_existing(args.out, (*DATA, MODEL))):
            raise ValueError(f"{stranger} was not written by this command. Name another --out, or add --overwrite to replace it.")
        manifest = Manifest(args.out, _options(args), {"train": args.text, "valid": args.valid})
        manifest.save()
        if not _done("tokenizer", manifest, args.out):
            _remove(args.out, (*DATA, MODEL))
            _make_tokenizer(args, manifest)
        if _done("data", manifest, args.out):
            _say(f"{args.out}: done before")
        else:
            _remove(args.out, DATA)
            _make_data(args, manifest)
        _report(args.out, manifest)


def _check(args: argparse.Namespace) -> None:
    if not 0 < args.valid_fraction < 1:
        raise ValueError(f"--valid-fraction {args.valid_fraction}: give a share between 0 and 1, such as 0.01")
    if not 0 < args.character_coverage <= 1:
        raise ValueError(f"--character-coverage {args.character_coverage}: give a share above 0, at most 1")
    for flag in ("vocab_size", "sample_mb", "workers"):
        if getattr(args, flag) < 1:
            raise ValueError(f"--{flag.replace('_', '-')} {getattr(args, flag)}: at least 1 is needed")
    for path in [*args.text, *args.valid, *filter(None, [args.sentencepiece_model])]:
        if not os.path.exists(path):
            raise FileNotFoundError(f"{path}: no such file")
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder; name the files in it, such as {os.path.join(path, '*.txt')}")


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Those that decide the result."""
    options: dict[str, Any] = {"seed": args.seed, "valid_fraction": None if args.valid else args.valid_fraction}
    if args.sentencepiece_model:
        return {**options, "sentencepiece_model": sha256(args.sentencepiece_model)}
    names = ("vocab_size", "model_type", "character_coverage", "sample_mb")
    return {**options, **{name: getattr(args, name) for name in names}}


def _make_tokenizer(args: argparse.Namespace, manifest: Manifest) -> None:
    model = Path(args.sentencepiece_model).read_bytes() if args.sentencepiece_model else _train_tokenizer(args)
    try:
        symbols = len(Tokenizer(model).symbols)
    except ValueError as error:
        raise ValueError(f"{args.sentencepiece_model or 'the trained model'}: {error}") from None
    with atomic_write(args.out / MODEL, "wb") as stream:
        stream.write(model)
    manifest.finish("tokenizer", {"symbols": symbols, "files": _sizes(args.out, [MODEL])})


def _train_tokenizer(args: argparse.Namespace) -> bytes:
    documents = dict.fromkeys(SPLITS, 0)

    def training_lines(bar: tqdm) -> Iterator[str]:
        for split, passage in assign_splits(_read(args.text, bar), _fraction(args), args.seed):
            documents[split] += passage.opens_document
            if split == "train":
                yield from passage.lines()

    with _progress("sampling", args.text) as bar:
        sample = sample_lines(training_lines(bar), args.sample_mb * 10**6, args.seed)
    _require_documents({"train": documents["train"]} if args.valid else documents, args)
    _say(f"learning {args.vocab_size:,} symbols from {sum(map(len, sample)):,} characters …")
    return train(sample, args.vocab_size, args.model_type, args.character_coverage)


def _make_data(args: argparse.Namespace, manifest: Manifest) -> None:
    model = (args.out / MODEL).read_bytes()
    tokenizer = Tokenizer(model)
    start = time.perf_counter()
    with ExitStack() as stack:
        writers = {split: DatabinWriter(args.out / split, tokenizer.dtype, len(tokenizer.symbols)) for split in SPLITS}
        for writer in writers.values():
            stack.enter_context(writer)
        with _progress("encoding", [*args.text, *args.valid]) as bar:
            binarize(_routed(args, manifest, bar), model, writers, args.workers)
        _require_documents({split: writer.totals["documents"] for split, writer in writers.items()}, args)
        report: dict[str, Any] = {split: writer.finish() for split, writer in writers.items()}
    with atomic_write(args.out / DICTIONARY) as stream:  # last: fairseq takes no folder without it
        stream.write(tokenizer.dictionary(writers["train"].counts.tolist()))
    report["seconds"] = round(time.perf_counter() - start, 2)
    manifest.finish("data", {**report, "files": _sizes(args.out, DATA)})


def _routed(args: argparse.Namespace, manifest: Manifest, bar: tqdm) -> Iterator[tuple[str, Passage]]:
    """Every passage with the name of its split."""
    text = _read(args.text, bar, lambda index, digest: manifest.hashed("train", index, digest))
    yield from assign_splits(text, _fraction(args), args.seed)
    for passage in _read(args.valid, bar, lambda index, digest: manifest.hashed("valid", index, digest)):
        yield "valid", passage


def _read(paths: list[str], bar: tqdm, on_end: Callable[[int, str], None] = lambda index, digest: None) -> Iterator[Passage]:
    """The passages of several files; ``on_end`` is told each file's number and SHA-256."""
    for index, path in enumerate(paths):
        with MeteredFile(path, bar.update) as raw:
            yield from read_passages(raw, path)
            on_end(index, raw.sha256())


def _fraction(args: argparse.Namespace) -> float:
    return 0 if args.valid else args.valid_fraction


def _require_documents(documents: dict[str, int], args: argparse.Namespace) -> None:
    total = sum(documents.values())
    for split, number in documents.items():
        paths = args.valid if split == "valid" and args.valid else args.text
        named = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
        if not number and (args.valid or not total):
            raise ValueError(f"no text for {split} in {named}: nothing but blank lines.")
        if not number:
            raise ValueError(
                f"no document for {split}: {named} has {total:,}, and --valid-fraction {args.valid_fraction} holds out "
                f"one of every {1 / args.valid_fraction:,.3g}. Change it, give --valid FILES, or part the documents by "
                "blank lines."
            )


def _report(out: Path, manifest: Manifest) -> None:
    data = manifest.stages["data"]
    for split in SPLITS:
        totals = data[split]
        _say(
            f"{split}: {totals['documents']:,} documents, {totals['items']:,} lines, {totals['tokens']:,} tokens, "
            f"{totals['unknown'] / totals['tokens']:.3%} of them <unk>"
        )
    megabytes = sum(data[split]["text_bytes"] for split in SPLITS) / 1e6
    rate = megabytes / max(data["seconds"], 0.01)
    _say(
        f"{out}: {manifest.stages['tokenizer']['symbols']:,} symbols; {megabytes:,.1f} MB of text encoded in "
        f"{data['seconds']:,.1f} s, {rate:,.1f} MB/s"
    )


def _progress(label: str, paths: list[str]) -> tqdm:
    interval = 0.1 if sys.stderr.isatty() else 30
    return tqdm(total=sum(map(os.path.getsize, paths)), desc=label, unit="B", unit_scale=True, mininterval=interval)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _done(stage: str, manifest: Manifest, out: Path) -> bool:
    """Whether the manifest says so and its files still have the sizes they had."""
    files = manifest.stages.get(stage, {}).get("files", {})
    paths = [out / name for name in files if (out / name).exists()]
    return bool(files) and [path.stat().st_size for path in paths] == list(files.values())


def _sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    return {name: (folder / name).stat().st_size for name in names}


def _first_existing(folder: Path, names: Iterable[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
