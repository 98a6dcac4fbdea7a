"""A checkpoint of fairseq's trainer: read without running anything from it, its shape checked, the model it describes, written.

Every read of such a file comes through here, so that another kind of file, a damaged one and a malicious one all end in one
sentence.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import interpret_dc_type, omegaconf_no_object_check
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, BaseFairseqModel
from fairseq.models.roberta import RobertaModel
from omegaconf import DictConfig, OmegaConf, open_dict

from ..compat import loading, trust
from ..errors import InputError
from ..families import FAMILIES, ROBERTA, true_name
from ..files import atomic_write
from ..transformer import Encoder
from .config import DEFAULTS, ENCODER_OPTIONS
from .heads import SpanHead
from .options import build, complete, dictionary_of, encoder_config
from .state import ENCODER, SPANS, WORDS, StateDict, count_layers, is_ordinary, load_into
from .stock import from_stock, our_options

LARGEST_SIZE = 10**6  # of any size


def load(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, as it was saved.

    ``model`` is a dictionary of ordinary tensors; where there are ``args``, ``cfg``, ``extra_state``, ``optimizer_history``,
    ``last_optimizer_state`` and ``task_state``, they have the types that fairseq's trainer gives them.

    Raises:
        InputError: the file is no such checkpoint, or damaged; says how that shows.
        OSError: it cannot be opened.
    """
    content = loading.load(path)
    if fault := _fault(content):
        raise _no_checkpoint(path, fault)
    return content


def write(path: Path, content: dict[str, Any]) -> None:
    """Write what a checkpoint holds, atomically."""
    with atomic_write(path, "wb") as stream:
        torch.save(content, stream)


def untrained(cfg: DictConfig, model: BaseFairseqModel) -> dict[str, Any]:
    """What fairseq's trainer would have written before its first update."""
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "criterion": None,
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {"metrics": None, "previous_training_time": 0},
        "last_optimizer_state": None,
    }


def _no_checkpoint(path: Path, fault: str) -> InputError:
    return InputError(
        f"{path} is not a checkpoint of fairseq's trainer: {fault}. Name a .pt file that fairseq-train has written."
    )


def _fault(content: Any) -> str | None:
    """What shows that this is not a checkpoint of fairseq's trainer; None if nothing does."""
    if not isinstance(content, dict):
        return f"it holds a {type(content).__name__}, not a dictionary"
    if not isinstance(content.get("model"), dict):
        return "it has no 'model', a dictionary of tensors"
    for name, value in content["model"].items():
        if not isinstance(name, str) or not is_ordinary(value):
            return f"in its model, {name!r} is not a tensor of numbers that the file holds"
    kinds = {"args": Namespace, "cfg": (dict, DictConfig), "optimizer_history": list}
    for name in ("extra_state", "last_optimizer_state", "task_state"):
        kinds[name] = dict
    for name, kind in kinds.items():
        if content.get(name) is not None and not isinstance(content[name], kind):
            return f"its {name!r} is of the type {type(content[name]).__name__}"
    history = content.get("optimizer_history")
    if history is not None and not all(isinstance(entry, dict) and type(entry.get("num_updates", 0)) is int for entry in history):
        return "its 'optimizer_history' is not a list of dictionaries with the number of updates"
    return "its 'optimizer_history' is empty" if history == [] else None


@contextmanager
def explained(path: str | os.PathLike) -> Iterator[None]:
    """Turn any error that a file's configuration leads to into one sentence. Its values may be of any type and size.

    Raises:
        InputError: names the file.
    """
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if isinstance(error, InputError):
            raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{path}: its configuration describes no model that can be built ({type(error).__name__}: {reason}). It is damaged "
            "or of another release: use another."
        ) from error


