"""The hyperparameters of GLUE."""

from ..hyperparameters import Defaults, Hyperparameters
from .tasks import TASKS

DEFAULTS = Defaults(Hyperparameters(), lrs=(2e-5, 3e-5, 4e-5), seeds=5, tasks=tuple(TASKS))
