"""Fine-tuning on GLUE and SQuAD: ``fairseq-posenc glue``, ``squad`` and ``report``.

The files, from the bottom up: :mod:`.settings` (hyperparameters and flags), :mod:`.training` (one run of fairseq's trainer, a
model's outputs), :mod:`.report`, and :mod:`.tuning` (the runs of one task). The benchmarks are the commands :mod:`.glue` and
:mod:`.squad`, their files (``_data``), their runs (``_runs``), and SQuAD's official scores. How runs are done, resumed and
recorded is :mod:`fairseq_posenc.runs.grid`.
"""
