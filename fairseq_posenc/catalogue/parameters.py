"""Compare the papers' tables of position parameters with the live modules, and the schemes' costs with that of absolute.

    fairseq-posenc parameters
    fairseq-posenc parameters --tokens 4096

The paper's complexity is the storage at run time of m layers, with d for our D = h·d and one table for all h heads. The
operations are what a scheme adds to the n²·h·d of a layer's attention by its equation, for heads of dimension d. The
multiply-adds are those of all matrix products of a live encoder of base size (12 layers, 12 heads, D = 768) on one sequence,
counted in the eager backend, where a relative table meets every query or key at all 2n - 1 offsets. Sums, products and biases
taken element by element are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tabulate import tabulate

from ..commands import option, show

if TYPE_CHECKING:
    from torch import nn

    from ..schemes import Positions


class Published(NamedTuple):
    """A row of Huang et al. 2021, Table 1."""

    name: str
    expression: str
    options: dict[str, Any]
    parameters: int  # the paper's: n = 512, D = 768, 12 layers of 12 heads
    complexity: str  # the paper's: storage at run time of m layers, where d is the model's dimension
    operations: str  # per layer, of n tokens and h heads of dimension d


HUANG = (
    Published("Absolute", "absolute", {}, 393_216, "O(nd)", "n·h·d, once"),
    Published("Shaw (a^K only)", "shaw", {"shaw_terms": "keys"}, 785_664, "O(m n² d/h)", "n²·h·d"),
    Published("Raffel", "raffel", {}, 12_276, "O(m n²)", "n²·h"),
    Published("M2", "m2", {}, 12_276, "O(m n²)", "n²·h"),
    Published("M4", "m4", {}, 785_664, "O(m n² d/h)", "n²·h·d"),
    Published("M4M", "m4m", {}, 785_664, "O(m n² d/h)", "n²·h·d"),
    Published("DeBERTa", "deberta", {}, 834_816, "O(m n² d/h)", "n²·h·d + n·d²"),
    Published("TUPE", "untied+raffel", {"untied_form": "head", "raffel_scaled": False}, 454_644, "O(m n² d/h)", "n²·d + n·d²"),
)

# Wennberg & Henter 2021, Table 2: 12 layers of 12 heads, D = 768. By model, n and the width of the embeddings.
WENNBERG_MODELS = {"Longformer": (4096, 768), "BERT": (512, 768), "ALBERT": (512, 128)}
WENNBERG: tuple[tuple[str, str, dict[str, Any], tuple[int, ...]], ...] = (
    ("Standard", "absolute", {}, (3_145_728, 393_216, 65_536)),
    ("Ke et al. (TUPE)", "untied", {"untied_form": "equation"}, (4_325_376, 1_572_864, 98_304)),
    ("TISA (S = 5)", "tisa", {}, (2_160, 2_160, 2_160)),
)
COSTS = ("scheme", "positions", "the paper's complexity", "operations", "million multiply-adds", "÷ absolute")


def positions_of(
    expression: str,
    n: int = 512,
    dim: int = 768,
    heads: int = 12,
    options: Mapping[str, Any] | None = None,
    embed_dim: int | None = None,
    layers: int = 12,
) -> Positions:
    """Return the positions of a model for sequences of ``n`` tokens, as the encoder would make them, without memory.

    The model has base size by default. ``embed_dim`` is the width of the word embeddings, if that is not ``dim``.
    """
    import torch

    from ..schemes import Settings, build

    with torch.device("meta"):
        settings = Settings(layers=layers, heads=heads, dim=dim, max_positions=n, separator=2, embed_dim=embed_dim)
        return build(expression, settings, options)


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass
class Options:
    """The command's flags."""

    tokens: int = option("tokens of the sequence whose multiply-adds are counted", 512, minimum=1, metavar="n")
    markdown: bool = option("print tables for a Markdown file", False)


def main(options: Options) -> None:
    """Run the command."""
    form = "github" if options.markdown else "simple"
    show("Huang et al. 2021, Table 1 (n = 512, D = 768, 12 layers of 12 heads; tables shared by the heads, one per layer)\n")
    show(tabulate(huang(), ("scheme", "positions", "paper", "here", "counting one projection"), form, intfmt=","))
    show(
        "\nThe paper counts one (D/H)² projection per layer for DeBERTa and TUPE; its equations 13 and 14, and so the modules\n"
        "here, have two. The last column leaves out the second.\n"
    )
    show(
        "The paper's complexity (storage of m layers; its d is h·d here), the operations that equations add to the n²·h·d of\n"
        f"a layer's attention, and the multiply-adds of all matrix products of the live encoder, n = {options.tokens} (eager)\n"
    )
    show(tabulate(costs(options.tokens), COSTS, form, intfmt=",", floatfmt=".3f"))
    show("\nWennberg & Henter 2021, Table 2 (paper / here)\n")
    show(tabulate(wennberg(), ("scheme", "positions", *WENNBERG_MODELS), form))
    show("\nThe paper counts ALBERT's TUPE as wide as its word embeddings, 128; its layers, and so the modules here, have 768.")


def huang() -> list[tuple[str, str, int, int, int]]:
    """Return the rows of Table 1: scheme, expression, the paper's number, ours, and ours with one projection counted of two."""
    rows = []
    for row in HUANG:
        positions = positions_of(row.expression, options=row.options)
        second = sum(p.numel() for key, p in positions.named_parameters() if key.endswith("query_projection"))
        rows.append((row.name, row.expression, row.parameters, count(positions), count(positions) - second))
    return rows


def costs(n: int) -> list[tuple[str, str, str, str, int, float]]:
    """Return both complexities of the same schemes, an encoder's multiply-adds on ``n`` tokens in millions, and ÷ absolute's."""
    counts = [multiply_adds(row.expression, n, row.options) for row in HUANG]
    return [
        (row.name, row.expression, row.complexity, row.operations, round(total / 1e6), total / counts[0])
        for row, total in zip(HUANG, counts, strict=True)
    ]


def multiply_adds(expression: str, n: int, options: dict[str, Any]) -> int:
    """Return those of the matrix products of a base encoder's forward pass on one sequence of ``n`` tokens, in the eager backend.

    Nothing is computed: the tensors have shapes and no contents.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    from ..transformer import Encoder, EncoderConfig

    config = EncoderConfig(
        vocab_size=4, max_positions=n, positions=expression, position_options=options, attention_backend="eager"
    )
    with FakeTensorMode(), torch.no_grad():
        encoder, words = Encoder(config).eval(), torch.empty(1, n, config.dim)
        with FlopCounterMode(display=False) as counter:
            encoder(None, inputs_embeds=words)
    return counter.get_total_flops() // 2


def wennberg() -> list[tuple[str, ...]]:
    """Return the rows of Table 2: scheme, expression, and "paper / here" for each model."""
    rows = []
    for name, expression, options, published in WENNBERG:
        cells = []
        for paper, (n, width) in zip(published, WENNBERG_MODELS.values(), strict=True):
            cells.append(f"{paper:,} / {count(positions_of(expression, n, options=options, embed_dim=width)):,}")
        rows.append((name, expression, *cells))
    return rows
