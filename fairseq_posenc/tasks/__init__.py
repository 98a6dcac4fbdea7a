"""Tasks and criterions that fairseq lacks. Importing this package registers them."""

from . import sentence_prediction, squad, squad_criterion

__all__ = ["sentence_prediction", "squad", "squad_criterion"]
