"""The flags of training that do not go together, or of which fairseq would silently do something else than they say.

They are the rows of :data:`EXCLUDED` and :data:`REFUSALS`, which one process checks before it starts the others.
"""

import math
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY

from ...base.errors import InputError
from ...core.schemes.decay import KINDS
from ..batches.batch_warmup import OPTION
from ..models.building import ONE_SHAPE
from ..options.option_set import ENCODER_OPTIONS
from ..processes.group import without_gpus
from .no_decay import kinds_of
from .training_log import updates_of

METRICS = {True: {"accuracy", "bleu", "f1", "order_accuracy"}, False: {"loss", "nll_loss", "order_loss", "ppl"}}
"""Those of which more is better, and those of which less is."""
SENTENCE_ORDER = "masked_lm_sentence_order"
MASKED = ("masked_lm", ONE_SHAPE, SENTENCE_ORDER)
SECTIONS = (
    *("checkpoint", "common", "criterion", "dataset", "distributed_training", "ema"),
    *("lr_scheduler", "model", "optimization", "optimizer", "task"),
)

Condition = Callable[[Any], Any]
"""Takes the sections of a configuration as attributes, and ``zero``, ZeRO's stage."""

UPDATES: dict[str, Condition] = {
    "--amp": lambda s: s.common.amp,
    "--compile": lambda s: getattr(s.model, "compile", False),
    "--criterion {criterion._name}": lambda s: not CRITERION_REGISTRY[s.criterion._name].logging_outputs_can_be_summed(),
    "--deepspeed-config with ZeRO": lambda s: s.zero > 0,
    "--deepspeed-config with ZeRO stage 2 or 3": lambda s: s.zero > 1,
    "--deepspeed-config with ZeRO stage 3": lambda s: s.zero == 3,
    "--ddp-backend fully_sharded": lambda s: str(s.distributed_training.ddp_backend) == "fully_sharded",
    "--fp16": lambda s: s.common.fp16,
    "--fp16 without --fp16-no-flatten-grads": lambda s: (
        s.common.fp16 and not (s.common.memory_efficient_fp16 or s.common.bf16 or s.common.fp16_no_flatten_grads)
    ),
    "--memory-efficient-bf16": lambda s: s.common.memory_efficient_bf16,
    "--memory-efficient-fp16": lambda s: s.common.memory_efficient_fp16,
    "--no-decay": lambda s: kinds_of(s) != [],
    "--optimizer composite": lambda s: s.optimizer._name == "composite",
    "--optimizer fused_adam": lambda s: s.optimizer._name == "fused_adam",
    "--optimizer muon": lambda s: s.optimizer._name == "muon",
    "--optimizer stable_adamw": lambda s: s.optimizer._name == "stable_adamw",
    "--store-ema": lambda s: s.ema.store_ema,
}
"""Flags that decide how parameters and gradients are stored, summed and updated."""
HALF_PRECISION = ("--memory-efficient-bf16", "--memory-efficient-fp16")
EXCLUDED = {
    "--optimizer stable_adamw": ("--fp16 without --fp16-no-flatten-grads",),
    "--optimizer muon": (*HALF_PRECISION, "--fp16 without --fp16-no-flatten-grads"),
    "--optimizer fused_adam": (*HALF_PRECISION, "--amp", "--fp16", "--store-ema", "--criterion {criterion._name}"),
    "--deepspeed-config with ZeRO": (*HALF_PRECISION, "--amp", "--compile", "--optimizer fused_adam"),
    "--deepspeed-config with ZeRO stage 2 or 3": ("--optimizer muon", "--optimizer stable_adamw"),
    "--deepspeed-config with ZeRO stage 3": ("--store-ema",),
    "--no-decay": ("--ddp-backend fully_sharded", "--optimizer composite"),  # where parameters are joined or divided otherwise
}
"""Optimizers and ZeRO, with the other flags of :data:`UPDATES` that they exclude."""

