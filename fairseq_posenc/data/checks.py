"""What prepare refuses to write to, or over."""

import argparse
import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from fairseq_posenc.data.assembly import ANY_SHARD, DATA, OUTPUTS
from fairseq_posenc.data.manifest import NAME as MANIFEST
from fairseq_posenc.data.parts import PARTS
from fairseq_posenc.data.sources import Source, TextFile


def check_output(args: argparse.Namespace, sources: Sequence[Source]) -> None:
    """That fairseq can read the folder, and that nothing in it, or that goes into it, is text or somebody else's.

    Raises:
        ValueError: says what is in the way.
    """
    read_by_fairseq = str(args.out.absolute() if args.shards > 1 else args.out)
    if ":" in read_by_fairseq or not read_by_fairseq.isprintable():
        raise ValueError(
            f"--out {read_by_fairseq!r}: fairseq takes ':' for the end of a path. Name a folder of plain characters."
        )
    out = args.out.resolve()
    for folder in (Path(name).resolve() for name in (*args.text, *args.valid) if os.path.isdir(name)):
        if folder in (out, *out.parents):
            raise ValueError(
                f"--out {args.out} lies in {folder}, and what it holds would be read as text. Name a folder elsewhere."
            )
    for source in sources:
        if isinstance(source, TextFile) and _is_written(Path(source.name), out):
            raise ValueError(f"{source.name} has the name of a file that is written to --out {args.out}. Name another --out.")
    if args.overwrite and args.vocabulary and out in (args.vocabulary.resolve(), *args.vocabulary.resolve().parents):
        raise ValueError(
            f"--vocabulary {args.vocabulary} lies in {args.out}, which --overwrite empties. Copy it elsewhere first."
        )
    if args.overwrite or (args.out / MANIFEST).exists():
        return
    written = [*(args.out / name for name in OUTPUTS), *(path / name for path in args.out.glob(ANY_SHARD) for name in DATA)]
    for path in written:
        if path.exists():
            raise ValueError(f"{path} was not written by this command. Name another --out, or add --overwrite to replace it.")


def _is_written(text: Path, out: Path) -> bool:
    path = text.parent.resolve() / text.name
    if out not in path.parents:
        return False
    first, *below = path.relative_to(out).parts
    return first == PARTS or fnmatch(first, ANY_SHARD) if below else first in (*OUTPUTS, MANIFEST)
