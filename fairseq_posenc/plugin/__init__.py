"""The interface to fairseq: patches, options, checkpoints, models, tasks, optimizers, ZeRO and the run of a program."""
