"""Probes of what attention and hidden states reveal about positions, on words of a real text."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...core.transformer import Encoder
from .toeplitz import r_squared
from .trace import trace

MAX_BATCH_SIZE, MAX_PAIRS = 8, 8 * 128**2  # sequences of a batch, and pairs of tokens in them
DISTANCES = (1, 4, 16)  # of swapped words, in tokens
PAIRS = 8  # of tokens per sequence, whose order a probe predicts
SEED = 0  # of the pairs of tokens that are drawn
FITTED = 0.75  # share of the sequences that linear probes are fitted to
PENALTIES = (1.0, 100.0, 10_000.0)


def batch_size(n: int) -> int:
    """Return how many sequences of n tokens are read at a time, since attention weights need memory in n²."""
    return max(1, min(MAX_BATCH_SIZE, MAX_PAIRS // n**2))


def identical_words(encoder: Encoder, words: Tensor, ends: tuple[int, int], n: int) -> dict[str, Tensor]:
    """Return measures of attention in sentences that repeat one word, whose tokens only positions distinguish (Wang et al. 2021).

    Attention is averaged over the words. The rows and columns of the ends are left out, and the other rows normalised to 1.

    Args:
        encoder: for evaluation.
        words: (N,), each of which makes a sentence of n tokens.
        ends: the first and the last symbol of each sentence.
        n: tokens.

    Returns:
        (L, H) by name: :func:`locality`, :func:`symmetry`, and ``invariance``, the translation invariance: R² of the nearest
        Toeplitz matrix (Wennberg & Henter 2021).
    """
    sequences = words[:, None].repeat(1, n)
    sequences[:, 0], sequences[:, -1] = ends
    p = torch.zeros(())
    for batch in sequences.split(batch_size(n)):
        attentions = trace(encoder, batch, output_attentions=True).attentions
        p = p + torch.stack([weights[..., 1:-1, 1:-1].sum(0) for weights in attentions])
    p = p / p.sum(-1, keepdim=True)  # (L, H, n - 2, n - 2)
    return {"locality": locality(p), "symmetry": symmetry(p), "invariance": torch.stack([r_squared(layer) for layer in p])}


def locality(p: Tensor) -> Tensor:
    """Return ``mean_i Σ_j p_ij / 2^|j-i|``, 1 where words attend only to themselves (Chen et al. 2023): (…, n, n) -> (…)."""
    i = torch.arange(p.shape[-1], device=p.device)
    return (p * 0.5 ** (i - i[:, None]).abs()).sum(-1).mean(-1)


def symmetry(p: Tensor) -> Tensor:
    """Return ``1 - Σ |p_{i,i-r} - p_{i,i+r}| / Σ (p_{i,i-r} + p_{i,i+r})``: (…, n, n) -> (…).

    The sums are over all i and r > 0 for which both words are in the sentence; it is 1 where both sides get the same.
    """
    n = p.shape[-1]
    i, r = torch.arange(n, device=p.device)[:, None], torch.arange(1, n, device=p.device)
    both = (i - r >= 0) & (i + r < n)  # (n, n - 1)
    left, right = (p.gather(-1, (i + side * r).clamp(0, n - 1).expand(*p.shape[:-1], -1)) * both for side in (-1, 1))
    return 1 - (left - right).abs().sum((-2, -1)) / (left + right).sum((-2, -1))


def linear_probes(hidden: Sequence[Tensor]) -> dict[str, list[float]]:
    """Fit and test ridge regressions of the position, and ridge classifiers of which of two tokens comes first.

    Args:
        hidden: (N, n, D) of each state, for N sequences. Three in four are fitted to, with cross-validated :data:`PENALTIES`.

    Returns:
        On the other sequences, one number per state: ``position``, R² of a token's position; ``error``, the mean distance of the
        predicted from the actual position in tokens; ``order``, the share of pairs whose order is predicted; 0.5 is chance.
    """
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    sequences, n, _ = hidden[0].shape
    fitted = max(1, min(sequences - 1, int(FITTED * sequences)))
    rng = np.random.default_rng(SEED)
    pairs = np.stack([rng.permutation(n)[:2] for _ in range(sequences * PAIRS)]).reshape(sequences, PAIRS, 2)
    pairs = np.concatenate([pairs, pairs[..., ::-1]], axis=1)  # in either order, so that neither is the more frequent
    first = pairs[..., 0] < pairs[..., 1]
    positions = np.broadcast_to(np.arange(n), (sequences, n))
    results: dict[str, list[float]] = {"position": [], "error": [], "order": []}
    for state in (state.float().cpu().numpy() for state in hidden):
        joined = np.concatenate([state[np.arange(sequences)[:, None], pairs[..., side]] for side in (0, 1)], axis=-1)
        regression = make_pipeline(StandardScaler(), RidgeCV(PENALTIES)).fit(*_flat(state[:fitted], positions[:fitted]))
        held_out = _flat(state[fitted:], positions[fitted:])
        results["position"].append(float(regression.score(*held_out)))
        results["error"].append(float(np.abs(regression.predict(held_out[0]) - held_out[1]).mean()))
        classifier = make_pipeline(StandardScaler(), RidgeClassifierCV(PENALTIES)).fit(*_flat(joined[:fitted], first[:fitted]))
        results["order"].append(float(classifier.score(*_flat(joined[fitted:], first[fitted:]))))
    return results


def _flat(features: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return features.reshape(-1, features.shape[-1]), targets.reshape(-1)


@torch.no_grad()
def swap_sensitivity(encoder: Encoder, sequences: Tensor) -> dict[int, float]:
    """Return how much the last hidden states change when two words are exchanged: distance in tokens -> relative change.

    ``mean ‖h'_t - h_t‖ / ‖h_t‖`` over the tokens, each compared with itself at its new position: 0 for a model without order. One
    pair per sequence is drawn at random, without the first and the last symbol. Larger distances are left out.
    """
    generator = torch.Generator().manual_seed(SEED)
    count, n = sequences.shape
    orders = {distance: torch.arange(n).repeat(count, 1) for distance in DISTANCES if distance < n - 2}
    for distance, order in orders.items():
        i = torch.randint(1, n - 1 - distance, (count, 1), generator=generator)
        order.scatter_(1, torch.cat([i, i + distance], dim=1), torch.cat([i + distance, i], dim=1))
    changes = dict.fromkeys(orders, 0.0)
    for rows in torch.arange(count).split(batch_size(n)):
        tokens = sequences[rows]
        before = encoder(tokens).last_hidden_state
        for distance, order in orders.items():
            swap = order[rows].to(tokens.device)
            after = encoder(tokens.gather(1, swap)).last_hidden_state
            after = after.gather(1, swap[..., None].expand_as(after))  # a swap is its own reverse
            changes[distance] += float(((after - before).norm(dim=-1) / before.norm(dim=-1)).mean(1).sum()) / count
    return changes
