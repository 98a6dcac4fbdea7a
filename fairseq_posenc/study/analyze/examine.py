"""The analysis of one model: numbers in JSON's types, and figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ...base.errors import InputError
from ...base.record import Recorded
from ...core.transformer import Encoder
from ..engine.report import Figure
from . import offsets
from .embeddings import correlations, inseparable, position_vectors, positional_scores, rank, vector_count
from .models import AnalyzedModel
from .offsets import TERMS, OffsetFunction
from .pictures import correlations_figure, function_figure, products_figure, rows_figure, scores_figure
from .probes import batch_size, linear_probes
from .toeplitz import block_r_squared, of_noise, of_random_vectors, r_squared
from .trace import trace

BLOCKS = 4  # along the diagonal of P; of BERT's 512 positions, each has 128
MAX_SCORED = 512  # that F̂_P is computed for
EXACT = 1e-6  # a term whose R² is nearer to 1 than this is a function of the offset
VECTORS, SCORES, WORDS_AND_POSITIONS = "Position vectors", "What position vectors do to attention", "Words and positions"
FUNCTIONS, HEADS, PROBES = "Functions of the offset", "Kinds of heads", "Probes"


class Examined(Recorded):
    """What the report reads of a model's result, besides its numbers: names and captions of the figures by section."""

    figures: dict[str, list[list[str]]]


def require_positions(model: AnalyzedModel, n: int) -> None:
    """Check that the model has positions to analyze.

    Raises:
        InputError: it has none, or parameters so large that their functions are not finite.
    """
    functions = offsets.functions_of_average_word(model.encoder, n)
    for term, function in functions.items():
        if function.values.isinf().any() or function.values.isnan().all():
            raise InputError(f"{model.label}: its functions of the offset ({term}) are not finite: name an earlier checkpoint")
    if position_vectors(model.encoder, n) is None and not functions:
        raise InputError(
            f"{model.label} has no positions to look at (--positions {model.encoder.positions.expression}): leave it out, "
            "or name another model"
        )


def examine(model: AnalyzedModel, n: int, sequences: Tensor | None) -> tuple[dict[str, Any], dict[str, list[Figure]]]:
    """Return the numbers of a model in JSON's types, and its figures by the section of the report.

    Args:
        n: tokens of a window, which the model takes.
        sequences: (N, n), windows of text; None if no text is read.

    Raises:
        InputError: a checkpoint of the model's run cannot be read.
    """
    encoder = model.encoder
    vectors = model.position_vectors(vector_count(encoder, n))
    functions = offsets.functions_of_average_word(encoder, n)
    numbers: dict[str, Any] = {
        "model": model.label,
        "positions": encoder.positions.expression,
        "layers": encoder.config.layers,
        "heads": encoder.config.heads,
        "window": n,
        "vectors": None,
        "text": None,
        "run": r_squared_of_run(model.run, n),
        "r_squared": _r_squared(vectors, functions),
    }
    figures: dict[str, list[Figure]] = {}
    if vectors is not None:
        numbers["vectors"], figures = _of_vectors(model, vectors)
    if sequences is not None:
        means, hidden = _read(encoder, sequences, f"{model.label} reads")
        own_cls = offsets.has_own_cls(trace(encoder, sequences[:1]).layers)
        functions |= offsets.offset_functions({term: matrix for term, matrix in means.items() if term in TERMS}, own_cls)
        numbers["text"], of_text = _on_text(model, sequences, means, hidden)
        figures |= of_text
    figures[FUNCTIONS] = [
        Figure(term, _function_caption(model.label, term, function), function_figure(term, function))
        for term, function in functions.items()
    ]
    numbers["functions"] = {
        term: {key: None if x is None else np.where(x.isnan(), np.array(None), x).tolist() for key, x in vars(function).items()}
        for term, function in functions.items()
    }
    return numbers, figures


def r_squared_of_run(run: Sequence[Path], n: int) -> dict[str, float]:
    """Return R² along a run's checkpoints by their number of updates: of P, or of the biases of models without vectors."""
    values: dict[int, float | None] = {}
    for path in run:
        from ...plugin.checkpoint.checkpoint import Checkpoint

        checkpoint = Checkpoint(path)
        encoder = checkpoint.encoder()
        vectors = position_vectors(encoder, vector_count(encoder, n))
        functions = {} if vectors is not None else offsets.functions_of_average_word(encoder, n)
        values[checkpoint.updates or 0] = _r_squared(vectors, functions)
    return {str(updates): value for updates, value in sorted(values.items()) if value is not None}


def _r_squared(vectors: Tensor | None, functions: dict[str, OffsetFunction]) -> float | None:
    """Return R² of P, or, without position vectors, the mean over the layers and heads that have additive biases."""
    if vectors is not None:
        return r_squared(vectors @ vectors.mT).item()
    return functions["bias"].r_squared.nanmean().item() if "bias" in functions else None


