"""Results of runs as ``fairseq-posenc compare`` has them, with curves like those of real ones, without training."""

import numpy as np

from fairseq_posenc.study.compare.plan import Plan

UPDATES, UNIGRAM = 4000, 8.108
FINAL = {"tisa": 4.9, "rope": 4.905, "m4m": 5.0, "absolute": 5.4, "none": 7.9}
PLATEAU = {"absolute": 0.6, "none": 1.0}
"""The share of the updates before which a scheme learns nothing but frequencies."""
COST = {"tisa": 1.11, "rope": 1.05, "m4m": 1.67, "none": 1.0}
VERSIONS = {"fairseq_posenc": "0.1.0", "fairseq": "0.12.2", "torch": "2.13.0", "numpy": "2.4", "python": "3.11.7"}


def make_plan(schemes=FINAL, **values):
    return Plan.model_validate(
        {
            "schemes": {name: {} for name in schemes},
            "budget": {"updates": UPDATES},
            "learning_rates": [1e-3, 2e-3],
            "reference": "absolute",
            "tokens_per_sample": 64,
            "batch_size": 64,
            **values,
        }
    )


def permuted(scheme, loss):
    """Without word order, a model only knows which words occur together."""
    return loss if scheme == "none" else max(8.1, loss)


def curve(scheme, final):
    updates = np.linspace(0, UPDATES, 26)[1:]
    progress = np.clip((updates / UPDATES - PLATEAU.get(scheme, 0.05)) / (1 - PLATEAU.get(scheme, 0.05) + 1e-9), 0, 1)
    losses = 8.1 - (8.1 - final) * (1 - np.exp(-3 * progress)) / (1 - np.exp(-3))
    losses[-1] = final
    points = zip(map(int, updates), map(float, losses), strict=True)
    return [{"updates": number, "loss": loss, "permuted": permuted(scheme, loss)} for number, loss in points]


def make_run(scheme, lr=2e-3, seed=1, loss=None, status="finished", **values):
    """A result; the loss is the scheme's level and what chance adds, which the scheme, the learning rate and the seed decide."""
    result = {"scheme": scheme, "lr": lr, "seed": seed, "status": status, "seconds": 300.0, "versions": VERSIONS}
    result["configuration"] = {"flags": ["--positions", scheme], "data": {"train.bin": "ab" * 32}}
    if status != "finished":
        return result | {"reason": "gradients are Nan/Inf; see train.log"}
    rng = np.random.default_rng([*map(ord, scheme), seed, round(lr * 1e6), 1])
    loss = FINAL.get(scheme, 5.1) + (0.1 if lr == 1e-3 else 0) + rng.normal(0, 0.01) if loss is None else loss
    rise = {} if scheme != "absolute" else {str(k * 1000): 0.5 + 0.1 * k + rng.normal(0, 0.01) for k in (1, 2, 3, 4)}
    result |= {
        "selection": loss + 0.02,
        "loss": loss,
        "permuted": permuted(scheme, loss),
        "unigram": UNIGRAM,
        "by_position": [loss + 0.5 / (part + 1) for part in range(8)],
        "by_length": {} if scheme in ("absolute", "m4m") else {"128": loss - 0.05, "256": loss - 0.02},
        "curve": curve(scheme, loss),
        "device": "a processor",
        "parameters": {"absolute": 8448, "tisa": 120}.get(scheme, 0),
        "r_squared": rise,
        "r_squared_of_random_vectors": 0.8 if scheme == "absolute" else None,
        "command": f"fairseq-train data-bin --positions {scheme} --lr {lr} --seed {seed}",
    }
    return result | values


def make_runs(schemes=FINAL, seeds=3):
    """Two learning rates, the better one with further seeds; a scheme that diverges, and one that does not learn word order."""
    runs = [make_run(scheme, 1e-3, seed) for scheme in schemes for seed in (1, 2)]
    runs += [make_run(scheme, seed=seed + 1) for scheme in schemes for seed in range(seeds)]
    runs += [make_run("raffel", lr, seed, status="diverged") for lr in (1e-3, 2e-3) for seed in (1, 2)]
    return runs + [make_run("sentence_absolute", seed=seed, loss=8.05 + seed / 1000) for seed in range(1, seeds + 1)]


def make_costs():
    return [
        {"cost": scheme, "status": "finished", "ratio": {"median": ratio, "low": ratio - 0.02, "high": ratio + 0.02}}
        for scheme, ratio in COST.items()
    ]
