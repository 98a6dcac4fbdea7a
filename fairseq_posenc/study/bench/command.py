"""Measure the cost of each scheme relative to a baseline in the same run.

    fairseq-posenc bench                                                   a training step of every scheme
    fairseq-posenc bench --schemes tisa,shaw --tokens 128,512,2048 --out bench
    fairseq-posenc bench --family modernbert --schemes rope --baseline rope --peers modernbert

For each scheme, backend and length, it times the attention of one layer alone (÷ plain: relative to PyTorch's without positions),
and a whole step of masked language modelling: forward, backward, Adam. Runs of a model and of the baseline alternate, so that
other load on the machine slows both; the table has medians, and the range of the ratios in brackets. Memory is the peak of a step
on a GPU, and what the forward pass keeps for the backward pass on a CPU. Layers have the width of the base size; a ratio hardly
depends on their number.

A backend is timed only if z and all gradients agree with the reference, eager in float64 on the CPU, up to three times the error
of eager in the same precision and four times the precision's epsilon, on at most 1,024 tokens.

With --out, the same command continues a bench that was killed.
"""

from dataclasses import dataclass
from pathlib import Path

from ...base.commands import option
from ...core.families import FAMILIES, ROBERTA

STOCK = "stock"
"""The name of fairseq's own model as the baseline."""
ENCODERS = {family.name: family for family in FAMILIES.values() if not family.causal}
SIZES = {(suffix.lstrip("_") or "base"): suffix for suffix in ROBERTA.sizes}
"""The names of the sizes that all families have, and the endings of their architectures."""
COUNT = {"minimum": 1, "maximum": 10**9, "metavar": "N"}


@dataclass(frozen=True)
class Options:
    """The command's flags."""

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
    out: Path | None = option(
        "keep what is done in DIR, and write report.html, results.md, results.csv and results.json", None, metavar="DIR"
    )


def main(options: Options) -> None:
    """Run the command."""
    from .run import bench

    bench(options)
