"""The runs of a comparison: one ``fairseq-train`` each, and how its model is measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..analysis import losses
from ..files import atomic_write
from ..models.checkpoint import Checkpoint
from ..runs.grid import LOG, Cell, Diverged, Progress
from ..runs.record import digests
from .plan import Plan

SCORES = "losses.npz"
CHECKPOINTS = ("checkpoint_last.pt", "checkpoint_best.pt", "crash.pt")
POINTS = 40
"""Validations during training, for the curve."""


def cell(plan: Plan, scheme: str, lr: float, seed: int, out: Path) -> Cell:
    """One run."""
    key = {"scheme": scheme, "lr": lr, "seed": seed}
    flags = [*plan.model_flags(scheme), *plan.train_flags()]
    data = digests({name: plan.data / name for name in ("dict.txt", "train.bin", "valid.bin")})
    without_command = Cell(key, {"flags": flags, "data": data})
    save_dir = without_command.folder(out)
    every = str(max(1, (plan.updates or 1000) // POINTS))
    command = [
        *(sys.executable, "-m", "fairseq_cli.train", str(plan.data), *flags, "--lr", str(lr), "--seed", str(seed)),
        *("--save-dir", str(save_dir), "--no-epoch-checkpoints", "--save-interval-updates", str(10 * int(every))),
        *("--keep-interval-updates", "1", "--validate-interval", "1000000", "--validate-interval-updates", every),
        *("--max-valid-steps", "10", "--log-format", "json", "--log-interval", every),
        *(() if torch.cuda.is_available() else ("--cpu",)),
    ]
    return Cell(key, without_command.configuration, command, needs=(SCORES,), temporary=CHECKPOINTS)


def measure(plan: Plan, tokens: int, folder: Path, progress: Progress) -> dict[str, Any]:
    """Measure the model that a run has left in its folder, on the two halves of the validation text.

    Returns:
        ``selection`` and ``loss``, the bits per predicted token of the first and the second half; ``curve``, of training; and
        ``parameters``, of the positions.

    Raises:
        Diverged: a loss is not finite.
    """
    progress("measuring")
    checkpoint = Checkpoint(folder / "checkpoint_last.pt", plan.data)
    text = losses.read(checkpoint, plan.data, tokens, plan.tokens_per_sample)
    sums, counts = losses.by_sequence(checkpoint.build_model(), text, plan.tokens_per_sample)
    if not np.isfinite(sums).all():
        raise Diverged("the losses are not finite")
    with atomic_write(folder / SCORES, "wb") as stream:
        np.savez(stream, sums=sums.astype(np.float32), counts=counts.astype(np.int32))
    half = len(sums) // 2
    return {
        "selection": float(sums[:half].sum() / counts[:half].sum()),
        "loss": float(sums[half:].sum() / counts[half:].sum()),
        "parameters": sum(tensor.numel() for name, tensor in checkpoint.state.items() if ".positions." in name),
        "curve": curve(folder / LOG),
    }


def curve(log: Path) -> list[dict[str, float]]:
    """The validations in fairseq-train's log: ``updates``, ``loss`` in bits, and the ``seconds`` of training until then.

    A run that was killed has logged some updates twice; the last time counts.
    """
    points: dict[int, dict[str, float]] = {}
    seconds = 0.0
    for line in log.read_text("utf-8", "replace").splitlines():
        _, brace, values = line.partition("{")
        try:
            entry = json.loads(brace + values)
        except ValueError:
            continue
        seconds = float(entry.get("train_wall", entry.get("wall", seconds)))
        if "valid_loss" in entry:
            updates = int(entry["valid_num_updates"])
            points[updates] = {"updates": updates, "loss": float(entry["valid_loss"]), "seconds": seconds}
    return [points[updates] for updates in sorted(points)]


def losses_of(results: Sequence[dict[str, Any]], out: Path) -> tuple[np.ndarray, np.ndarray]:
    """The second half's sums of losses, (runs, items), and numbers of predictions, (items,)."""
    files = [np.load(Cell({name: run[name] for name in ("scheme", "lr", "seed")}, {}).folder(out) / SCORES) for run in results]
    half = len(files[0]["sums"]) // 2
    return np.stack([file["sums"][half:] for file in files]), files[0]["counts"][half:]
