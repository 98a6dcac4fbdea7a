"""Checks that a checkpoint is loaded, to train or to run it, with the model and the vocabulary of its training."""

import logging
import os
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.models.roberta import RobertaModel
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from ...base.errors import InputError, first_line, flag_of
from ...base.patching import replaced
from ...text.vocabulary import VOCABULARY, differing, fingerprint
from ..checkpoint.checkpoint_file import no_checkpoint, optimizer_state_of, peek
from ..checkpoint.state_dict import FORMAT, FORMAT_KEY, misfit
from ..checkpoint.stock import from_stock, our_options
from ..models.building import PosencModel, complete, differences
from ..optim.settings import MASTER, by_parameter
from ..options.option_set import ENCODER_OPTIONS, OptionSet
from ..processes.group import from_first_process

logger = logging.getLogger(__name__)
NEW_MODEL = (
    "Repeat the options of the checkpoint, or name another --save-dir for another model; to start that from these weights: "
    "--finetune-from-model"
)
NEW_POSITIONS = "to change positions: fairseq-posenc export-hf, then import-hf of the export with --positions"
OPTIMIZERS = {
    "EngineOptimizer": "EngineOptimizer is that of ZeRO: use fairseq_posenc.train --deepspeed-config zero1, zero2 or zero3",
    "FP16Optimizer": "FP16Optimizer is that of --bf16 and --fp16: continue with the checkpoint's, or without",
}
"""What fairseq's names of optimizers in its messages mean."""


def state_dict(save: Callable, task: FairseqTask) -> dict[str, Any]:
    """Return a task's part of a checkpoint, with the version of its format and the fingerprint of its vocabulary.

    ``labels`` are the classes' names in order (none for a regression), if the task has classes.
    """
    saved = {**save(task), FORMAT_KEY: FORMAT, VOCABULARY: vocabulary_of(task)}
    if (labels := getattr(task, "_label_dictionary", None)) is None:
        return saved
    return {**saved, "labels": [] if task.cfg.regression_target else labels.symbols[labels.nspecial :][: task.cfg.num_classes]}


def load_state_dict(load: Callable, task: FairseqTask, state: dict[str, Any]) -> None:
    """Load a task's part of a checkpoint; raises InputError if it was trained with another vocabulary."""
    if fault := other_vocabulary(state, task):
        raise InputError(fault)
    load(task, state)


def optimizer_state_dict(save: Callable, wrapper: Any) -> dict[str, Any]:
    """Return the state of fairseq's wrapper for half precision with its float32 weights, one for each parameter."""
    return {**save(wrapper), MASTER: [master.clone() for master, _ in _weights(wrapper)]}


def load_optimizer_state_dict(
    load: Callable, wrapper: Any, state: dict[str, Any], overrides: dict[str, Any] | None = None
) -> None:
    """Load such a state. The model's weights count more where they were changed since, as by averaging checkpoints."""
    load(wrapper, state, overrides)
    for saved, (master, weight) in zip(state.get(MASTER, ()), _weights(wrapper), strict=False):
        if torch.equal(saved.to(weight), weight):
            master.copy_(saved)


