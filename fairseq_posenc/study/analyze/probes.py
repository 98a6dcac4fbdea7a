"""Linear probes of what hidden states reveal about positions."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

MAX_BATCH_SIZE, MAX_PAIRS = 8, 8 * 128**2  # sequences of a batch, and pairs of tokens in them
PAIRS = 8  # of tokens per sequence, whose order a probe predicts
SEED = 0  # of the pairs of tokens that are drawn
FITTED = 0.75  # share of the sequences that linear probes are fitted to
PENALTIES = (1.0, 100.0, 10_000.0)


def batch_size(n: int) -> int:
    """Return how many sequences of n tokens are read at a time, since attention weights need memory in n²."""
    return max(1, min(MAX_BATCH_SIZE, MAX_PAIRS // n**2))


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
