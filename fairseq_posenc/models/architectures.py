"""Registers the architectures of a family with fairseq, and checks names of architectures."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    BaseFairseqModel,
    register_model,
    register_model_architecture,
)
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from ..errors import InputError, suggestion
from ..families import FAMILIES, NEUTRAL, Family, architectures, is_acausal
from ..schemes import parse
from .config import ENCODER_OPTIONS


def register_family(
    family: Family, make_config: Callable[[], type[FairseqDataclass]] = ENCODER_OPTIONS.config
) -> Callable[[type[BaseFairseqModel]], type[BaseFairseqModel]]:
    """Class decorator that registers a family's model and architectures with fairseq and Hydra, with the flags of all schemes.

    Args:
        family: the family.
        make_config: makes the class of the model's options, for the schemes registered so far.
    """
    defaults = {name: architecture.options for name, architecture in architectures().items() if architecture.family is family}

    def register(model: type[BaseFairseqModel]) -> type[BaseFairseqModel]:
        def add_args(parser: argparse.ArgumentParser) -> None:
            gen_parser_from_dataclass(parser, MODEL_DATACLASS_REGISTRY[family.model](), delete_default=True)

        def update_config() -> None:
            config = make_config()
            model.__dataclass = config
            MODEL_DATACLASS_REGISTRY[family.model] = config
            store = ConfigStore.instance()
            store.store(name=family.model, group="model", node=config(), provider="fairseq_posenc")
            models = store.repo["model"]
            first = models[f"{family.model}.yaml"]
            for name in defaults:
                models[f"{name}.yaml"] = dataclasses.replace(first, name=f"{name}.yaml", node=Named(first.node, name))

        model.add_args = staticmethod(add_args)  # without defaults, which the architecture has
        register_model(family.model, dataclass=make_config())(model)
        for name, values in defaults.items():
            if name == family.model:  # which fairseq has made an architecture, without values
                ARCH_CONFIG_REGISTRY[name] = functools.partial(fill, values=family.options)
            else:
                register_model_architecture(family.model, name)(functools.partial(fill, values=values))
        update_config()
        _CONFIG_UPDATES.append(update_config)
        return model

    return register


_CONFIG_UPDATES: list[Callable[[], None]] = []


def update_configs() -> None:
    """Give every family's model the flags of schemes that were registered later, such as those of a ``--user-dir``."""
    for update in _CONFIG_UPDATES:
        update()


@dataclasses.dataclass(frozen=True)
class Named:
    """The options of a model under an architecture's name, made when Hydra copies them.

    Making them for hundreds of architectures would add a second to every start.
    """

    options: DictConfig
    name: str

    def __deepcopy__(self, memo: dict[int, Any]) -> DictConfig:
        options = copy.deepcopy(self.options, memo)
        options._name = self.name
        return options


def fill(args: Any, values: Mapping[str, Any]) -> None:
    """Set the options that ``args`` lacks or has as None."""
    for name, value in values.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def is_ours(name: str) -> bool:
    """Whether an architecture, which may be a user's own, belongs to one of this package's models."""
    return ARCH_MODEL_NAME_REGISTRY.get(name) in FAMILIES


def require_architecture(name: str) -> None:
    """Check that an architecture exists.

    Raises:
        InputError: it does not; the message gives the reason or the nearest names.
    """
    if name not in ARCH_MODEL_REGISTRY:
        if is_acausal(name):
            raise InputError(
                f"there is no --arch {name}: its scheme is for encoders and has no causal form, which a decoder needs"
            )
        raise InputError(
            f"unknown architecture {name!r} (--arch, model._name): {suggestion(name, ARCH_MODEL_REGISTRY)}"
            "fairseq-posenc schemes lists this package's, each also with _tiny and _large, and as albert_…"
        )


def require_agreement(name: str, positions: str | None) -> None:
    """Check that a new model of an architecture may have the given positions, or lack them.

    Raises:
        InputError: it may not, or they are not an expression; the message has what to write.
    """
    known = architectures().get(name)
    if known is None:  # a user's own architecture
        return
    if positions is None:
        if known.expression is None:
            raise InputError(
                f"--arch {name} leaves the positional encoding to --positions (model.positions), which is missing: name a "
                "scheme, as in --positions tisa, or a sum, as in --positions absolute+tisa. fairseq-posenc schemes lists them"
            )
        return
    schemes = {scheme.name for scheme in parse(positions)}
    if known.expression is not None and schemes != {*known.expression.split("+")}:
        neutral = known._replace(scheme=NEUTRAL).name
        raise InputError(
            f"--arch {name} stands for --positions {known.expression}, and --positions {positions} is given: write "
            f"--arch {neutral} --positions {positions} (with Hydra model._name={neutral} model.positions={positions}), "
            "or leave out --positions"
        )