def _weights(wrapper: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the float32 weights, which are one flat tensor or one for each parameter, and the model's."""
    model, masters = [parameter.detach() for parameter in wrapper.fp16_params], wrapper.fp32_params
    if wrapper.has_flat_params:
        (flat,) = masters.values()
        masters = by_parameter(flat, model)
    return [(master.detach(), weight) for master, weight in zip(masters, model, strict=True)]


def vocabulary_of(task: FairseqTask) -> dict[str, str]:
    """Return the fingerprint of a task's dictionaries and of the tokenizer in its data-bin, which is computed once."""
    if not hasattr(task, "vocabulary_fingerprint"):
        task.vocabulary_fingerprint = {}
        with suppress(NotImplementedError, AttributeError):  # tasks without a dictionary, such as those of speech
            folder, target = _data_bin(task), getattr(task, "tgt_dict", None)
            task.vocabulary_fingerprint = fingerprint(task.source_dictionary, folder)
            if target is not None:
                task.vocabulary_fingerprint["target dictionary"] = fingerprint(target, folder)["dictionary"]
    return task.vocabulary_fingerprint


def other_vocabulary(task_state: Any, task: FairseqTask) -> str | None:
    """Describe how a task's vocabulary differs from the one recorded in ``task_state``; None if it does not."""
    recorded = task_state.get(VOCABULARY) if isinstance(task_state, dict) else None
    if not (names := differing(recorded, vocabulary_of(task))):
        return None
    return (
        f"it was trained with another vocabulary than the one in {_data_bin(task)} (different: {', '.join(names)}). Name a "
        "data-bin that was made with the checkpoint's vocabulary"
    )


def _data_bin(task: FairseqTask) -> Path:
    return Path(str(getattr(task.cfg, "data", "")).split(os.pathsep)[0])


def load_checkpoint(
    load: Callable,
    trainer: Trainer,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    optimizer_overrides: dict[str, Any] | None = None,
    reset_meters: bool = False,
) -> Any:
    """Call fairseq's ``Trainer.load_checkpoint``, which compares only names and shapes of parameters, if the models are the same.

    If ``--restore-file`` is missing, fairseq would train from scratch. Only its default, checkpoint_last.pt in ``--save-dir``,
    may be missing.

    Raises:
        FileNotFoundError: another file is missing.
        InputError: the checkpoint has another model or vocabulary than the training; for ``--finetune-from-model``, another kind
            of model, other sizes or another vocabulary. Or fairseq would silently lose the number of updates or the best model.
    """
    default = str(Path(trainer.cfg.checkpoint.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt"))
    # Only one process per node may see the file; the others receive its contents.
    if Path(filename) != Path(default) and trainer.data_parallel_rank == 0 and not PathManager.isfile(filename):
        raise FileNotFoundError(
            f"--restore-file {filename} is no file. Correct the path, or leave the flag out: then training continues "
            f"from {default} if that exists, and starts from scratch otherwise."
        )
    arguments = (filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters)
    model = getattr(trainer, "_model", None)
    if not isinstance(model, PosencModel):
        return load(trainer, *arguments)
    different: list[str] = []
    try:
        refusal, different = from_first_process(_faults(filename, trainer, reset_optimizer, reset_meters))
        if refusal is not None:
            raise InputError(refusal)
        reads = {"load_checkpoint_to_cpu": with_average(checkpoint_utils.load_checkpoint_to_cpu)}
        with replaced(vars(checkpoint_utils), **reads if trainer.cfg.ema.store_ema else {}):
            state = load(trainer, *arguments)
        if different:  # which --finetune-from-model allows
            logger.warning(f"the weights of {filename} are of another model: {'; '.join(different)}")
        return state
    except (InputError, OSError):
        raise
    except AssertionError as error:  # fairseq's, about another criterion or optimizer
        hints = [hint for name, hint in OPTIMIZERS.items() if name in str(error)]
        raise InputError(f"{filename}: {error}. {' '.join(hints)}") from error
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise no_checkpoint(Path(filename), f"its trainer's state: {type(error).__name__}: {error}") from error
    except Exception as error:
        if type(error) is not Exception:  # fairseq raises Exception itself if the parameters do not fit
            raise
        reason = f"it has {'; '.join(different)}" if different else misfit(error.__context__)
        raise InputError(
            f"{filename} does not fit the model to be trained: {reason}. Give the same sizes; {NEW_POSITIONS}"
        ) from error


def with_average(read: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Let the averages of ``--store-ema`` begin with the weights of a checkpoint without them: fairseq has deleted these."""

    def read_with_average(*args: Any, **kwargs: Any) -> dict[str, Any]:
        state = read(*args, **kwargs)
        state["extra_state"].setdefault("ema", state["model"])
        return state

    return read_with_average


def _faults(filename: str, trainer: Trainer, reset_optimizer: bool, reset_meters: bool) -> tuple[str | None, list[str]]:
    """Return, in the first process, what :func:`compare` or :func:`lost_state` find; loading reports what is damaged."""
    content = peek(filename) if trainer.data_parallel_rank == 0 else {}
    if not content:
        return None, []
    weights_only = filename == trainer.cfg.checkpoint.finetune_from_model
    refusal, different = compare(filename, content, trainer._model, trainer.task, weights_only)
    if refusal is None and weights_only:
        report_loaded(filename, from_stock(content["model"]), trainer._model)
    elif refusal is None:
        refusal = lost_state(filename, content, trainer.cfg, reset_optimizer, reset_meters)
    return refusal, different


def compare(
    filename: str, content: dict[str, Any], model: BaseFairseqModel, task: FairseqTask, weights_only: bool = False
) -> tuple[str | None, list[str]]:
    """Return why training cannot continue from a checkpoint, or None if it can, and the options that differ, as flags.

    Args:
        content: what the file holds.
        model: the model to be trained, with complete options.
        weights_only: whether a new training starts with its parameters, so that options may differ.
    """
    try:
        arch, options, task_options, kind = saved_options(content)
        if kind is not None and kind is not model.option_set:
            return (
                f"{filename} holds a model of the architecture {arch}, and the model to be trained, of {model.args._name}, has "
                "other parts: name a checkpoint of the same kind of model, or none"
            ), []
        if fault := other_vocabulary(content.get("task_state"), task):
            return f"{filename}: {fault}", []
        if kind is None:
            raise InputError(f"{arch} is not one of this package's models")
        unequal = differences(complete(options, task_options, kind), model.args, kind)
    except Exception as error:  # a file's configuration may hold anything
        if weights_only:
            return None, []
        reason = first_line(error)
        return f"{filename} does not record which model it holds ({type(error).__name__}: {reason}). {NEW_MODEL} {filename}", []
    flags = [f"{flag_of(name)} {saved} in the checkpoint, {new} now" for name, (saved, new) in unequal.items()]
    if flags and not weights_only:
        advice = f"{NEW_MODEL} {filename}; {NEW_POSITIONS}"
        return f"{filename} holds another model than the one to be trained: {'; '.join(flags)}. {advice}", flags
    return None, flags


def report_loaded(filename: str, state: dict[str, Tensor], model: BaseFairseqModel) -> None:
    """Log which parameters of a new training are those of a checkpoint, which are new, and which of the checkpoint are unused."""
    ours, theirs = {*model.state_dict()}, {*state}
    both = f"{len(ours & theirs)} parameters loaded"
    parts = {"new": ours - theirs, "unused": theirs - ours}
    named = [f"{len(of)} {kind} ({', '.join(sorted(of)[:6])}{' …' * (len(of) > 6)})" for kind, of in parts.items() if of]
    logger.info(f"from {filename}: {'; '.join([both, *named])}")


def lost_state(filename: str, content: dict[str, Any], now: Any, reset_optimizer: bool, reset_meters: bool) -> str | None:
    """Describe what fairseq would silently lose in resuming, or return None.

    Args:
        content: what the file holds.
        now: the configuration of the training.
        reset_optimizer: whether training begins again at update 0.
        reset_meters: whether the best so far does not count.
    """
    old, cfg = content.get("args"), content.get("cfg") or {}
    parts = [old or cfg.get(section) or {} for section in ("checkpoint", "optimizer", "lr_scheduler")]
    saving, optimizing, scheduling = (vars(part) if isinstance(part, Namespace) else part for part in parts)
    metric, new_training = now.checkpoint.best_checkpoint_metric, f"--finetune-from-model {filename}, with another --save-dir"
    saved, optimizer = saving.get("best_checkpoint_metric", metric), optimizing.get("optimizer" if old else "_name")
    if optimizer not in (None, now.optimizer._name) and not reset_optimizer:
        return (
            f"{filename} has the state of --optimizer {optimizer}, not of {now.optimizer._name}. Repeat {optimizer}, or start "
            f"a new training from its weights: {new_training}"
        )
    if optimizer_state_of(content) is None and not reset_optimizer:
        return (
            f"{filename} has no optimizer state, so that training would begin again at update 0. Start a new training from its "
            f"weights: {new_training}"
        )
    scheduler = scheduling.get("lr_scheduler" if old else "_name")
    plain = ("fixed", "manual")  # whose state is a rate alone, which the others cannot load
    others = scheduler in plain and now.lr_scheduler._name not in plain
    if others and not (reset_optimizer or now.checkpoint.reset_lr_scheduler):
        return f"{filename} has the state of --lr-scheduler {scheduler}. Repeat it, or change it with --reset-lr-scheduler"
    if "best" in (content.get("extra_state") or {}) and metric != saved and not reset_meters:
        return (
            f"the best {saved} in {filename} does not compare with --best-checkpoint-metric {metric}. Repeat {saved}, or forget "
            "the best with --reset-meters"
        )
    return None


def saved_options(content: dict[str, Any]) -> tuple[str, Namespace, Namespace, OptionSet | None]:
    """Return the architecture of a checkpoint's model, the options of model and task, and the option set of the model's kind.

    fairseq's own RoBERTa counts as ours with absolute positions; other models have no option set.

    Raises:
        Exception: any, if the file is not such a checkpoint.
    """
    old = content.get("args")
    cfg: Any = content["cfg"] if old is None else {"model": old, "task": old}
    cfg = OmegaConf.to_container(cfg) if isinstance(cfg, DictConfig) else cfg
    model, task = (Namespace(**(vars(part) if isinstance(part, Namespace) else part)) for part in (cfg["model"], cfg["task"]))
    arch = getattr(model, "_name", None) or model.arch
    ARCH_CONFIG_REGISTRY[arch](model)
    if ARCH_MODEL_REGISTRY[arch] is RobertaModel:
        return arch, our_options(vars(model)), task, ENCODER_OPTIONS
    return arch, model, task, getattr(ARCH_MODEL_REGISTRY[arch], "option_set", None)
