"""Compare the speed of 'fairseq-posenc prepare' with fairseq's own tools, on the same text in the same run.

fairseq's way is sentencepiece to pieces, as text, then fairseq-preprocess. All three read and write plain files, with
the same vocabulary and number of processes, and the data of both ways is compared. Times are those of whole commands.

    python scripts/prepare_speed.py TEXT --mb 40 --workers 1
"""

import argparse
import filecmp
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from fairseq_posenc.text.data.text import READERS

CORPUS_GB = 800  # C4, English
ENCODE = """
import sys, sentencepiece
pieces = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
with open(sys.argv[2], encoding="utf-8", newline="\\n") as text, open(sys.argv[3], "w", encoding="utf-8") as out:
    while lines := text.readlines(1 << 20):
        encoded = pieces.encode([line.rstrip("\\n") for line in lines], out_type=str, num_threads=int(sys.argv[4]))
        out.writelines(" ".join(line) + "\\n" for line in encoded)
"""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="plain or packed")
    parser.add_argument("--mb", type=int, default=40, help="of its beginning (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--vocab-size", type=int, default=8192, help="default: %(default)s")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, valid = folder / "text.txt", folder / "valid.txt"
        megabytes = unpack(args.text, text, valid, args.mb)
        vocabulary = prepare(text, valid, folder / "vocabulary", "--vocab-size", args.vocab_size, "--sample-mb", 4)
        run(vocabulary)
        ways = commands(text, valid, folder, args.workers)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(args.repeats):
            for way, command in ways.items():
                shutil.rmtree(folder / way, ignore_errors=True)
                seconds[way].append(run(command))
        for file in ("train.bin", "train.idx"):
            if not filecmp.cmp(folder / "prepare" / file, folder / "fairseq-preprocess" / file, shallow=False):
                sys.exit(f"{file} differs")
    report({way: megabytes / statistics.median(times) for way, times in seconds.items()}, args.workers)


def unpack(source: Path, text: Path, valid: Path, limit: int) -> float:
    """Write whole lines of up to ``limit`` MB; returns how many MB."""
    opener = READERS.get(source.suffix, open)
    with opener(source, "rb") as stream, open(text, "wb") as out:
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


def prepare(text: Path, valid: Path, out: Path, *options: object) -> list[str]:
    """Return the command that prepares the text."""
    return ["fairseq-posenc", "prepare", str(text), "--valid", str(valid), "--out", str(out), *map(str, options)]


def commands(text: Path, valid: Path, folder: Path, workers: int) -> dict[str, list[str]]:
    """Return the commands to time, by name."""
    model, dictionary = folder / "vocabulary" / "sentencepiece.model", folder / "vocabulary" / "dict.txt"
    pieces = folder / "pieces"
    return {
        "prepare": prepare(text, valid, folder / "prepare", "--vocabulary", model, "--workers", workers),
        "sentencepiece": [sys.executable, "-c", ENCODE, *map(str, (model, text, pieces, workers))],
        "fairseq-preprocess": ["fairseq-preprocess", "--only-source", "--srcdict", str(dictionary), "--trainpref", str(pieces),
                               "--destdir", str(folder / "fairseq-preprocess"), "--workers", str(workers)],
    }  # fmt: skip


def run(command: list[str]) -> float:
    """Return the seconds that a command takes in one thread per process."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return time.perf_counter() - start


def report(speeds: dict[str, float], workers: int) -> None:
    """Print MB per second, and how many times as fast each is as the slowest way."""
    theirs = 1 / (1 / speeds["sentencepiece"] + 1 / speeds["fairseq-preprocess"])
    rows = {
        "fairseq-posenc prepare": speeds["prepare"],
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
