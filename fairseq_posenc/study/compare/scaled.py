"""fairseq-train with the initial values of the positions multiplied by a number, for runs whose row has ``initial_scale``.

    python -m fairseq_posenc.study.compare.scaled 0.1 DATA …

The layer norms of positions keep theirs. The weights of a checkpoint replace all of them.
"""

import sys
from typing import Any

import torch
from fairseq_cli import train

from ...plugin.models.roberta import PosencRobertaModel


def main() -> None:
    """Run the program."""
    scale, build = float(sys.argv.pop(1)), PosencRobertaModel.build_model

    def build_scaled(cfg: Any, task: Any) -> PosencRobertaModel:
        model = build(cfg, task)
        with torch.no_grad():
            for name, parameter in model.encoder.sentence_encoder.positions.named_parameters():
                parameter.mul_(1.0 if "layer_norm" in name else scale)
        return model

    PosencRobertaModel.build_model = build_scaled  # type: ignore[assignment,method-assign]
    train.cli_main()


if __name__ == "__main__":
    main()
