"""What is told of each validation of a model in training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.trainer import Trainer

from ..transformer import EncoderConfig
from .roberta import PosencRobertaModel
from .state import ENCODER, StateDict

PLOTTERS: list[Callable[[EncoderConfig, StateDict, Path, int], None]] = []
"""Called with the encoder's configuration and parameters, the folder of TensorBoard's files and the number of updates, where
``--position-plots`` is given."""


def plot_at_validation() -> None:
    """Have :data:`PLOTTERS` plot before each validation, in the first process of a run."""
    begin = Trainer.begin_valid_epoch

    @functools.wraps(begin)
    def begin_and_plot(self: Trainer, epoch: int) -> Any:
        model = self.get_model()
        if isinstance(model, PosencRobertaModel) and getattr(model.args, "position_plots", False):
            weights = getattr(self, "whole_weights", model.state_dict)()  # for which ZeRO needs all processes
            if self.is_data_parallel_master:
                state = {name.removeprefix(ENCODER): value for name, value in weights.items() if name.startswith(ENCODER)}
                config, folder = model.encoder.sentence_encoder.config, Path(self.cfg.common.tensorboard_logdir)
                for plot in PLOTTERS:
                    plot(config, state, folder, self.get_num_updates())
        return begin(self, epoch)

    Trainer.begin_valid_epoch = begin_and_plot
