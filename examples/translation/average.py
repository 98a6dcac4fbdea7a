"""The average of a run's last checkpoints, parameter by parameter, as Vaswani et al. 2017 (section 6.1) decode with.

python examples/translation/average.py checkpoints/checkpoint_*_*.pt --last 20 --out checkpoints/average.pt
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

import fairseq_posenc

fairseq_posenc.register_plugin()
from fairseq_posenc.base.errors import InputError  # noqa: E402 - what follows needs fairseq registered
from fairseq_posenc.plugin.checkpoint.checkpoint_file import load, write  # noqa: E402


def average(paths: list[Path], out: Path) -> None:
    """Write the checkpoint that has the mean of the parameters of all, and everything else of the last, without an optimizer.

    Means are written in float32, also those of half precision, in which neighbouring checkpoints differ by a few units.

    Raises:
        InputError: a file is no checkpoint, or not of the same model as the others.
    """
    total: dict[str, Any] = {}
    content: dict[str, Any] = {}
    for path in paths:
        content = load(path)
        model = content["model"]
        if total and {name: value.shape for name, value in model.items()} != {name: value.shape for name, value in total.items()}:
            raise InputError(f"{path} has other parameters than {paths[0]}: name checkpoints of one run")
        total = {name: value.double() + total.get(name, 0) for name, value in model.items()}
    for name, value in content["model"].items():
        dtype = torch.promote_types(value.dtype, torch.float32) if value.is_floating_point() else value.dtype
        content["model"][name] = (total[name] / len(paths)).to(dtype)
    content["last_optimizer_state"] = None
    write(out, content)


def updates(path: Path) -> int:
    """Return the number of updates of a checkpoint's model."""
    history = load(path).get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--last", type=int, default=None, help="only so many of those with the most updates")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        if args.out.exists():
            raise InputError(f"--out {args.out} exists: name another file, or remove it")
        if args.last is not None and not 1 <= args.last <= len(args.checkpoints):
            raise InputError(f"--last {args.last} of {len(args.checkpoints)} checkpoints: name as many or fewer")
        chosen = args.checkpoints if args.last is None else sorted(args.checkpoints, key=updates)[-args.last :]
        average(chosen, args.out)
    except (InputError, OSError) as error:
        sys.exit(f"average.py: {error}")
    print(f"{args.out}: the average of {', '.join(path.name for path in chosen)}")


if __name__ == "__main__":
    main()
