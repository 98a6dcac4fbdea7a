"""``--position-plots``: pictures of the positions of a model in training, for TensorBoard."""

import logging
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from ..models.state_dict import ENCODER
from ..transformer import Encoder
from .pictures import figures_of

logger = logging.getLogger(__name__)
FOLDER = "positions"  # in --tensorboard-logdir
LENGTH = 128  # tokens of the sequences whose terms are drawn


def plot_positions(trainer: Any) -> None:
    """Draw P of the position vectors and every function of the offset, those of vectors for the average word.

    All processes call this where ``--position-plots`` is given: at ZeRO-3, each has a part of the weights.
    """
    model = trainer.get_model()
    weights = getattr(trainer, "whole_weights", model.state_dict)()
    if not trainer.is_data_parallel_master:
        return
    encoder = Encoder(model.encoder.sentence_encoder.config)
    encoder.load_state_dict({name.removeprefix(ENCODER): value for name, value in weights.items() if name.startswith(ENCODER)})
    figures = figures_of(encoder.eval(), min(LENGTH, encoder.positions.max_length or LENGTH))
    if not figures:
        logger.warning(f"--position-plots has nothing to show of --positions {encoder.positions.expression}")
        return
    with SummaryWriter(str(Path(trainer.cfg.common.tensorboard_logdir, FOLDER))) as writer:
        for name, figure in figures.items():
            writer.add_figure(name, figure, trainer.get_num_updates())
