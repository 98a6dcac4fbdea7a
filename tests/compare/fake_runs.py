"""Results of runs as ``fairseq-posenc compare`` has them, with curves like those of real ones, without training."""

import numpy as np

from fairseq_posenc.base import ownership
from fairseq_posenc.study.compare import cells
from fairseq_posenc.study.compare.plan import Plan
from fairseq_posenc.study.engine.grid import Cell

UPDATES, UNIGRAM, ITEMS = 4000, 8.108, 40
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


def curve(scheme, final):
    updates = np.linspace(0, UPDATES, 26)[1:]
    progress = np.clip((updates / UPDATES - PLATEAU.get(scheme, 0.05)) / (1 - PLATEAU.get(scheme, 0.05) + 1e-9), 0, 1)
    losses = 8.1 - (8.1 - final) * (1 - np.exp(-3 * progress)) / (1 - np.exp(-3))
    losses[-1] = final
    return [{"updates": int(number), "loss": float(loss)} for number, loss in zip(updates, losses, strict=True)]


def make_run(scheme, lr=2e-3, seed=1, loss=None, status="finished", **values):
    """A result; the loss is the scheme's level and what chance adds, which the scheme, the learning rate and the seed decide."""
    result = {"scheme": scheme, "lr": lr, "seed": seed, "status": status, "seconds": 300.0, "versions": VERSIONS}
    result["configuration"] = {"flags": ["--positions", scheme], "data": {"train.bin": "ab" * 32}}
    if status != "finished":
        return result | {"reason": "gradients are Nan/Inf; see train.log"}
    rng = np.random.default_rng([*map(ord, scheme), seed, round(lr * 1e6)])
    loss = FINAL.get(scheme, 5.1) + (0.1 if lr == 1e-3 else 0) + rng.normal(0, 0.01) if loss is None else loss
    rise = {} if scheme != "absolute" else {str(k * 1000): 0.5 + 0.1 * k + rng.normal(0, 0.01) for k in (1, 2, 3, 4)}
    result |= {
        "selection": loss + 0.02,
        "loss": loss,
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
    """Two learning rates with seed 1, the better one with further seeds; a scheme that diverges, and one that does not learn."""
    runs = [make_run(scheme, 1e-3) for scheme in schemes]
    runs += [make_run(scheme, seed=seed + 1) for scheme in schemes for seed in range(seeds)]
    runs += [make_run("raffel", lr, status="diverged") for lr in (1e-3, 2e-3)]
    return runs + [make_run("sentence_absolute", seed=seed, loss=8.05 + seed / 100) for seed in (1, 2, 3)]


def make_costs():
    return [{"cost": scheme, "status": "finished", "ratio": {"median": ratio}} for scheme, ratio in COST.items()]


def make_folder(runs, out):
    """The folder of a comparison with the losses of items that belong to the runs."""
    ownership.claim(out, "compare")
    counts = np.full(ITEMS, 10, np.int32)
    noise = np.sin(np.arange(ITEMS)) * 5
    for run in (run for run in runs if run["status"] == "finished"):
        folder = Cell({name: run[name] for name in ("scheme", "lr", "seed")}, {}).folder(out)
        folder.mkdir(parents=True)
        np.savez(folder / cells.ITEMS, sums=counts * run["loss"] + noise - noise.mean(), counts=counts)
