"""What a model's positions take: how long rows may be, and whether positions can be counted anew within one."""

from typing import Any

import numpy as np
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask

from ..errors import FieldError, Refused
from ..models.flags import flag
from ..models.options import reach
from ..models.roberta import PosencRobertaModel


class ReachTask(FairseqTask):
    """A task that knows how long a sequence its model takes, and refuses data with longer ones.

    fairseq leaves them out of training, which would give some schemes other data than others.
    """

    _reach: int | None = None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        model = super().build_model(cfg, from_checkpoint)
        if isinstance(model, PosencRobertaModel):
            self._reach = reach(model.encoder.sentence_encoder)
        return model

    def require_reach(self, sizes: np.ndarray, split: str) -> None:
        """Look at the lengths of a split's rows.

        Raises:
            Refused: one is longer than the model takes.
        """
        longest = sizes.max(initial=0)
        if self._reach is not None and longest > self._reach:
            raise Refused(
                f"a row of {split} has {longest} tokens, and the model has {self._reach} positions: prepare the data with "
                "shorter rows, or take a model whose --max-positions reach so far, or one of an inductive scheme"
            )

    def max_positions(self) -> None:
        return None


def require_restart(model: PosencRobertaModel, asked: str) -> None:
    """Refuse to count positions anew within a row where the model cannot.

    Raises:
        Refused: a scheme depends on where in the row a token stands; names the flag ``asked`` that needs it.
    """
    try:
        model.encoder.sentence_encoder.positions.require_restart()
    except FieldError as error:
        raise Refused(f"{asked}: {error.named(flag)}") from error
