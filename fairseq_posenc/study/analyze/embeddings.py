"""Position vectors, and their effect on the scores of the first layer."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.attention import Mask
from ...core.attention.relative import times_keys, times_queries
from ...core.attention.transform import transform
from ...core.terms import Shift
from ...core.transformer import Encoder
from .trace import Layer, trace


def repeated_symbol(encoder: Encoder, n: int) -> Tensor:
    """Return (1, n) tokens that repeat one symbol, which is neither padding nor the end of a sentence."""
    special = (encoder.config.padding_idx, encoder.config.separator_idx)
    symbol = next(number for number in range(encoder.config.vocab_size) if number not in special)
    return torch.full((1, n), symbol, device=encoder.embed_tokens.weight.device)


def vector_count(encoder: Encoder, n: int) -> int:
    """Return the number of position vectors to examine: those of a table that can be used in one sequence, or else n."""
    return n if encoder.positions.max_length is None else encoder.max_length or n


def position_vectors(encoder: Encoder, n: int) -> Tensor | None:
    """Return E_P, (n, E), which is added to the word embeddings of a sequence of one sentence; None if nothing is added."""
    added = _added(encoder, repeated_symbol(encoder, n))
    return None if added is None else added[0]


def rank(matrix: Tensor) -> dict[str, int]:
    """Return the rank of an (n, m) matrix and its effective rank.

    ``full`` counts the singular values above float32's rounding, ``effective`` the largest with 99% of the sum of squares.
    """
    values = torch.linalg.svdvals(matrix.double())
    rounding = values.max() * max(matrix.shape) * torch.finfo(torch.float32).eps
    shares = values.square().cumsum(0) / values.square().sum()
    return {"full": int((values > rounding).sum()), "effective": int((shares < 0.99).sum()) + 1}


@torch.no_grad()
def average_word(encoder: Encoder) -> Tensor:
    """Return (E,), the mean of all word embeddings except that of padding."""
    weight = encoder.embed_tokens.weight
    return (weight.sum(0) - weight[encoder.config.padding_idx]) / (len(weight) - 1)


@torch.no_grad()
def positional_scores(encoder: Encoder, n: int) -> Tensor | None:
    """Return F̂_P, (H, n, n), which position vectors add to the first layer's scores (Wennberg & Henter 2021, eq. 9-12).

    ``F_P = E_W A E_Pᵀ + E_P A E_Wᵀ + E_P A E_Pᵀ``, with ``A = W_Q W_Kᵀ / sqrt(d)``, depends on the words. In F̂_P the average word
    embedding replaces each of them, and the words' own term is one number for all pairs, which the softmax ignores. So F̂_P is
    ``s q·k`` in a sequence of average words, through everything between the embeddings and the scores (LayerNorm, ALBERT's
    projection, the biases of q and k, the terms' shifts), less that of the same words with the average of all position vectors.

    It is None if nothing is added to the word embeddings, and where the scores are :func:`inseparable`.
    """
    if inseparable(encoder) is not None or position_vectors(encoder, n) is None:
        return None
    layer, q, k, q_w, k_w = _first_layer(encoder, average_word(encoder).expand(1, n, -1), repeated_symbol(encoder, n))
    return layer.scale * (q @ k.mT - q_w @ k_w.mT)[0]


def inseparable(encoder: Encoder) -> str | None:
    """Return why the first layer's scores are not a sum of correlations of words and positions, or None if they are."""
    positions = encoder.positions.alternatives[0]
    terms = positions.probes()[0]
    if terms.combine == "multiply" or terms.gains:
        return "words and positions are multiplied with each other"
    if not all(isinstance(change, Shift) for change in terms.transforms):
        return "rotations, mixtures of keys or factors of queries act on every product of words"
    if not terms.content:
        return "they have no products of queries and keys"
    return "the biases depend on the words" if any(scheme.reads_input for scheme in positions.schemes) else None


@torch.no_grad()
def correlations(encoder: Encoder, tokens: Tensor) -> dict[str, Tensor]:
    """Return the correlations of the first layer (Ke et al. 2021, section 3.1), if its scores are not :func:`inseparable`.

    The query of a word is ``q = q_w + q_p``: q_w is that of the word with the average of all position vectors, FLOATER's too, and
    q_p the rest, with what the terms add to q; likewise for keys. Word to word is ``s q_w·k_w``, word to position
    ``s (q_w·k_p + q·A_r)``, position to word ``s (q_p·k_w + k·B_r)``, and position to position ``s q_p·k_p + b``: in sum, scores.

    Args:
        encoder: for evaluation.
        tokens: (B, n), without padding.

    Returns:
        (B or 1, H or 1, n, n) by the name of the correlation.
    """
    layer, q, k, q_w, k_w = _first_layer(encoder, encoder.embed_tokens(tokens), tokens)
    terms, s, q_p, k_p = layer.terms, layer.scale, q - q_w, k - k_w
    return {
        "word to word": s * (q_w @ k_w.mT),
        "word to position": s * sum((times_queries(q, table) for table in terms.query_tables), q_w @ k_p.mT),
        "position to word": s * sum((times_keys(k, table) for table in terms.key_tables), q_p @ k_w.mT),
        "position to position": s * (q_p @ k_p.mT) + (q.new_zeros(1, 1, 1, 1) if layer.bias is None else layer.bias),
    }


def _first_layer(encoder: Encoder, words: Tensor, tokens: Tensor) -> tuple[Layer, Tensor, Tensor, Tensor, Tensor]:
    """Return the first layer, its q and k after the terms' transforms, and q_w and k_w of :func:`correlations`.

    ``words`` are (B, n, E) word embeddings; schemes may depend on ``tokens`` (B, n), too.
    """
    layer, added = trace(encoder, tokens, words).layers[0], _added(encoder, tokens)
    averaged = layer if added is None else trace(encoder, tokens, words + added.mean(1, keepdim=True) - added).layers[0]
    q_w, k_w, attention = averaged.queries, averaged.keys, encoder.layers_in_order[0].self_attn
    for addition in layer.terms.inputs:  # to the input of projections, which are linear
        change = addition.mean(1, keepdim=True) - addition
        weights = attention.q_proj.weight, attention.k_proj.weight
        by_head = (F.linear(change, weight).unflatten(-1, (attention.heads, -1)).transpose(1, 2) for weight in weights)
        q_w, k_w = (x + of_change for x, of_change in zip((q_w, k_w), by_head, strict=True))
    return layer, *transform(layer.queries, layer.keys, layer.terms), q_w, k_w


@torch.no_grad()
def _added(encoder: Encoder, tokens: Tensor) -> Tensor | None:
    """Return (B or 1, n, E), which is added to the embeddings of (B, n) tokens without padding; None if nothing is added."""
    added = encoder.positions.embed(encoder.windows(encoder.embed_tokens(tokens), Mask(), None)[0], tokens)
    return None if added is None else added.to(encoder.embed_tokens.weight.dtype)
