"""fairseq-train for runs whose initial positions are scaled, or which end once they use word order.

    python -m fairseq_posenc.study.compare.training INITIAL_SCALE VALIDATIONS DATA …

The initial values of the positions, but not of their layer norms, are multiplied by the first number; the weights of a
checkpoint replace all of them. If the second is above 0, training ends after so many validations in a row that used word order.
"""

import sys
from typing import Any

import torch
from fairseq_cli import train

from ...plugin.models.building import PosencModel
from .starts import USED


def main() -> None:
    """Run the program."""
    scale, validations = float(sys.argv.pop(1)), int(sys.argv.pop(1))
    build, validate_and_save = PosencModel.build_model.__func__, train.validate_and_save  # type: ignore[attr-defined]
    used = 0

    def build_scaled(cls: type[PosencModel], cfg: Any, task: Any) -> PosencModel:
        model = build(cls, cfg, task)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.mul_(scale if ".positions." in name and "layer_norm" not in name else 1.0)
        return model

    def validate_save_and_count(cfg: Any, trainer: Any, *rest: Any) -> Any:
        nonlocal used
        losses, should_stop = validate_and_save(cfg, trainer, *rest)
        if losses[0] is not None:  # of the text, then of the same with its words permuted
            used = used + 1 if losses[-1] - losses[-2] > USED else 0
        if 0 < validations <= used:
            cfg.optimization.max_update = trainer.get_num_updates() + 1  # which is then validated and saved as the last
        return losses, should_stop

    PosencModel.build_model = classmethod(build_scaled)  # type: ignore[assignment,method-assign]
    train.validate_and_save = validate_save_and_count
    train.cli_main()


if __name__ == "__main__":
    main()
