"""Fine-tuning on GLUE and SQuAD: ``fairseq-posenc glue``, ``squad`` and ``report``.

The files, from the bottom up: :mod:`.hyperparameters` (and the flags of both benchmarks), :mod:`.grid_report`, and :mod:`.tuning`
(the runs of one task). The benchmarks are the commands :mod:`.glue` and :mod:`.squad`, their files (``_data``, with SQuAD's
official scores), and their runs (``_runs``). :mod:`fairseq_posenc.study.engine` runs, resumes and records them.
"""
