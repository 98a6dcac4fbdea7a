"""The flags of ``fairseq-posenc bench``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..commands import option
from ..families import ROBERTA

STOCK, INSTALLED = "stock", "installed"
SIZES = {(suffix.lstrip("_") or "base"): sizes for suffix, sizes in ROBERTA.sizes.items()}
"""What the flags call fairseq's own model, all peers whose packages are there, and the sizes."""
MAX_NUMBER, MAX_LENGTH = 10**9, 10**6


@dataclass(frozen=True)
class Options:
    """The command's flags."""

    schemes: tuple[str, ...] = option(f"names without {ROBERTA.name}_ (default: all that can be built here)", (), metavar="A,B")
    peers: tuple[str, ...] = option("also models of other packages: bert, deberta, deberta-v2, roformer, modernbert, "
        f"x-transformers, or '{INSTALLED}': those whose packages are there", (), metavar="A,B")  # fmt: skip
    baseline: str = option("what ratios are to: a scheme, such as absolute, or fairseq's own roberta_base", STOCK,
        metavar="SCHEME")  # fmt: skip
    size: str = option("width and heads", "base", choices=SIZES)
    layers: int = option("number of layers", 2, metavar="L", minimum=1, maximum=MAX_NUMBER)
    vocab_size: int = option("symbols of the vocabulary", 1000, metavar="N", minimum=16, maximum=MAX_NUMBER)
    tokens: tuple[int, ...] = option("length of a sequence", (512,), metavar="n[,n…]", minimum=1, maximum=MAX_LENGTH)
    batch_size: int = option("sequences per step; of several lengths, those of the shortest", 2, metavar="B", minimum=1,
        maximum=MAX_NUMBER)  # fmt: skip
    repeats: int = option("pairs to time", 5, metavar="N", minimum=1, maximum=MAX_NUMBER)
    attention_backend: tuple[str, ...] = option("how attention is computed", ("auto",), metavar="NAME[,NAME…]")
    device: str | None = option("default: cuda if there is a GPU, else cpu", None)
    bf16: bool = option("parameters and activations in bfloat16; with --train, fairseq's --bf16", False)
    peak_tflops: float | None = option("what the device could do at most, for the MFU", None, metavar="X", minimum=1e-6)
    train: bool = option("time fairseq-train, on generated data or on --data", False)
    data: Path | None = option("with --train: what to train on", None, metavar="DATA-BIN")
    updates: int = option("with --train: per run, of which the first ten are not timed", 40, metavar="N", minimum=15,
        maximum=MAX_NUMBER)  # fmt: skip
    train_flags: str = option("with --train: more flags for this package's architectures, in one string, such as "
        "--train-flags=--compile", "", metavar="FLAGS")  # fmt: skip
    out: Path | None = option("keep what is done in DIR, and write results.json and results.md", None, metavar="DIR")
    plot: bool = option("with --out: also results.png, time and memory against n (needs matplotlib)", False)
    markdown: bool = option("as a table for a Markdown file", False)
