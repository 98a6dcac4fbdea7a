"""fairseq-train with the initial values of the positions multiplied by a number, for runs whose row has ``initial_scale``.

    python -m fairseq_posenc.study.compare.scaled 0.1 DATA …

The layer norms of positions keep theirs. The weights of a checkpoint replace all of them.
"""

import sys
from typing import Any

import torch
from fairseq_cli import train

from ...plugin.models.building import PosencModel


def main() -> None:
    """Run the program."""
    scale, build = float(sys.argv.pop(1)), PosencModel.build_model.__func__  # type: ignore[attr-defined]

    def build_scaled(cls: type[PosencModel], cfg: Any, task: Any) -> PosencModel:
        model = build(cls, cfg, task)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.mul_(scale if ".positions." in name and "layer_norm" not in name else 1.0)
        return model

    PosencModel.build_model = classmethod(build_scaled)  # type: ignore[assignment,method-assign]
    train.cli_main()


if __name__ == "__main__":
    main()
