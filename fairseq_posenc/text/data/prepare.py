"""Turn raw text into a data-bin that fairseq-train reads.

TEXT is a file, a folder, a pattern in quotes, standard input (-), or an address of fsspec such as s3://bucket/folder and
hf://datasets/NAME, a data set of the Hugging Face hub. Files are UTF-8: either text, one sentence or paragraph per line, a
blank line between documents; or one document per row of JSON lines (.jsonl, .json), CSV or TSV, Parquet or Arrow;
plain, compressed as .gz, .xz, .zst or .bz2, or in tar or zip archives. The end of a file ends a document too. The output
folder holds sentencepiece.model, dict.txt with <mask> as its last entry, train and valid (.bin, .idx), and
manifest.json. The same command again resumes where it was interrupted.

    fairseq-posenc prepare books/ more.txt.xz --out data-bin
    fairseq-train data-bin --task masked_lm --criterion masked_lm --arch roberta_tisa …

Large text is distributed over shards, of which fairseq loads one per epoch; several processes or hosts each write some of
the shards, into one folder:

    fairseq-posenc prepare 'c4/en/c4-train.*.gz' --valid 'c4/en/c4-validation.*.gz' --out data-bin --shards 64 --only 0-7
    … and --only 8-15 to 56-63
    fairseq-train "$(cat data-bin/shards.txt)" --task masked_lm --criterion masked_lm --arch roberta_tisa …
"""

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...base.commands import option
from ...base.errors import InputError, flag_of
from ...base.files import atomic_write, report_full_disk, sole_writer
from ...base.record import differences
from ..vocabulary import DEFAULT_SYMBOLS, SENTENCEPIECE, UNKNOWN, LineEncoder, read_files, train
from .folder import MANIFEST, SHARDS, Folder, Manifest, content_digests, resume
from .shards import write_shards
from .split import Split, default_fraction, sample_lines, training_lines
from .text import Layout, Skipped, refuse
from .text_sources import VALID, Sources, estimated_text, find, progress_bar

READ_PER_SAMPLED = 16
"""For a large corpus, the tokenizer's sample is drawn from this many times its size."""
MANY_UNKNOWN = 0.01
OF_TRAINING = ("vocab_size", "model_type", "character_coverage", "sample_mb")
"""The options of training a vocabulary."""
TRAINING = shlex.split(
    "--task masked_lm --criterion masked_lm --sample-break-mode complete --save-dir checkpoints --no-epoch-checkpoints "
    "--optimizer adam --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1.0 "
    "--lr-scheduler polynomial_decay"
)
"""Flags of the command that is printed at the end, and below those for a GPU, and for minutes on a CPU."""
ON_GPU = shlex.split(
    "--arch roberta_tisa --bf16 --tokens-per-sample 512 --batch-size 12 --required-batch-size-multiple 1 --update-freq 8 "
    "--lr 1e-4 --warmup-updates 10000 --total-num-update 500000 --max-update 500000"
)
ON_CPU = shlex.split(
    "--arch roberta_tisa_tiny --tokens-per-sample 128 --batch-size 16 --log-interval 10 "
    "--lr 2e-3 --warmup-updates 50 --total-num-update 500 --max-update 500"
)
MIN_SYMBOLS, MIN_COVERAGE = 7, 0.98
"""Limits of sentencepiece: ``<unk>``, the space and a letter, with four of fairseq's and ``<mask>``; and its own."""


