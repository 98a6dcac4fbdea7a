"""Pictures of the positions of a model in training, for TensorBoard. Importing this module has them made."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_posenc.models import validation

if TYPE_CHECKING:
    from fairseq_posenc.models.state import StateDict
    from fairseq_posenc.transformer import EncoderConfig

logger = logging.getLogger(__name__)
FOLDER = "positions"  # in --tensorboard-logdir
LENGTH = 128  # tokens of the sequences that terms are asked about


def plot(config: EncoderConfig, state: StateDict, folder: Path, updates: int) -> None:
    """Write P of the position vectors and every function of the offset, those of vectors for the average word."""
    from torch.utils.tensorboard import SummaryWriter

    from fairseq_posenc.analysis.pictures import of_parameters
    from fairseq_posenc.transformer import Encoder

    plain = Encoder(config)
    plain.load_state_dict(dict(state))
    figures = dict(of_parameters(plain.eval(), min(LENGTH, plain.positions.longest or LENGTH)))
    if not figures:
        logger.warning(f"--position-plots has nothing to show of --positions {plain.positions.expression}")
        return
    with SummaryWriter(str(folder / FOLDER)) as writer:
        for name, figure in figures.items():
            writer.add_figure(name, figure, updates)


validation.PLOTTERS.append(plot)
