"""What happens between ``fairseq-train``, or another of fairseq's programs, and the first update.

Importing this package wraps functions of fairseq: those of :mod:`.program_run` and :mod:`.wrapped`.
"""

from . import wrapped
from .program_run import ProgramRun

__all__ = ["ProgramRun", "wrapped"]