REFUSALS: dict[str, tuple[Condition, str]] = {
    "--fp16": (
        lambda s: without_gpus(s) and (s.common.fp16 or s.common.memory_efficient_fp16),
        "it needs a GPU; train with --bf16, or in float32 by leaving it out",
    ),
    "--batch-size": (
        lambda s: s.dataset.batch_size is None and s.dataset.max_tokens is None,
        "it is missing, and so is --max-tokens; give one of them",
    ),
    "--batch-size {dataset.batch_size}": (
        lambda s: (s.dataset.batch_size or 0) > (many := s.dataset.required_batch_size_multiple) and s.dataset.batch_size % many,
        "fairseq would make batches of a multiple of --required-batch-size-multiple, {dataset.required_batch_size_multiple}; add "
        "--required-batch-size-multiple 1",
    ),
    "--batch-warmup-updates": (
        lambda s: getattr(s.optimization, OPTION, 0) and (max(s.optimization.update_freq) == 1 or s.common.fp16 or s.common.amp),
        "it needs an --update-freq above 1, to which batches grow, and neither --fp16 nor --amp, which skip updates",
    ),
    "--no-decay {optimization.no_decay}": (
        lambda s: set(kinds_of(s)) - {*KINDS},
        f"it is a list of {', '.join(KINDS)}, joined by commas",
    ),
    "--profile-steps {common.profile_steps}": (
        lambda s: (
            s.common.profile_steps
            and not 0 < min(updates_of(s.common.profile_steps), default=0) <= (s.optimization.max_update or math.inf)
        ),
        "the first and the last of some updates of the training are needed, as in 10-15",
    ),
    "--max-update {optimization.max_update}": (
        lambda s: _decays_to_zero_early(s.lr_scheduler, s.optimization),
        "the learning rate is 0 from --total-num-update {lr_scheduler.total_num_update:g} on; give both one number, or "
        "--end-learning-rate",
    ),
    "--valid-subset {dataset.valid_subset}": (
        lambda s: not s.dataset.disable_validation and s.dataset.train_subset in str(s.dataset.valid_subset).split(","),
        "it contains --train-subset, whose batches the validation would consume",
    ),
    "--max-epoch {optimization.max_epoch}": (
        lambda s: s.optimization.max_epoch and s.optimization.max_epoch % s.checkpoint.save_interval,
        "training would end without a checkpoint, since it is no multiple of --save-interval {checkpoint.save_interval}",
    ),
    "--best-checkpoint-metric {checkpoint.best_checkpoint_metric}": (
        lambda s: s.checkpoint.best_checkpoint_metric in METRICS[not s.checkpoint.maximize_best_checkpoint_metric],
        "the worst checkpoint would be kept; give --maximize-best-checkpoint-metric where more is better, and nowhere else",
    ),
    "--best-checkpoint-metric {checkpoint.best_checkpoint_metric} with --task {task._name}": (
        lambda s: (
            s.task._name in MASKED
            and not s.dataset.disable_validation
            and s.checkpoint.best_checkpoint_metric
            not in ("loss", "ppl", "accuracy", *(("order_loss", "order_accuracy") if s.task._name == SENTENCE_ORDER else ()))
        ),
        "it measures no such number",
    ),
    "--restore-file {checkpoint.restore_file}": (
        lambda s: _replaces_later_checkpoints(s.checkpoint),
        "training from it would replace checkpoint_last.pt in --save-dir {checkpoint.save_dir}; leave --restore-file out to "
        "continue from that, or name another --save-dir",
    ),
    "--write-checkpoints-asynchronously": (
        lambda s: s.checkpoint.write_checkpoints_asynchronously,
        "it keeps no checkpoint_last.pt, so that the same command would begin again at update 0 and write over the others",
    ),
    "--compile": (
        lambda s: getattr(s.model, "compile", False) and s.task._name != ONE_SHAPE,
        f"it is for batches of one shape; add --task {ONE_SHAPE}, or leave --compile out",
    ),
    f"--task {ONE_SHAPE}, --task {SENTENCE_ORDER} and --pack-examples": (
        lambda s: (s.task._name in (ONE_SHAPE, SENTENCE_ORDER) or getattr(s.task, "pack_examples", 0)) and not _encodes(s, None),
        "they are for the encoders of fairseq_posenc, such as --arch roberta_tisa",
    ),
    "--task {task._name}": (
        lambda s: s.task._name in ("masked_lm", "sentence_prediction", "squad") and not _encodes(s, ENCODER_OPTIONS),
        "it is for encoders, such as --arch roberta_tisa, and this model is or has a decoder",
    ),
    "--criterion {criterion._name}": (
        lambda s: s.task._name in MASKED and s.criterion._name != s.task._name,
        "it does not measure the predictions of --task {task._name}; use --criterion {task._name}",
    ),
    "--random-token-prob {task.random_token_prob} and --leave-unmasked-prob {task.leave_unmasked_prob}": (
        lambda s: s.task._name in MASKED and s.task.random_token_prob + s.task.leave_unmasked_prob > 1,
        "they are more than 1 together",
    ),
    "--mask-prob-end {task.mask_prob_end}": (
        lambda s: (
            (getattr(s.task, "mask_prob_end", None) is not None or getattr(s.task, "mask_prob_updates", 0))
            and not (0 < (s.task.mask_prob_end or 0) <= s.task.mask_prob and s.task.mask_prob_updates > 0)
        ),
        "it must be above 0 and at most --mask-prob {task.mask_prob}, and needs --mask-prob-updates, in which it is reached",
    ),
    "--mask-prob-end {task.mask_prob_end} and masks of several tokens": (
        lambda s: (
            getattr(s.task, "mask_prob_end", None) is not None
            and (s.task.mask_whole_words or s.task.mask_multiple_length > 1 or s.task.mask_stdev > 0)
        ),
        "it uncovers single tokens; leave out --mask-whole-words, --mask-multiple-length and --mask-stdev",
    ),
    f"--task {ONE_SHAPE}": (
        lambda s: s.task._name == ONE_SHAPE and (s.dataset.batch_size is None or s.dataset.max_tokens is not None),
        "it needs --batch-size, and no --max-tokens, whose batches have many shapes",
    ),
    "--sample-break-mode {task.sample_break_mode} and --pack-documents": (
        lambda s: getattr(s.task, "pack_documents", False) and str(s.task.sample_break_mode) != "none",
        "they exclude each other; leave one of them out",
    ),
    "--sample-break-mode {task.sample_break_mode}": (
        lambda s: s.task._name == SENTENCE_ORDER and str(s.task.sample_break_mode) != "complete_doc",
        f"--task {SENTENCE_ORDER} needs whole sentences of one document; give --sample-break-mode complete_doc",
    ),
    "--mask-decoder-steps": (
        lambda s: s.task._name == SENTENCE_ORDER and s.model.mask_decoder_steps,
        f"--task {SENTENCE_ORDER} reads the last layer; leave out --mask-decoder-steps",
    ),
}
"""Flags, in which ``{section.name}`` stands for the value of an option; when they are refused; and why, and what to give."""


