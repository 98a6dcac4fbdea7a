"""What happens between ``fairseq-train``, or another of fairseq's programs, and the first update: :mod:`.program_run`."""

import fairseq.models  # first, because the start-up hook imports this package's modules when fairseq is imported

from .program_run import ProgramRun
