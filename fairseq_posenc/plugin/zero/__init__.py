"""Training on DeepSpeed's engine behind fairseq's options, and the tools around runs on several hosts.

Importing this package imports neither DeepSpeed nor fairseq; ``pip install -e '.[deepspeed]'`` brings DeepSpeed.
fairseq still does the rest: options, data, optimizer, schedule, logging, validation, names of checkpoints. DeepSpeed shards
(ZeRO), communicates and steps.
"""
