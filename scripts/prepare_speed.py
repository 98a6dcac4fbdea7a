"""Compare the speed of 'fairseq-posenc prepare' with fairseq's own tools, on the same text in the same run.

fairseq's way is sentencepiece to pieces, as text, then fairseq-preprocess. All three read and write plain files, with
the same vocabulary and number of processes, and the data of both ways is compared. prepare reads the same documents as
rows of Parquet, too, and a bare loop of sentencepiece makes ids of the lines and writes nothing. Times are those of whole
commands.

    python scripts/prepare_speed.py TEXT --mb 40 --workers 1
"""

import argparse
import filecmp
import itertools
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow
from pyarrow import parquet
from tabulate import tabulate

from fairseq_posenc.text.data.formats import unpacked

CORPUS_GB = 800  # C4, English
ENCODE = """
import sys, sentencepiece
pieces = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
with open(sys.argv[2], encoding="utf-8", newline="\\n") as text, open(sys.argv[3], "w", encoding="utf-8") as out:
    while lines := text.readlines(1 << 20):
        encoded = pieces.encode([line.rstrip("\\n") for line in lines], out_type=str, num_threads=int(sys.argv[4]))
        out.writelines(" ".join(line) + "\\n" for line in encoded)
"""
BARE = """
import sys, sentencepiece
pieces = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
with open(sys.argv[2], encoding="utf-8", newline="\\n") as text:
    while lines := text.readlines(1 << 20):
        pieces.encode([line.rstrip("\\n") for line in lines], num_threads=int(sys.argv[3]))
"""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="plain or packed")
    parser.add_argument("--mb", type=int, default=40, help="of its beginning (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--vocab-size", type=int, default=8192, help="default: %(default)s")
    parser.add_argument("--cpu-time", action="store_true", help="count seconds of the CPU, where other programs use it too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, valid = folder / "text.txt", folder / "valid.txt"
        megabytes = unpack(args.text, text, valid, args.mb)
        vocabulary = prepare(text, valid, folder / "vocabulary", "--vocab-size", args.vocab_size, "--sample-mb", 4)
        run(vocabulary)
        write_parquet(text, folder / "text.parquet")
        ways = commands(text, valid, folder, args.workers)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(args.repeats):
            for way, command in ways.items():
                shutil.rmtree(folder / way, ignore_errors=True)
                seconds[way].append(run(command, args.cpu_time))
        for file in ("train.bin", "train.idx"):
            for way in ("fairseq-preprocess", "prepare of Parquet"):
                if not filecmp.cmp(folder / "prepare" / file, folder / way / file, shallow=False):
                    sys.exit(f"{file} of {way} differs")
    report({way: megabytes / statistics.median(times) for way, times in seconds.items()}, args.workers)


def unpack(source: Path, text: Path, valid: Path, limit: int) -> float:
    """Write whole lines of up to ``limit`` MB; returns how many MB."""
    with open(source, "rb") as raw, unpacked(raw, str(source)) as stream, open(text, "wb") as out:
        lines = itertools.takewhile(lambda _: out.tell() < limit * 10**6, stream)
        first = next(line for line in lines if line.strip())
        valid.write_bytes(first)
        # With fairseq's tools, blank lines before the first document, and runs of them, would become documents.
        blank = False
        for line in itertools.chain([first], lines):
            if blank and not line.strip():
                continue
            blank = not line.strip()
            out.write(b"\n" if blank else line)
        out.truncate(out.tell() - blank)
    return text.stat().st_size / 1e6


def write_parquet(text: Path, path: Path) -> None:
    """Write each document of a text as a row."""
    documents = text.read_text("utf-8").split("\n\n")
    parquet.write_table(pyarrow.table({"id": range(len(documents)), "text": documents}), path)


def prepare(text: Path, valid: Path, out: Path, *options: object) -> list[str]:
    """Return the command that prepares the text."""
    return ["fairseq-posenc", "prepare", str(text), "--valid", str(valid), "--out", str(out), *map(str, options)]


def commands(text: Path, valid: Path, folder: Path, workers: int) -> dict[str, list[str]]:
    """Return the commands to time, by name."""
    model, dictionary = folder / "vocabulary" / "sentencepiece.model", folder / "vocabulary" / "dict.txt"
    pieces = folder / "pieces"
    return {
        "prepare": prepare(text, valid, folder / "prepare", "--vocabulary", model, "--workers", workers),
        "prepare of Parquet": prepare(folder / "text.parquet", valid, folder / "prepare of Parquet", "--vocabulary", model,
                                      "--workers", workers),
        "bare": [sys.executable, "-c", BARE, *map(str, (model, text, workers))],
        "sentencepiece": [sys.executable, "-c", ENCODE, *map(str, (model, text, pieces, workers))],
        "fairseq-preprocess": ["fairseq-preprocess", "--only-source", "--srcdict", str(dictionary), "--trainpref", str(pieces),
                               "--destdir", str(folder / "fairseq-preprocess"), "--workers", str(workers)],
    }  # fmt: skip


def run(command: list[str], cpu_time: bool = False) -> float:
    """Return the seconds that a command takes in one thread per process."""

    def now() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime if cpu_time else time.perf_counter()

    start = now()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return now() - start


def report(speeds: dict[str, float], workers: int) -> None:
    """Print MB per second, and how many times as fast each is as the slowest way."""
    theirs = 1 / (1 / speeds["sentencepiece"] + 1 / speeds["fairseq-preprocess"])
    rows = {
        "a bare loop of sentencepiece": speeds["bare"],
        "fairseq-posenc prepare": speeds["prepare"],
        "fairseq-posenc prepare, of Parquet": speeds["prepare of Parquet"],
        "fairseq-preprocess alone, of pieces": speeds["fairseq-preprocess"],
        "sentencepiece, then fairseq-preprocess": theirs,
    }
    table = [
        (
            way,
            f"{speed:.1f}",
            f"{speed / workers:.1f}",
            f"{speeds['prepare'] / speed:.1f}",
            f"{CORPUS_GB * 1000 / speed * workers / 3600:.0f}",
        )
        for way, speed in rows.items()
    ]
    headers = ("", "MB/s of text", "a process", "prepare is faster by", f"core hours for {CORPUS_GB} GB")
    print(tabulate(table, headers, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
