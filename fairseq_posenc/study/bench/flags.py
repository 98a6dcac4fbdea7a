"""The flags of bench."""

from dataclasses import dataclass
from pathlib import Path

from ...base.commands import option
from ...core.families import ROBERTA
from . import ENCODERS, SIZES, STOCK

COUNT = {"minimum": 1, "maximum": 10**9, "metavar": "N"}


@dataclass(frozen=True)
class Options:
    """The flags."""

    schemes: tuple[str, ...] | None = option(
        "expressions, or architectures, in --family (default: all that run here)", None, metavar="A,B"
    )
    family: str = option("what the schemes are part of", ROBERTA.name, choices=tuple(ENCODERS))
    peers: tuple[str, ...] = option(
        "also models of transformers: bert, deberta, deberta-v2, roformer, modernbert", (), metavar="A,B",
    )  # fmt: skip
    baseline: str = option("baseline of ratios: a scheme, such as absolute, or fairseq's roberta_base", STOCK, metavar="SCHEME")
    size: str = option("width and heads", "base", choices=tuple(SIZES))
    layers: int = option("number of layers", 2, **COUNT)
    vocab_size: int = option("number of symbols", 1000, **COUNT | {"minimum": 16})
    tokens: tuple[int, ...] = option("length of a sequence", (512,), minimum=1, maximum=10**6, metavar="n[,n…]")
    batch_size: int = option("sequences per step; of several lengths, those of the shortest", 2, **COUNT)
    repeats: int = option("pairs to time", 5, **COUNT)
    attention_backend: tuple[str, ...] = option("how attention is computed", ("auto",), metavar="NAME[,NAME…]")
    device: str | None = option("cpu, cuda or cuda:0 (default: cuda if there is a GPU, else cpu)", None)
    bf16: bool = option("parameters and activations in bfloat16", False)
    out: Path | None = option("keep what is done in DIR, and write results.json and results.md", None, metavar="DIR")
    markdown: bool = option("print the table for a Markdown file", False)
