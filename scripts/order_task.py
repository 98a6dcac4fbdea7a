"""A task that needs word order, learned by every scheme at the papers' learning rate: name the token two places to the left.

    python scripts/order_task.py --out docs/order_task.json        # and .png; resumed where it was stopped
    python scripts/order_task.py --out few.json --schemes tisa tupe_a
    python scripts/order_task.py --out starts.json --schemes t5 't5 N(0, 0.02²)' 't5 N(0, 1)' 'tisa N(0.1, 0.01²)' --seed 2
    python scripts/write_tables.py                                 # the table of docs/order_task.json into FIDELITY.md

Sequences of random tokens after <s>; one layer of 4 heads of 64 (base's head dimension), Adam at 1e-4 with β = (0.9, 0.98)
and no warm-up, 512 tokens per update, seed 1 by default. Accuracy is that of 2,048 tokens that were not trained on, every 50
updates.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_posenc import Encoder, EncoderConfig
from fairseq_posenc.families import expressions
from fairseq_posenc.files import atomic_write

FIRST, SYMBOLS, LENGTH, BATCH, BACK = 4, 20, 32, 16, 2
EVERY, MAX_UPDATES, LEARNED, DONE = 50, 1000, 0.9, 0.99

STARTS = {
    "t5 N(0, 0.02²)": ("t5", {"t5.weight": (0.0, 0.02)}),
    "t5 N(0, 1)": ("t5", {"t5.weight": (0.0, 1.0)}),
    "tisa N(0.1, 0.01²)": ("tisa", {"tisa.amplitude": (0.1, 0.01), "tisa.sharpness": (0.1, 0.01)}),
}
"""Name -> expression, and parameters that start otherwise: mean, standard deviation."""


class Task(nn.Module):
    """An encoder of one layer, and scores of the token two places to the left."""

    def __init__(self, positions: str) -> None:
        super().__init__()
        config = EncoderConfig(
            vocab_size=FIRST + SYMBOLS,
            layers=1,
            dim=256,
            ffn_dim=512,
            heads=4,
            max_positions=512,
            positions=positions,
            dropout=0.0,
            attention_dropout=0.0,
        )
        self.encoder = Encoder(config)
        self.scores = nn.Linear(config.dim, config.vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, n) -> (B, n - 3, symbols), for every token that has one two places to the left."""
        return self.scores(self.encoder(tokens).last)[:, BACK + 1 :]


def batch(rows: int, generator: torch.Generator) -> Tensor:
    """Return (rows, n) tokens after <s>."""
    tokens = torch.randint(FIRST, FIRST + SYMBOLS, (rows, LENGTH), generator=generator)
    tokens[:, 0] = 0
    return tokens


def learn(name: str, max_updates: int = MAX_UPDATES, seed: int = 1) -> Iterator[tuple[int, float]]:
    """Yield updates and accuracy of an architecture or one of ``STARTS``, until it has learned the task, or ``max_updates``."""
    positions, start = STARTS.get(name) or (expressions()[name], {})
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, held_out = Task(positions), batch(64, generator)
    for parameter, (mean, std) in start.items():
        nn.init.normal_(model.encoder.positions.get_parameter(parameter), mean, std)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
    for update in range(1, max_updates + 1):
        tokens = batch(BATCH, generator)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens[:, 1:-BACK].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % EVERY == 0:
            with torch.no_grad():
                accuracy = (model(held_out).argmax(-1) == held_out[:, 1:-BACK]).float().mean().item()
            yield update, round(accuracy, 3)
            if accuracy >= DONE:
                return


def updates_needed(curve: list[tuple[int, float]]) -> int | None:
    """Return the first update at which the accuracy was 0.9; None if it never was."""
    return next((update for update, accuracy in curve if accuracy >= LEARNED), None)


def table(curves: dict[str, list[tuple[int, float]]]) -> str:
    """Return the architectures by the updates that they needed, with the final accuracy of the others, in Markdown."""
    rows: dict[str, list[str]] = {}
    for name in _in_order(curves):
        needed = updates_needed(curves[name])
        here = rows.setdefault(f"more than {MAX_UPDATES:,}" if needed is None else f"{needed:,}", [])
        here.append(name if needed is not None else f"{name} {curves[name][-1][1]:.2f}")
    return tabulate([(needed, ", ".join(names)) for needed, names in rows.items()], ("updates", "architectures"), "github")


def _in_order(curves: dict[str, list[tuple[int, float]]]) -> list[str]:
    """Return a sort key: the updates that were needed, or else the final accuracy."""

    def key(name: str) -> tuple[int, float, str]:
        needed = updates_needed(curves[name])
        return (MAX_UPDATES + 1, -curves[name][-1][1], name) if needed is None else (needed, 0.0, name)

    return sorted(curves, key=key)


def draw(curves: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Draw one panel per architecture, ordered by how soon it learns; the dashed line is absolute's, the thin one 0.9."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    order, columns = _in_order(curves), 8
    figure, axes = pyplot.subplots(-(-len(order) // columns), columns, figsize=(15, 7.5), sharex=True, sharey=True, squeeze=False)
    for panel in axes.flat[len(order) :]:
        panel.set_visible(False)
    for panel, name in zip(axes.flat, order, strict=False):
        panel.axhline(LEARNED, color="0.8", lw=0.8)
        for curve, style in ((curves["absolute"], dict(color="0.6", ls="--")), (curves[name], dict(color="tab:blue"))):
            panel.plot(*zip((0, 1 / SYMBOLS), *curve, strict=True), **style)
        panel.set_title(name, fontsize=8)
        panel.set_xlim(0, MAX_UPDATES)
        panel.set_xticks((0, MAX_UPDATES // 2, MAX_UPDATES))
        panel.set_ylim(0, 1.02)
    figure.supxlabel("updates")
    figure.supylabel("accuracy")
    figure.suptitle("Name the token two places to the left (dashed: absolute)")
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of the curves; the picture is a .png in the same folder")
    names = list(expressions())
    parser.add_argument(
        "--schemes",
        nargs="+",
        default=names,
        choices=[*names, *STARTS],
        metavar="NAME",
        help="architectures (default: all)",
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    record = args.out.with_suffix(".json")
    curves = json.loads(record.read_text()) if record.exists() else {}
    for name in ["absolute", *args.schemes]:
        if name not in curves:
            curves[name] = list(learn(name, seed=args.seed))
            print(
                f"{name}: 0.9 after {updates_needed(curves[name])}, {curves[name][-1][1]} after {curves[name][-1][0]}", flush=True
            )
            with atomic_write(record) as stream:
                json.dump(curves, stream)
    draw(curves, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