def _numbers(text: str) -> range:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
    if not numbers:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form A-B, such as 0-7")
    return numbers


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
    text_field: str = option(
        "the field with the text in rows, as text, or doc.body for fields of fields", Layout().text_field, metavar="NAME"
    )
    document_per_line: bool = option("in text files, every line is a document", False)
    skip_bad: bool = option("skip what is not UTF-8, or not a JSON row with the field, rather than stop", False)
    shards: int = option("distribute the documents over this many data-bins, DIR/shard-00000 …", 1, minimum=1, metavar="S")
    only: range | None = option("write shards A to B alone, others on other hosts", None, parse=_numbers, metavar="A-B")
    vocab_size: int | None = option(
        "symbols of the dictionary, with fairseq's four and <mask>; for gigabytes of text, 32768 or more (default: "
        f"{DEFAULT_SYMBOLS}, or what the text supports)", None, minimum=MIN_SYMBOLS, metavar="N", group="vocabulary",
    )  # fmt: skip
    model_type: str = option("sentencepiece's", "unigram", choices=("unigram", "bpe"), group="vocabulary")
    character_coverage: float = option(
        f"share of the text's characters that the vocabulary covers, from {MIN_COVERAGE} to 1; the rarest become <unk>", 0.9999,
        minimum=MIN_COVERAGE, maximum=1.0, metavar="C", group="vocabulary",
    )  # fmt: skip
    sample_mb: int = option(
        "train it on this many millions of characters, in lines drawn from 16 times as much text: the beginnings of files, "
        "in proportion to their sizes", 64, minimum=1, metavar="MB",
        group="vocabulary",
    )  # fmt: skip
    vocabulary: Path | None = option(
        "use this one instead: a sentencepiece model, or a folder made by import-hf or prepare", None, metavar="PATH",
        group="vocabulary",
    )  # fmt: skip
    seed: int = option("seed for held-out documents, shards and sample", 1, metavar="S")
    workers: int = option(
        "processes that encode; the result does not depend on it", len(os.sched_getaffinity(0)), minimum=1, metavar="W"
    )
    overwrite: bool = option("remove what was prepared in DIR, from other text or options, before the text is read", False)

    def __post_init__(self) -> None:
        if self.valid and self.valid_fraction is not None:
            raise InputError("--valid and --valid-fraction exclude each other: the second holds out some of the training text")
        if self.only and self.only.stop > self.shards:
            raise InputError(f"--only: shard {self.only.stop - 1} of --shards {self.shards}; the first is 0")
        if self.only and self.overwrite:
            raise InputError(f"--overwrite: not with --only, as other processes use {self.out}. Remove it, then start them.")
        if self.vocabulary and not self.vocabulary.exists():
            raise FileNotFoundError(f"--vocabulary {self.vocabulary}: no such file")
        given = [flag_of(name) for name in OF_TRAINING if getattr(self, name) != getattr(type(self), name)]
        if self.vocabulary and given:
            raise InputError(f"{', '.join(given)}: not with --vocabulary, which is used as it is")

    @cached_property
    def vocabulary_files(self) -> Mapping[str, bytes]:
        """The contents of the files of ``--vocabulary``, by name."""
        return read_files(self.vocabulary) if self.vocabulary else {}

    @property
    def deciding(self) -> dict[str, Any]:
        """The options that decide the result, as the manifest records them."""
        names = ["valid_fraction", "seed", "shards", "text_field", "document_per_line"]
        values = {name: getattr(self, name) for name in (names if self.vocabulary_files else [*names, *OF_TRAINING])}
        return values | {"vocabulary": content_digests(self.vocabulary_files)} if self.vocabulary_files else values


