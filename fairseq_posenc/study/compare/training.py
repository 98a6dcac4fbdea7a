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

COUNT = "validations_with_word_order"


def main() -> None:
    """Run the program."""
    scale, validations = float(sys.argv.pop(1)), int(sys.argv.pop(1))
    build, validate = PosencModel.build_model.__func__, train.validate  # type: ignore[attr-defined]

    def build_scaled(cls: type[PosencModel], cfg: Any, task: Any) -> PosencModel:
        model = build(cls, cfg, task)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.mul_(scale if "positions." in name and "layer_norm" not in name else 1.0)
        return model

    def validate_and_count(cfg: Any, trainer: Any, task: Any, *rest: Any) -> Any:
        losses = validate(cfg, trainer, task, *rest)  # of the text, then of the same with its words permuted
        used = getattr(task.state, COUNT, 0) + 1 if losses[-1] - losses[-2] > USED else 0
        task.state.merge_state_dict({COUNT: used})  # a part of the checkpoint, which a killed run continues from
        if 0 < validations <= used:
            cfg.optimization.max_update = trainer.get_num_updates() + 1  # which is then validated and saved as the last
        return losses

    PosencModel.build_model = classmethod(build_scaled)  # type: ignore[assignment,method-assign]
    train.validate = validate_and_count
    train.cli_main()


if __name__ == "__main__":
    main()
