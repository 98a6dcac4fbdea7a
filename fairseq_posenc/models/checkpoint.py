"""A checkpoint of fairseq's trainer: read without running anything from it, its shape checked, and the model it describes.

Everything that is read from such a file comes through here, so that a file of another kind, a damaged one and one that was
made to do harm end in a sentence.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import pickle
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import omegaconf_no_object_check
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.models.roberta import RobertaModel
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from ..compat import loading, trust
from ..encoder import Encoder
from .config import ENCODER_FIELDS, POSITION_FIELDS
from .roberta import PosencRobertaModel, complete, encoder_config
from .stock import from_stock

StateDict = dict[str, Tensor]

WORDS = "encoder.sentence_encoder.embed_tokens.weight"
ENCODER = "encoder.sentence_encoder."
MOST_LAYERS = 1000
MOST = 10**6  # of any other size


def load(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, as it was saved.

    ``model`` is a dictionary of ordinary tensors; where there are ``args``, ``cfg``, ``extra_state``, ``optimizer_history``,
    ``last_optimizer_state`` and ``task_state``, they have the types that fairseq's trainer gives them.

    Raises:
        ValueError: the file is no such checkpoint, or damaged; says how that shows.
        OSError: it cannot be opened.
    """
    try:
        content = loading.load(path)
    except (RuntimeError, pickle.UnpicklingError) as error:
        raise ValueError(str(error)) from error
    if fault := _fault(content):
        raise ValueError(f"{path} is no checkpoint that fairseq's trainer saved: {fault}")
    return content


def _fault(content: Any) -> str | None:
    """What a checkpoint of fairseq's trainer would not have."""
    if not isinstance(content, dict):
        return f"it holds a {type(content).__name__}, not a dictionary"
    if not isinstance(content.get("model"), dict):
        return "it has no 'model', a dictionary of tensors"
    for name, value in content["model"].items():
        if not isinstance(name, str) or not is_ordinary(value):
            return f"{name!r} of its model is no tensor of numbers that the file holds"
    kinds = {"args": Namespace, "cfg": (dict, DictConfig), "optimizer_history": list}
    for name in ("extra_state", "last_optimizer_state", "task_state"):
        kinds[name] = dict
    for name, kind in kinds.items():
        if content.get(name) is not None and not isinstance(content[name], kind):
            return f"its {name!r} is a {type(content[name]).__name__}"
    for entry in content.get("optimizer_history") or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("num_updates", 0), int):
            return "its 'optimizer_history' is not a list of dictionaries with the number of updates"
    return None


def is_ordinary(value: Any) -> bool:
    """Whether it is a tensor whose every number is in the file: none that is spread out, or has no content."""
    return (
        type(value) in (Tensor, nn.Parameter)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    )


@contextmanager
def explained(path: str | os.PathLike) -> Iterator[None]:
    """Turn whatever a file's configuration leads to into a sentence. Its values may be of any type and size.

    Raises:
        ValueError: names the file.
    """
    try:
        yield
    except OSError:
        raise
    except ValueError as error:
        raise error if str(path) in str(error) else ValueError(f"{path}: {error}") from error
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
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
        ValueError: it is not such a checkpoint.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        content = load(path)
        if content.get("args") is None and content.get("cfg") is None:
            raise ValueError(f"{path} holds no configuration: it is not a checkpoint that fairseq's trainer saved")
        self.content = _upgraded(path, content)
        self.state: StateDict = content["model"]
        self.cfg: DictConfig = content["cfg"]
        self._options: DictConfig = self._find_options()
        self.arch = str(getattr(self._options, "_name", None) or self._options.arch)
        if WORDS not in self._ours or self._ours[WORDS].dim() != 2:
            raise ValueError(f"{path} is of the architecture {self.arch!r} and has no {WORDS}: it is no RoBERTa-like encoder")

    @property
    def symbols(self) -> int:
        """For how many symbols it has word embeddings."""
        return len(self._ours[WORDS])

    @property
    def updates(self) -> int | None:
        """For how many updates it was trained."""
        history = self.content.get("optimizer_history")
        return history[-1].get("num_updates") if history else None

    def section(self, name: str) -> Any:
        """A part of the configuration, such as ``task``; None where there is none."""
        return self.cfg[name] if name in self.cfg else None

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

    def describe(self, dictionary: Dictionary) -> Encoder:
        """The encoder that the configuration describes, with shapes and without numbers, so that it takes no memory.

        Raises:
            ValueError: there is no such encoder, or the file holds far fewer numbers than it would have.
        """
        with explained(self.path):
            options = self._our_options()
            self._check_sizes(vars(options))
            with torch.device("meta"):
                encoder = Encoder(encoder_config(complete(options, self.cfg.task), dictionary))
            described = sum(parameter.numel() for parameter in encoder.parameters())
        held = sum(value.numel() for value in self.state.values())
        if described > 2 * held:  # that some are missing is reported where they are taken over
            raise ValueError(
                f"{self.path}: its configuration describes an encoder of {described:,} parameters, and it holds {held:,}. It is "
                "damaged: use another checkpoint."
            )
        return encoder

    def build(self, dictionary: Dictionary) -> PosencRobertaModel:
        """The model with this package's encoder and the checkpoint's classification heads, not loaded yet.

        Raises:
            ValueError: as :meth:`describe`.
        """
        self.describe(dictionary)
        with explained(self.path):
            task: Any = SimpleNamespace(cfg=self.cfg.task, source_dictionary=dictionary)
            return PosencRobertaModel.build_model(self._our_options(load_checkpoint_heads=True), task)

    def _find_options(self) -> DictConfig:
        with explained(self.path):
            options = self.section("model")
            trust.require_ours(options, self.path)
            if self.section("task") is None:
                raise ValueError(f"{self.path}: its configuration names no task")
            if isinstance(options, Namespace):
                with omegaconf_no_object_check():
                    options = OmegaConf.create(vars(options))
            if not isinstance(options, DictConfig):
                raise ValueError(f"{self.path}: its configuration has no options of a model")
            return options

    @cached_property
    def _ours(self) -> StateDict:
        """The parameters under this package's names; checkpoints of old releases call their encoder decoder."""
        return {name.replace("decoder.", "encoder.", 1) if name.startswith("decoder.") else name: value
                for name, value in from_stock(self.state).items()}  # fmt: skip

    def _our_options(self, **changes: Any) -> Namespace:
        """The options for this package's model: fairseq's own is ours with absolute positions."""
        stock = {"positions": "absolute"} if ARCH_MODEL_REGISTRY[self.arch] is RobertaModel else {}
        return Namespace(**{**self.options(**changes), **stock})

    def _check_sizes(self, values: Mapping[str, Any]) -> None:
        """Refuse sizes that no tensors of the file bear out, or that none could."""
        for name in (*ENCODER_FIELDS, *POSITION_FIELDS):
            value = values.get(name)
            most = MOST_LAYERS if name == "encoder_layers" else MOST
            if isinstance(value, int) and not 0 <= value <= most:
                raise ValueError(f"{self.path}: its configuration has {name} = {value}, which is no size of a model")
        width = self._ours[WORDS].shape[-1]
        if values.get("encoder_embed_dim") not in (None, width):
            raise ValueError(
                f"{self.path} does not fit its own configuration: encoder_embed_dim is {values['encoder_embed_dim']}, and its "
                f"word embeddings have {width}"
            )


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
        raise ValueError(
            f"{path} is no checkpoint that fairseq's trainer saved: {type(error).__name__}: {reason} in its configuration or "
            "the trainer's state"
        ) from error
    finally:
        logging.disable(before)