def main(options: Options) -> None:
    """Prepare what is not prepared yet; raises InputError or OSError if text, flags or the folder cannot be used."""
    skipped = Skipped() if options.skip_bad else None
    layout = Layout(options.text_field, options.document_per_line, skipped or refuse)
    sources = find({"train": options.text, VALID: options.valid}, layout)
    folder = Folder(options.out, options.shards)
    if options.valid_fraction is None and not options.valid:
        groups = Split(list(folder.shards), 0, options.seed, len(sources["train"])).groups  # documents of the first are held out
        size = estimated_text(sources["train"])
        options = replace(options, valid_fraction=default_fraction(None if size is None else size // groups))
    folder.require_free(options, [*sources["train"], *sources[VALID]])
    split = Split(list(folder.shards), options.valid_fraction or 0, options.seed, len(sources["train"]))
    with report_full_disk(options.out):
        if options.overwrite:
            if options.vocabulary_files:
                _line_encoder(options, options.vocabulary_files)  # raises now what would be raised when all is removed
            with sole_writer(options.out, wait=True):
                folder.empty()
        with _record(options, sources, folder) as manifest:
            encoder = _encoder(options, sources, folder, split, manifest)
            names = [split.shards[number] for number in options.only or range(options.shards)]
            unfinished = [name for name in names if not manifest.is_whole(name)]
        if unfinished:
            _encode(options, sources, folder, split, encoder, unfinished, skipped)
        else:
            _say(f"{options.out}: done before")
        with _record(options, sources, folder) as manifest:
            others = [name for name in folder.shards if not manifest.is_whole(name)]
            if not others:
                folder.list_shards()
    if others:
        _say(f"{options.out}: {len(others)} shards are still to be written, from {others[0]}")
    else:
        _report(options, manifest)


@contextmanager
def _record(options: Options, sources: Sources, folder: Folder) -> Iterator[Manifest]:
    """The folder's manifest, while no other process uses it; saved at the end."""
    with sole_writer(options.out, wait=True):
        manifest = resume(options.out, options.deciding, sources)
        folder.claim()
        manifest.save()
        yield manifest
        manifest.save()


def _encoder(options: Options, sources: Sources, folder: Folder, split: Split, manifest: Manifest) -> LineEncoder:
    """Return the folder's vocabulary, or a new one if no shard is complete and there is none or its files have changed."""
    files = folder.tokenizer_files()
    changes = differences(manifest.tokenizer.get("sha256", {}), content_digests(files))
    if files and not changes:
        return LineEncoder(files)
    if manifest.shards:
        raise InputError(f"{options.out}: {'; '.join(changes)}, but shards are encoded with it. Restore it, or add --overwrite.")
    folder.empty(keep=MANIFEST)
    if options.valid and not any(True for source in sources[VALID] for _ in source.passages()):
        raise InputError(f"--valid {' '.join(options.valid)}: no text, nothing but blank lines. Without it, some is held out.")
    if options.vocabulary_files:
        for _ in training_lines(sources["train"], split, enough=0):  # read only to see that there is enough
            pass
        files = dict(options.vocabulary_files)
    else:
        files = {SENTENCEPIECE: _learn(options, sources, split)}
    encoder = _line_encoder(options, files)
    for name, content in files.items():
        with atomic_write(options.out / name, "wb") as stream:
            stream.write(content)
    manifest.tokenizer = {"symbols": len(encoder.symbols), "sha256": content_digests(files)}
    if not (options.vocabulary_files or options.vocab_size):
        why = "all that the text supports" if len(encoder.symbols) < DEFAULT_SYMBOLS else "the default of --vocab-size"
        _say(f"vocabulary: {len(encoder.symbols):,} symbols, {why}")
    return encoder


def _line_encoder(options: Options, files: Mapping[str, bytes]) -> LineEncoder:
    try:
        return LineEncoder(files)
    except InputError as error:
        raise InputError(f"{options.vocabulary or 'the trained model'}: {error}") from None


def _learn(options: Options, sources: Sources, split: Split) -> bytes:
    limit = options.sample_mb * 1_000_000
    with progress_bar("sampling", sources["train"]) as bar:
        lines = training_lines(sources["train"], split, READ_PER_SAMPLED * limit, bar.update)
        sample = sample_lines(lines, limit, options.seed)
    size = f"{options.vocab_size:,}" if options.vocab_size else f"up to {DEFAULT_SYMBOLS:,}"
    _say(f"learning {size} symbols from {sum(map(len, sample)):,} characters …")
    return train(sample, options.vocab_size, options.model_type, options.character_coverage)


def _encode(
    options: Options, sources: Sources, folder: Folder, split: Split, encoder: LineEncoder, names: Sequence[str],
    skipped: Skipped | None,
) -> None:  # fmt: skip
    start, megabytes = time.perf_counter(), 0.0
    for shards, hashes in write_shards(folder, names, sources, split, encoder, options.workers):
        with _record(options, sources, folder) as manifest:
            manifest.shards.update(shards)
            for (role, index), digest in hashes.items():
                manifest.inputs[role][index]["sha256"] = digest
        for shard in shards.values():
            megabytes += sum(totals["text_bytes"] for totals in shard["totals"].values()) / 1e6
    seconds = time.perf_counter() - start
    speed = megabytes / seconds
    _say(f"{megabytes:,.1f} MB of text encoded in {seconds:,.1f} s, {speed:.1f} MB/s, {speed / options.workers:.1f} per process")
    if skipped:
        _say(f"--skip-bad: {skipped.count:,} lines or rows were skipped")


def _report(options: Options, manifest: Manifest) -> None:
    for split, totals in manifest.totals().items():
        unknown, spelled = totals["unknown"] / totals["tokens"], min(totals["spelled"], totals["unknown"])
        lines = totals["items"] - totals["documents"] + (1 if split == VALID else options.shards)  # without blank lines between
        _say(
            f"{split}: {totals['documents']:,} documents, {lines:,} lines, {totals['tokens']:,} tokens, "
            f"{unknown:.3%} of them <unk>" + f" ({spelled:,} where the text itself has {UNKNOWN})" * bool(spelled)
        )
        unknown -= spelled / totals["tokens"]
        if unknown > MANY_UNKNOWN:
            _say(
                f"WARNING: {unknown:.0%} of the tokens of {split} are <unk>: the vocabulary is not one for this text. Raise "
                "--character-coverage or name another --vocabulary, and check the encoding and language of the text."
            )
    if options.valid_fraction:
        held = manifest.totals()[VALID]["documents"]
        every = sum(totals["documents"] for totals in manifest.totals().values())
        _say(f"held out {held:,} of {every:,} documents, at random (--valid-fraction {options.valid_fraction:.3g})")
    data = shlex.quote(str(options.out)) if options.shards == 1 else f'"$(cat {shlex.quote(str(options.out / SHARDS))})"'
    symbols = f"{manifest.tokenizer['symbols']:,} symbols"
    _say(f"{options.out}: {symbols}, shards: {options.shards}. Train on it here with")
    import torch

    _say(f"  fairseq-train {data} {shlex.join([*TRAINING, *(ON_GPU if torch.cuda.is_available() else ON_CPU)])}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