class Trained:
    """A checkpoint of one of this package's models, or of fairseq's own RoBERTa.

    Args:
        path: the file.

    Attributes:
        path: the file.
        content: what it holds, brought up to date as fairseq does.
        state: its parameters, as they are named there.
        cfg: the run's configuration; ``cfg.model`` are the model's options.
        arch: the name of the architecture.

    Raises:
        InputError: it is not such a checkpoint.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        content = load(path)
        cfg = content.get("cfg")
        if content.get("args") is None and cfg is None:
            raise _no_checkpoint(path, "it holds no configuration")
        for name in ("model", "task"):
            if cfg is not None and not isinstance(cfg.get(name), (dict, DictConfig, Namespace)):
                raise _no_checkpoint(path, f"its configuration has no options of the {name}")
        self.content = _upgraded(path, content)
        self.state: StateDict = content["model"]
        self.cfg: DictConfig = content["cfg"]
        self._options: DictConfig = self._find_options()
        name = str(getattr(self._options, "_name", None) or self._options.arch)
        self.arch = true_name(name, getattr(self._options, "positions", None))
        family = FAMILIES.get(ARCH_MODEL_NAME_REGISTRY.get(self.arch, ""))
        if family is not None and family.causal:
            raise InputError(
                f"{path} is of the architecture {self.arch!r}, which has a decoder. Only encoders (roberta_…, albert_…) can be "
                "exported, fine-tuned or read alone; fairseq-generate, fairseq-interactive and fairseq-eval-lm run it"
            )
        if WORDS not in self._ours or self._ours[WORDS].dim() != 2:
            raise InputError(f"{path} is of the architecture {self.arch!r} and has no {WORDS}: it is not a RoBERTa-like encoder")

    @property
    def symbols(self) -> int:
        """For how many symbols it has word embeddings."""
        return len(self._ours[WORDS])

    @property
    def is_stock(self) -> bool:
        """Whether it is fairseq's own RoBERTa."""
        return ARCH_MODEL_REGISTRY[self.arch] is RobertaModel

    @property
    def updates(self) -> int | None:
        """For how many updates it was trained."""
        history = self.content.get("optimizer_history")
        return history[-1].get("num_updates") if history else None

    def section(self, name: str) -> Any:
        """A part of the configuration, such as ``task``; None where there is none."""
        return self.cfg[name] if name in self.cfg else None  # noqa: SIM401 - its get() refuses what is not there

    def options(self, **changes: Any) -> DictConfig:
        """The model's options with ``changes``, such as other dropout probabilities."""
        options = copy.deepcopy(self._options)
        declared = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY[self.arch])
        with open_dict(options):
            options._name = self.arch
            options.update(changes)
            if declared is not None:  # building a model adds to its options what fairseq then refuses in a configuration
                for name in set(options) - {"_name", *(field.name for field in dataclasses.fields(declared))}:
                    del options[name]
        return options

    def describe(self, dictionary: Dictionary, **changes: Any) -> Encoder:
        """The encoder that the configuration, with ``changes``, describes: shapes but no values, so that it takes no memory.

        Raises:
            InputError: there is no such encoder, or the file holds far fewer numbers than it would have.
        """
        with explained(self.path):
            options = self._our_options(**changes)
            self._check_sizes(vars(options))
            with torch.device("meta"):
                encoder = Encoder(encoder_config(complete(options, self.cfg.task), dictionary))
            described = sum(parameter.numel() for parameter in encoder.parameters())
        held = sum(value.numel() for value in self.state.values())
        if described > 2 * held:  # that some are missing is reported where they are taken over
            raise InputError(
                f"{self.path}: its configuration describes an encoder of {described:,} parameters, and it holds {held:,}. It is "
                "damaged: use another checkpoint."
            )
        return encoder

    def encoder(self) -> Encoder:
        """The encoder alone, with the checkpoint's parameters, in float32 and for evaluation.

        Raises:
            InputError: as :meth:`describe`, or the parameters are not those of the encoder.
        """
        encoder = Encoder(self.describe(dictionary_of(self.symbols)).config)
        state = {name.removeprefix(ENCODER): value for name, value in self._ours.items() if name.startswith(ENCODER)}
        load_into(encoder, state, f"{self.path} does not fit the encoder that its own configuration describes")
        return encoder.float().eval()

    def model(self, dictionary: Dictionary, **changes: Any) -> BaseFairseqModel:
        """fairseq's model with this package's encoder and the checkpoint's heads and parameters, in float32 and for evaluation.

        Args:
            dictionary: its symbols.
            changes: other values of the model's options, of such as leave the parameters' shapes.

        Raises:
            InputError: as :meth:`describe`, or the parameters do not fit the model that the checkpoint describes.
        """
        self.describe(dictionary, **changes)
        with explained(self.path):
            options = self._our_options(load_checkpoint_heads=True, **changes)
            model = build(ROBERTA.model if self.is_stock else self.arch, options, dictionary, self.cfg.task)
            if f"{SPANS}weight" in self.state:
                model.encoder.lm_head = SpanHead(model.args.encoder_embed_dim)
            load_into(model, self.state, f"{self.path} does not fit the model that its own configuration describes")
        return model.float().eval()

    def stock_model(self, dictionary: Dictionary) -> BaseFairseqModel:
        """The same for fairseq's own RoBERTa, with fairseq's encoder.

        Raises:
            InputError: as :meth:`describe`, or the parameters are not those of such a model.
        """
        self.describe(dictionary)
        with explained(self.path):
            model = build(self.arch, Namespace(**self.options()), dictionary)
            load_into(model, self.state, f"{self.path} is not fairseq's RoBERTa")
        return model.float().eval()

    def _find_options(self) -> DictConfig:
        with explained(self.path):
            options = self.section("model")
            trust.require_ours(options, self.path)
            if isinstance(options, Namespace):
                with omegaconf_no_object_check():
                    options = OmegaConf.create(vars(options))
            return options

    @cached_property
    def _ours(self) -> StateDict:
        """The parameters under this package's names; checkpoints of old releases call their encoder decoder."""
        return {name.replace("decoder.", "encoder.", 1) if name.startswith("decoder.") else name: value
                for name, value in from_stock(self.state).items()}  # fmt: skip

    def _our_options(self, **changes: Any) -> Namespace:
        """The options for this package's model: fairseq's own is ours with absolute positions."""
        options = self.options(**changes)
        return our_options(options) if self.is_stock else Namespace(**options)

    def _check_sizes(self, values: Mapping[str, Any]) -> None:
        """Refuse values that no model has, and sizes that are not those of the file's tensors."""
        for name, (declared, _) in ENCODER_OPTIONS.fields().items():
            value = values.get(name)
            if value is not None and not _can_be(value, declared):
                raise InputError(f"{self.path}: its configuration has {name} = {value!r}, which no model has. It is damaged: use "
                                 "another checkpoint.")  # fmt: skip
        layers = "encoder_layer_groups" if values.get("encoder_layer_groups") else "encoder_layers"
        width = "embedding_size" if values.get("embedding_size") else "encoder_embed_dim"
        for name, size in {layers: count_layers(self.state), width: self._ours[WORDS].shape[-1]}.items():
            if (described := values.get(name) or DEFAULTS[name]) != size:
                raise InputError(
                    f"{self.path} does not fit its own configuration, in which {name} is {described!r}: by its parameters it "
                    f"is {size}. It is damaged: use another checkpoint."
                )


def _can_be(value: Any, declared: Any) -> bool:
    """Whether it can be the value of an option that is declared so, and is no absurd size."""
    kind = interpret_dc_type(declared)
    if issubclass(kind, Enum):
        return str(value) in [str(choice.value) for choice in kind]
    if isinstance(value, int) and not 0 <= value <= LARGEST_SIZE:
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _upgraded(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The content as ``fairseq.checkpoint_utils.load_checkpoint_to_cpu`` gives it."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)  # fairseq logs a page where it cannot read a configuration; what we raise says it
    try:
        with omegaconf_no_object_check():  # fairseq puts namespaces into configurations
            if content.get("cfg") is not None:
                content["cfg"] = OmegaConf.create(content["cfg"])
                OmegaConf.set_struct(content["cfg"], True)
        return checkpoint_utils._upgrade_state_dict(content)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        fault = f"its configuration or the trainer's state cannot be read ({type(error).__name__}: {reason})"
        raise _no_checkpoint(path, fault) from error
    finally:
        logging.disable(before)
