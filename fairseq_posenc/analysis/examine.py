"""Everything that is found out about one model: numbers in JSON's types, and pictures."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..transformer import Encoder
from .embeddings import inseparable, position_vectors, positional_scores, products, rank
from .offsets import TERMS, OffsetFunction, functions_of_average_word, has_own_cls, kind_of, offset_functions
from .pictures import Picture, correlations_figure, function_figure, products_figure, rows_figure, scores_figure
from .probes import identical_words, linear_probes, swap_sensitivity
from .reading import Reading, read
from .subjects import Subject, follow
from .toeplitz import block_r_squared, of_noise, of_random_vectors, r_squared
from .trace import trace

BLOCKS = 4  # along the diagonal of P; of BERT's 512 positions, each has 128
MAX_SCORED = 512  # positions that F̂_P is computed for
WORDS = 32  # of the text, that are repeated in sentences of their own
EXACT = 1e-6  # a term whose R² is nearer to 1 than this is a function of the offset
VECTORS, SCORES, WORDS_AND_POSITIONS = "Position vectors", "What position vectors do to attention", "Words and positions"
FUNCTIONS, HEADS, PROBES = "Functions of the offset", "Kinds of heads", "Probes"


def require_positions(subject: Subject, n: int) -> None:
    """Checks that there is something to look at.

    Raises:
        InputError: the model has no positions, or parameters so large that its scores are not finite.
    """
    functions = functions_of_average_word(subject.encoder, n)
    for term, function in functions.items():
        if not function.values.isfinite().all():
            raise InputError(f"{subject.label}: its functions of the offset ({term}) are not finite: name an earlier checkpoint")
    if position_vectors(subject.encoder, n) is None and not functions:
        raise InputError(
            f"{subject.label} has no positions to look at (--positions {subject.encoder.positions.expression}): leave it out, "
            "or name another model"
        )


def examine(subject: Subject, n: int, sequences: Tensor | None, everything: bool = True) -> tuple[dict[str, Any], list[Picture]]:
    """Looks at a model.

    Args:
        subject: the model.
        n: tokens of a window, which the model takes.
        sequences: (N, n), windows of text; None where no text is read.
        everything: whether more than the functions of the offset is looked at.

    Returns:
        Numbers in JSON's types, and pictures.

    Raises:
        InputError: a checkpoint of the model's run cannot be read.
    """
    encoder = subject.encoder
    functions = functions_of_average_word(encoder, n)
    reading = None if sequences is None else read(encoder, sequences, f"{subject.label} reads")
    if reading is not None:
        own_cls = has_own_cls(trace(encoder, sequences[:1]).layers[0])  # type: ignore[index]
        functions |= offset_functions(reading.terms, own_cls)
    numbers = {
        "model": subject.label,
        "positions": encoder.positions.expression,
        "layers": encoder.config.layers,
        "heads": encoder.config.heads,
        "window": n,
        "functions": {term: {name: None if (value := getattr(function, name)) is None else value.tolist()
                             for name in ("values", "r_squared", "cls")} for term, function in functions.items()},
        "r_squared": functions["bias"].r_squared.mean().item() if "bias" in functions else None,
        "vectors": None,
        "text": None,
        "run": {},
    }  # fmt: skip
    pictures: list[Picture] = []
    if everything:
        vectors, drawn = _vectors(subject, n)
        numbers |= {"vectors": vectors, "run": along(subject, n)}
        numbers["r_squared"] = numbers["r_squared"] if vectors is None else vectors["r_squared"]
        pictures += drawn
    if reading is not None:
        text, drawn = _on_text(subject, sequences, reading)  # type: ignore[arg-type]
        numbers["text"] = text
        pictures += drawn
    pictures += [
        Picture(term, FUNCTIONS, _function_caption(subject.label, term, function), function_figure(term, function))
        for term, function in functions.items()
    ]
    return numbers, pictures


def along(subject: Subject, n: int) -> dict[str, float]:
    """Returns R² along the checkpoints of a run by their number of updates: of P, or of the biases of models without vectors."""
    found = {updates: _r_squared(encoder, n) for updates, encoder in follow(subject.run)}
    return {str(updates): value for updates, value in sorted(found.items()) if value is not None}


def _r_squared(encoder: Encoder, n: int) -> float | None:
    added = position_vectors(encoder, encoder.positions.max_length or n)
    if added is not None:
        return r_squared(products(added)).item()
    function = functions_of_average_word(encoder, n).get("bias")
    return None if function is None else function.r_squared.mean().item()


def _vectors(subject: Subject, n: int) -> tuple[dict[str, Any] | None, list[Picture]]:
    longest = subject.encoder.positions.max_length or n
    added = subject.position_vectors(longest)
    if added is None:
        return None, []
    p, scores = products(added), positional_scores(subject.encoder, min(longest, MAX_SCORED))
    assert scores is not None
    r2, random, scores_r2 = r_squared(p).item(), of_random_vectors(*added.shape), r_squared(scores)
    blocks = block_r_squared(p, max(1, longest // BLOCKS)).tolist()
    numbers = {
        "positions": len(added),
        "r_squared": r2,
        "r_squared_of_random_vectors": random,
        "r_squared_of_blocks": blocks,
        "rank": asdict(rank(added)),
        "scores_r_squared": scores_r2.tolist(),
    }
    label = subject.label
    captions = (
        f"{label}: P = E_P E_Pᵀ and the vectors' cosine similarities, position by position. Stripes along the diagonal mean that "
        f"only the offset counts. R² of P is {r2:.3f}; that of as many random vectors would be {random:.3f}. "
        f"R² of its blocks along the diagonal: {', '.join(f'{value:.3f}' for value in blocks)}.",
        f"{label}: F̂_P of each head of the first layer, less the head's mean. R² is {_span(scores_r2)}.",
        f"{label}: rows of each of those matrices, from the first quarter of the sequence to the last, centred on the diagonal. "
        "Where they coincide, the head treats every place alike.",
    )
    figures = (products_figure(added), scores_figure(scores), rows_figure(scores))
    names = (("products", VECTORS), ("scores", SCORES), ("rows", SCORES))
    return numbers, [Picture(*each, caption, figure) for each, caption, figure in zip(names, captions, figures, strict=True)]


def _on_text(subject: Subject, sequences: Tensor, reading: Reading) -> tuple[dict[str, Any], list[Picture]]:
    encoder = subject.encoder
    words = sequences[:, 1:-1].unique()
    words = words[torch.linspace(0, len(words) - 1, min(WORDS, len(words))).long()]
    ends = (int(sequences[0, 0]), int(sequences[0, -1]))
    identical = identical_words(encoder, words, ends, sequences.shape[1])
    numbers: dict[str, Any] = {
        "windows": len(sequences),
        "kinds": [[kind_of(head) for head in layer] for layer in reading.attention],
        "identical_words": {field.name: getattr(identical, field.name).tolist() for field in fields(identical)},
        "linear_probes": asdict(linear_probes([state[:, 1:-1] for state in reading.hidden])),  # symbols tell the ends
        "swap_change": {str(distance): change for distance, change in swap_sensitivity(encoder, sequences).items()},
        "correlations": None,
        "no_correlations_because": inseparable(trace(encoder, sequences[:1]).layers[0].terms),
        "bias_ranks": [asdict(rank(bias)) for bias in reading.terms[0].get("bias", ()) if r_squared(bias) < 1 - EXACT],
    }
    if (parts := reading.correlations) is None:
        return numbers, []
    matrices = {field.name.replace("_", " to "): getattr(parts, field.name) for field in fields(parts)}
    spread = {name: matrix.std().item() for name, matrix in matrices.items()}
    numbers["correlations"] = {
        name: {"standard_deviation": spread[name], "r_squared": r_squared(matrix).tolist()} for name, matrix in matrices.items()
    }
    largest = max(spread, key=lambda name: spread[name])
    caption = (
        f"{subject.label}: the scores of the first layer by what meets what, the mean over heads and {len(sequences)} windows of "
        f"the text, each less its mean; they add up to the scores. {largest.capitalize()} varies most from pair to pair "
        f"(standard deviation {spread[largest]:.2g})."
    )
    if ranks := numbers["bias_ranks"]:
        full, most = (", ".join(str(rank[name]) for rank in ranks) for name in ("full", "most"))
        caption += f" The heads' biases have rank {full}; {most} dimensions hold 99% of them."
    return numbers, [Picture("correlations", WORDS_AND_POSITIONS, caption, correlations_figure(parts))]


def _function_caption(label: str, term: str, function: OffsetFunction) -> str:
    r2 = function.r_squared
    noise = f"independent noise would have {of_noise(function.values.shape[-1] // 2 + 1):.3f}"
    of_mean = "" if bool((r2 > 1 - EXACT).all()) else f" These are means of each diagonal: R² is {_span(r2)}; {noise}."
    cls = "" if function.cls is None else " Position 0 has values of its own, which are in analysis.json."
    return f"{label}: {TERMS[term]}, as a function of the offset.{of_mean}{cls}"


def _span(values: Tensor) -> str:
    low, high = f"{values.min().item():.3f}", f"{values.max().item():.3f}"
    return low if low == high else f"from {low} to {high}"