@torch.no_grad()
def _read(encoder: Encoder, sequences: Tensor, label: str) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Return means over (N, n) sequences by name, and the hidden states, (N, n, D) each.

    The means are those of ``attention``, (L, H, n, n), of :func:`.offsets.term_matrices`, and, where scores are a sum of them, of
    :func:`.embeddings.correlations`, (1 or H, n, n) each. ``label`` is that of the progress bar.
    """
    means: dict[str, Tensor] = {}
    hidden = []
    for batch in tqdm(sequences.split(batch_size(sequences.shape[1])), desc=label, unit="batch", leave=False):
        seen = trace(encoder, batch, output_attentions=True)
        hidden.append(seen.hidden)
        matrices = {"attention": torch.stack([p.mean(0) for p in seen.attentions]), **offsets.term_matrices(seen.layers)}
        if inseparable(encoder) is None:
            matrices |= {name: matrix.mean(0) for name, matrix in correlations(encoder, batch).items()}
        for name, matrix in matrices.items():
            means[name] = means.get(name, 0) + len(batch) / len(sequences) * matrix
    return means, [torch.cat(states) for states in zip(*hidden, strict=True)]


def _of_vectors(model: AnalyzedModel, vectors: Tensor) -> tuple[dict[str, Any], dict[str, list[Figure]]]:
    p = vectors @ vectors.mT
    r2, random = r_squared(p).item(), of_random_vectors(*vectors.shape)
    blocks = block_r_squared(p, max(1, len(vectors) // BLOCKS)).tolist()
    numbers: dict[str, Any] = {
        "positions": len(vectors),
        "r_squared": r2,
        "r_squared_of_random_vectors": random,
        "r_squared_of_blocks": blocks,
        "rank": rank(vectors),
        "scores_r_squared": None,
    }
    common = "" if model.common is None else " The vector of token type 0, which is added to every word, is left out."
    of_products = (
        f"{model.label}: P = E_P E_Pᵀ and the vectors' cosine similarities, position by position. Stripes along the diagonal "
        f"mean that only the offset counts. R² of P is {r2:.3f}; that of as many random vectors would be {random:.3f}. "
        f"R² of its blocks along the diagonal: {', '.join(f'{value:.3f}' for value in blocks)}.{common}"
    )
    figures = {VECTORS: [Figure("products", of_products, products_figure(vectors))]}
    if (scores := positional_scores(model.encoder, min(len(vectors), MAX_SCORED))) is not None:
        scores_r2 = r_squared(scores)
        numbers["scores_r_squared"] = scores_r2.tolist()
        of_scores = f"{model.label}: F̂_P of each head of the first layer, less the head's mean. R² is {_span(scores_r2)}."
        of_rows = (
            f"{model.label}: rows of each of those matrices, from the first quarter of the sequence to the last, centred on "
            "the diagonal. Where they coincide, the head treats all positions alike."
        )
        figures[SCORES] = [Figure("scores", of_scores, scores_figure(scores)), Figure("rows", of_rows, rows_figure(scores))]
    return numbers, figures


def _on_text(
    model: AnalyzedModel, sequences: Tensor, means: dict[str, Tensor], hidden: list[Tensor]
) -> tuple[dict[str, Any], dict[str, list[Figure]]]:
    biases = [bias for bias in means["bias"][0] if not bias.isnan().any()] if "bias" in means else []  # without a window
    ranks = [rank(bias) for bias in biases if r_squared(bias) < 1 - EXACT]
    numbers: dict[str, Any] = {
        "windows": len(sequences),
        "kinds": [[offsets.kind_of(head) for head in layer] for layer in means["attention"]],
        "linear_probes": linear_probes([state[:, 1:-1] for state in hidden]),  # the symbols would reveal the ends
        "correlations": None,
        "no_correlations_because": inseparable(model.encoder),
        "bias_ranks": ranks,
    }
    parts = {name: matrix for name, matrix in means.items() if name not in ("attention", *TERMS)}
    if not parts:
        return numbers, {}
    spread = {name: matrix.std().item() for name, matrix in parts.items()}
    numbers["correlations"] = {
        name: {"standard_deviation": spread[name], "r_squared": r_squared(matrix).tolist()} for name, matrix in parts.items()
    }
    largest = max(spread, key=lambda name: spread[name])
    caption = (
        f"{model.label}: the four parts of the first layer's scores, the mean over heads and {len(sequences)} windows of the "
        f"text, each less its mean; they add up to the scores. {largest.capitalize()} varies most from pair to pair (standard "
        f"deviation {spread[largest]:.2g})."
    )
    if ranks:
        full, effective = (", ".join(str(rank[name]) for rank in ranks) for name in ("full", "effective"))
        caption += f" The heads' biases have rank {full}; {effective} dimensions hold 99% of them."
    return numbers, {WORDS_AND_POSITIONS: [Figure("correlations", caption, correlations_figure(parts))]}


def _function_caption(label: str, term: str, function: OffsetFunction) -> str:
    present = ~function.r_squared.isnan().all(-1)
    r2 = function.r_squared[present]
    noise = f"independent noise would have {of_noise(function.values.shape[-1] // 2 + 1):.3f}"
    of_mean = "" if bool((r2 > 1 - EXACT).all()) else f" These are means of each diagonal: R² is {_span(r2)}; {noise}."
    cls = "" if function.cls is None else " Position 0 has values of its own, which are in results.json."
    window = " Offsets beyond a layer's window are left out." if function.values[present].isnan().any() else ""
    without = [str(index + 1) for index in (~present).nonzero()[:, 0].tolist()]
    absent = f" These layers have no such term: {', '.join(without)}." if without else ""
    return f"{label}: {TERMS[term]}, as a function of the offset.{of_mean}{cls}{window}{absent}"


def _span(values: Tensor) -> str:
    low, high = f"{values.min().item():.3f}", f"{values.max().item():.3f}"
    return low if low == high else f"from {low} to {high}"
