"""One pass of an encoder over the windows of a text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from ..transformer import Encoder
from .embeddings import Correlations, correlations, inseparable
from .offsets import term_matrices
from .probes import AT_ONCE
from .trace import trace


@dataclass(frozen=True, eq=False)
class Reading:
    """Means over the windows, and every window's hidden states.

    Attributes:
        attention: (L, H, n, n) weights.
        terms: :func:`.offsets.term_matrices` of each layer.
        correlations: of the first layer, (1 or H, n, n) each; None if its scores are not a sum of them.
        hidden: (N, n, D) of each state 0 … L.
    """

    attention: Tensor
    terms: list[dict[str, Tensor]]
    correlations: Correlations | None
    hidden: list[Tensor]


def read(encoder: Encoder, sequences: Tensor, label: str) -> Reading:
    """Reads (N, n) tokens; ``label`` is the label of the progress bar."""
    sums: dict[tuple[str, int, str], Tensor] = {}
    hidden = []
    for batch in tqdm(sequences.split(AT_ONCE), desc=label, unit="batch", leave=False):
        seen = trace(encoder, batch, with_attentions=True)
        hidden.append(seen.hidden)
        found = {("attention", i, ""): p.mean(0) for i, p in enumerate(seen.attentions)}
        for i, layer in enumerate(seen.layers):
            found |= {("term", i, term): matrix for term, matrix in term_matrices(layer).items()}
        if inseparable(seen.layers[0].terms) is None:
            parts = correlations(encoder, batch)
            found |= {("correlation", 0, part.name): getattr(parts, part.name).mean(0) for part in dataclasses.fields(parts)}
        share = len(batch) / len(sequences)
        for key, matrix in found.items():
            sums[key] = sums.get(key, 0) + share * matrix

    def means(kind: str, layer: int) -> dict[str, Tensor]:
        return {name: matrix for (of, i, name), matrix in sums.items() if (of, i) == (kind, layer)}

    layers = range(len(seen.layers))
    return Reading(
        attention=torch.stack([sums["attention", i, ""] for i in layers]),
        terms=[means("term", i) for i in layers],
        correlations=Correlations(**split) if (split := means("correlation", 0)) else None,
        hidden=[torch.cat(states) for states in zip(*hidden, strict=True)],
    )
