"""Loading a checkpoint, to train or to run it: only with the model and the vocabulary that it was trained with."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq.file_io import PathManager
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.models.roberta import RobertaModel
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from torch import distributed

from ..compat import loading
from ..errors import InputError, Refused, flag_of
from ..vocabulary import differing, fingerprint
from ..vocabulary.fingerprint import KEY as VOCABULARY
from .checkpoint import no_checkpoint
from .config import ENCODER_OPTIONS, OptionSet
from .options import complete, differences
from .state import misfit
from .stock import our_options

NEW_MODEL = (
    "Repeat the options of the checkpoint, or name another --save-dir for another model; to start that from these weights: "
    "--finetune-from-model"
)
SHARDED = "EngineOptimizer"  # as checkpoints name the optimizer of fairseq_posenc.train with ZeRO
ONLY_ZERO = (
    "is sharded, which only ZeRO continues: fairseq_posenc.train with --deepspeed-config zero1, zero2 or zero3. To start from "
    "its weights: --finetune-from-model, or --restore-file with --reset-optimizer."
)


def state_dict(save: Callable, task: FairseqTask) -> dict[str, Any]:
    """A task's part of a checkpoint, which records the vocabulary."""
    return {**save(task), VOCABULARY: vocabulary_of(task)}


def load_state_dict(load: Callable, task: FairseqTask, state: dict[str, Any]) -> None:
    """Load a task's part of a checkpoint.

    Raises:
        InputError: it was trained with another vocabulary.
    """
    if fault := other_vocabulary(state, task):
        raise InputError(fault)
    load(task, state)


def vocabulary_of(task: FairseqTask) -> dict[str, str]:
    """The fingerprint of a task's dictionaries and of the tokenizer in its data-bin; nothing where it has no dictionary."""
    try:
        found = fingerprint(task.source_dictionary, _data_bin(task))
    except (NotImplementedError, AttributeError):  # such as tasks of speech
        return {}
    target = getattr(task, "tgt_dict", None)
    return found if target is None else {**found, "target dictionary": fingerprint(target, _data_bin(task))["dictionary"]}


def other_vocabulary(task_state: Any, task: FairseqTask) -> str | None:
    """How a task's vocabulary differs from the one that a checkpoint records in its ``task_state``; None if it does not."""
    recorded = task_state.get(VOCABULARY) if isinstance(task_state, dict) else None
    if not (names := differing(recorded, vocabulary_of(task))):
        return None
    return (
        f"it was trained with another vocabulary than the one in {_data_bin(task)} (different: {', '.join(names)}). Name a "
        "data-bin that was made with the checkpoint's vocabulary"
    )


def _data_bin(task: FairseqTask) -> Path:
    return Path(str(getattr(task.cfg, "data", "")).split(os.pathsep)[0])


def load_same_model(
    load: Callable, trainer: Trainer, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
) -> Any:
    """fairseq's ``Trainer.load_checkpoint``, which compares only names and shapes of parameters.

    Several schemes and most options share those.

    Raises:
        Refused: the checkpoint is of another model or vocabulary than the one to train; for ``--finetune-from-model``, of
            another kind of model, of other sizes or of another vocabulary.
    """
    model = getattr(trainer, "_model", None)
    if not isinstance(getattr(model, "option_set", None), OptionSet):
        return load(trainer, filename, reset_optimizer, *args, **kwargs)
    found: list[Any] = [None, []]
    if trainer.data_parallel_rank == 0 and PathManager.isfile(filename):  # which only this process may see
        weights_only = filename == trainer.cfg.checkpoint.finetune_from_model
        loads_shards = getattr(trainer, "loads_shards", False) or reset_optimizer
        found = list(compared(filename, model, trainer.task, weights_only, loads_shards))
    if distributed.is_initialized():
        distributed.broadcast_object_list(found, src=0)
    refusal, different = found
    if refusal is not None:
        raise Refused(refusal)
    try:
        return load(trainer, filename, reset_optimizer, *args, **kwargs)
    except (InputError, OSError, AssertionError):
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise no_checkpoint(filename, f"its trainer's state: {type(error).__name__}: {error}") from error
    except Exception as error:
        if type(error) is not Exception:  # which fairseq raises where the parameters do not fit, whatever the reason
            raise
        reason = f"it has {'; '.join(different)}" if different else misfit(error.__context__)
        raise Refused(f"{filename} does not fit the model to be trained: {reason}. Give the same sizes") from error


def compared(
    filename: str, model: BaseFairseqModel, task: FairseqTask, weights_only: bool = False, loads_shards: bool = True
) -> tuple[str | None, list[str]]:
    """Why training cannot go on from a checkpoint, or None if it can; and the options that differ, by their flags.

    Args:
        filename: the checkpoint.
        model: the model to be trained, with complete options.
        task: its task.
        weights_only: whether training starts anew with its parameters, so that options may differ.
        loads_shards: whether the trainer loads a sharded optimizer, or none.
    """
    content = None
    with suppress(Exception):  # loading a damaged file reports what is wrong with it
        content = loading.peek(filename)
    if content is None:
        return None, []
    try:
        arch, there, kind = saved_options(content)
        if kind is not None and kind is not model.option_set:
            return (
                f"{filename} holds a model of the architecture {arch}, and one of {model.args._name} is to be trained, which is "
                "made of other parts: name a checkpoint of the same kind of model, or none"
            ), []
        if fault := other_vocabulary(content.get("task_state"), task):
            return f"{filename}: {fault}", []
        if kind is None:
            raise InputError(f"{arch} is not one of this package's models")
        found = differences(complete(*there, kind), model.args, kind)
        sharded = any(part["optimizer_name"] == SHARDED for part in content.get("optimizer_history", [])[-1:])
    except Exception as error:  # a file's configuration may hold anything
        if weights_only:
            return None, []
        reason = str(error).partition("\n")[0]
        return f"{filename} does not say which model it holds ({type(error).__name__}: {reason}). {NEW_MODEL} {filename}", []
    listed = [f"{flag_of(name)} {saved} there, {asked} here" for name, (saved, asked) in found.items()]
    if weights_only or not listed:
        return (f"the optimizer of {filename} {ONLY_ZERO}" if sharded and not (weights_only or loads_shards) else None), listed
    return f"{filename} holds another model than the one to be trained: {'; '.join(listed)}. {NEW_MODEL} {filename}", listed


def saved_options(content: dict[str, Any]) -> tuple[str, tuple[Namespace, Namespace], OptionSet | None]:
    """The architecture of the model that a checkpoint holds, the options of the model and of the task, and their kind.

    fairseq's own RoBERTa counts as ours with absolute positions; of other models there is no kind.

    Raises:
        Exception: any, if the file is not such a checkpoint.
    """
    cfg = content["cfg"] if content.get("cfg") is not None else {"model": content["args"], "task": content["args"]}
    model, task = (Namespace(**(vars(part) if isinstance(part, Namespace) else part)) for part in (cfg["model"], cfg["task"]))
    arch = getattr(model, "_name", None) or model.arch
    ARCH_CONFIG_REGISTRY[arch](model)
    if ARCH_MODEL_REGISTRY[arch] is RobertaModel:
        return arch, (our_options(vars(model)), task), ENCODER_OPTIONS
    return arch, (model, task), getattr(ARCH_MODEL_REGISTRY[arch], "option_set", None)
