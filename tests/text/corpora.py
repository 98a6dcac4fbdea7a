"""Small texts, and what prepare makes of them."""

import shutil
from pathlib import Path

import numpy as np

from fairseq_posenc import cli
from fairseq_posenc.text.data.text import Layout
from fairseq_posenc.text.data.text_sources import Source, find

WORDS = [
    "the", "cat", "sat", "on", "a", "mat", "while", "dogs", "ran", "far", "over",
    "green", "hills", "and", "saw", "many", "small", "birds", "sing", "loudly", "at", "dawn",
]  # fmt: skip


def make_text(documents: int, seed: int = 0) -> str:
    """Documents of one to four lines of random words, separated by blank lines."""
    chance = np.random.default_rng(seed)
    sizes = chance.integers(1, 5, size=documents)
    return "\n\n".join("\n".join(" ".join(chance.choice(WORDS, 8)) for _ in range(size)) for size in sizes) + "\n"


def prepare(*arguments) -> int:
    return cli.main(["prepare", *map(str, arguments)])


def sources(*names) -> list[Source]:
    """What prepare takes these names for."""
    return find({"train": [str(name) for name in names]}, Layout())["train"]


def copy(text: Path, add: str = "") -> Path:
    """The same text under another name, and what is added at its end."""
    path = Path(shutil.copyfile(text, text.with_name("copy.txt")))
    with path.open("a", encoding="utf-8") as stream:
        stream.write(add)
    return path


def load(out: Path, split: str):
    """The split's items, as fairseq reads them."""
    from fairseq.data import indexed_dataset

    data = indexed_dataset.MMapIndexedDataset(str(out / split))
    return [data[i].tolist() for i in range(len(data))]


def files(out: Path) -> dict[str, bytes]:
    """Everything that fairseq reads, by its name relative to the folder."""
    kept = (".bin", ".idx", ".model")
    return {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.suffix in kept or path.name == "dict.txt"
    }


def documents(out: Path, split: str) -> list[str]:
    """The split's documents as numbers, a line's end as 2."""
    joined = " ".join(" ".join(map(str, item)) for item in load(out, split))
    return [document.removesuffix(" 2") for document in joined.split(" 2 2 ")]


SMALL = ("--vocab-size", 40, "--valid-fraction", 0.1, "--workers", 1)