def check(cfg: Any, zero: int = 0) -> None:
    """Check the complete configuration of a training.

    Args:
        zero: the stage of ZeRO, 0 without sharding.

    Raises:
        InputError: flags are refused; the message names the first of them.
    """
    settings = SimpleNamespace(zero=zero, **{name: cfg[name] for name in SECTIONS})
    faults = [
        f"{flag} and {other}: they exclude each other; leave one of them out"
        for other, flags in EXCLUDED.items()
        for flag in flags
        if UPDATES[other](settings) and UPDATES[flag](settings)
    ]
    faults += [f"{flags}: {reason}" for flags, (condition, reason) in REFUSALS.items() if condition(settings)]
    if faults:
        raise InputError(faults[0].format(**vars(settings)))


def _encodes(settings: Any, others: Any) -> bool:
    """Return whether the model is an encoder of this package; a model without options of its kind has ``others``."""
    return getattr(ARCH_MODEL_REGISTRY[settings.model._name], "option_set", others) is ENCODER_OPTIONS


def _decays_to_zero_early(schedule: Any, limits: Any) -> bool:
    """Return whether the learning rate is 0 before training ends; with ``--max-epoch``, that may not be reached."""
    decays = getattr(schedule, "_name", None) == "polynomial_decay" and not schedule.end_learning_rate
    ends_by_others = limits.max_epoch or limits.stop_time_hours
    return decays and not ends_by_others and (limits.max_update or math.inf) > schedule.total_num_update


def _replaces_later_checkpoints(checkpoint: Any) -> bool:
    """Return whether training from ``--restore-file`` would begin again before checkpoints, as the same command after a kill."""
    last = os.path.abspath(os.path.join(checkpoint.save_dir, "checkpoint_last.pt"))
    continues = checkpoint.restore_file == "checkpoint_last.pt" or os.path.abspath(checkpoint.restore_file) == last
    return not continues and not checkpoint.no_save and os.path.exists(last)
