"""Two sides of a text as a data-bin for fairseq's translation task, in the pieces of one vocabulary.

TEXT has train, valid and test, each with the suffix of either language, one sentence per line. VOCABULARY is what
fairseq-posenc prepare has made of both sides of train:

    fairseq-posenc prepare TEXT/train.en TEXT/train.de --document-per-line --out VOCABULARY --vocab-size 32768
    python examples/translation/prepare.py TEXT --vocabulary VOCABULARY -s en -t de --out data-bin

Pairs of train with an empty side, or with more pieces than --max-pieces, are left out and counted.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from tqdm import tqdm

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.files import partial_of
from fairseq_posenc.text.data.databin import DatabinWriter
from fairseq_posenc.text.vocabulary import SENTENCEPIECE, LineEncoder, read_files

SPLITS = ("train", "valid", "test")
LINES = 10_000  # at once


def read_pairs(paths: list[Path]) -> Iterator[list[tuple[str, ...]]]:
    """Yield pairs of lines, some thousands at once.

    Raises:
        InputError: the files differ in length, or are not UTF-8.
    """
    with ExitStack() as opened:
        files = [opened.enter_context(path.open(encoding="utf-8", newline="\n")) for path in paths]
        pairs = itertools.zip_longest(*files)
        for first in itertools.count(step=LINES):
            try:
                chunk = list(itertools.islice(pairs, LINES))
            except UnicodeDecodeError as error:
                raise InputError(f"{paths[0]} or {paths[1]}, after line {first}: not UTF-8 ({error}); convert it") from error
            if not chunk:
                return
            if any(None in pair for pair in chunk):
                raise InputError(f"{paths[0]} and {paths[1]} have different numbers of lines: they must be line by line one text")
            yield chunk


def write_split(split: str, paths: list[Path], prefixes: list[Path], encoder: LineEncoder, max_pieces: int | None) -> np.ndarray:
    """Write both sides of a split, without pairs longer than ``max_pieces``; returns how often each symbol occurs."""
    kept = dropped = 0
    with ExitStack() as opened, tqdm(desc=split, unit=" pairs") as bar:
        writers = [opened.enter_context(DatabinWriter(prefix, encoder.dtype, len(encoder.symbols))) for prefix in prefixes]
        for chunk in read_pairs(paths):
            sides = [encoder.encode([line.replace("\x85", " ").strip() for line in side]) for side in zip(*chunk, strict=True)]
            lengths = np.stack([sizes for _, sizes in sides]) - 1  # without </s>
            keep = np.ones(len(chunk), bool) if max_pieces is None else ((lengths > 0) & (lengths <= max_pieces)).all(0)
            for writer, (ids, sizes) in zip(writers, sides, strict=True):
                writer.add(ids[np.repeat(keep, sizes)], sizes[keep])
            kept, dropped = kept + int(keep.sum()), dropped + int((~keep).sum())
            bar.update(len(chunk))
        if not kept:
            raise InputError(f"{paths[0]} and {paths[1]} have no pair of sentences")
        for writer in writers:
            writer.finish()
    print(f"{split}: {kept:,} pairs" + (f", {dropped:,} left out" if dropped else ""))
    return np.sum([writer.counts for writer in writers], axis=0)


def prepare(text: Path, vocabulary: Path, source: str, target: str, out: Path, max_pieces: int) -> None:
    """Write the data-bin, into a folder that gets the name ``out`` when it is complete.

    Raises:
        InputError, OSError: what is wrong with the text, the vocabulary or the folder.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError(f"--out {out} is not empty: name a new folder")
    if not (vocabulary / SENTENCEPIECE).exists():
        raise InputError(f"--vocabulary {vocabulary} has no {SENTENCEPIECE}: name what fairseq-posenc prepare has written")
    encoder = LineEncoder(read_files(vocabulary / SENTENCEPIECE))
    folder = partial_of(out)
    shutil.rmtree(folder, ignore_errors=True)  # of a start that was killed
    folder.mkdir(parents=True)
    for split in SPLITS:
        paths = [text / f"{split}.{language}" for language in (source, target)]
        prefixes = [folder / f"{split}.{source}-{target}.{language}" for language in (source, target)]
        counts = write_split(split, paths, prefixes, encoder, max_pieces if split == "train" else None)
        if split == "train":
            for language in (source, target):
                (folder / f"dict.{language}.txt").write_text(encoder.dictionary.text(counts.tolist()), "utf-8")
    shutil.copy(vocabulary / SENTENCEPIECE, folder / SENTENCEPIECE)
    folder.replace(out)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--vocabulary", type=Path, required=True, metavar="DIR")
    parser.add_argument("-s", "--source-lang", required=True)
    parser.add_argument("-t", "--target-lang", required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--max-pieces", type=int, default=250, help="of a training sentence (default: %(default)s)")
    args = parser.parse_args()
    try:
        prepare(args.text, args.vocabulary, args.source_lang, args.target_lang, args.out, args.max_pieces)
    except (InputError, OSError) as error:
        sys.exit(f"prepare.py: {error}")


if __name__ == "__main__":
    main()
