"""Registers the architectures of a family with fairseq, and checks names of architectures."""

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from fairseq.models import (
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    BaseFairseqModel,
    register_model,
    register_model_architecture,
)
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from ...base.errors import InputError, suggestion
from ...core.families import FAMILIES, NEUTRAL, Architecture, Family, architectures, lacks_causal_form
from ...core.schemes import same
from .option_set import fill


def register_family(family: Family) -> Callable[[type[BaseFairseqModel]], type[BaseFairseqModel]]:
    """Class decorator that registers a family's model and architectures with fairseq; :func:`update_configs` adds the flags."""

    def register(model: type[BaseFairseqModel]) -> type[BaseFairseqModel]:
        register_model(family.model)(model)
        for name, architecture in _architectures_of(family).items():
            values = family.options if name == family.model else architecture.options
            register_model_architecture(family.model, name)(functools.partial(fill, values=values))
        return model

    return register


def update_configs() -> None:
    """Add the flags of all registered schemes, those of a ``--user-dir`` included, to every family's model."""
    models = ConfigStore.instance().repo["model"]
    for family in FAMILIES.values():
        config = MODEL_REGISTRY[family.model].option_set.config()
        MODEL_REGISTRY[family.model].__dataclass = MODEL_DATACLASS_REGISTRY[family.model] = config
        ConfigStore.instance().store(name=family.model, group="model", node=config(), provider="fairseq_posenc")
        node = models[f"{family.model}.yaml"]
        for name in _architectures_of(family):
            models[f"{name}.yaml"] = dataclasses.replace(node, name=f"{name}.yaml", node=Named(node.node, name))


def _architectures_of(family: Family) -> dict[str, Architecture]:
    return {name: architecture for name, architecture in architectures().items() if architecture.family is family}


@dataclasses.dataclass(frozen=True)
class Named:
    """The options of a model under an architecture's name, which are made when Hydra copies them.

    Making them for hundreds of architectures would add a second to every start.
    """

    options: DictConfig
    name: str

    def __deepcopy__(self, memo: dict[int, Any]) -> DictConfig:
        options = copy.deepcopy(self.options, memo)
        options._name = self.name
        return options


def is_ours(name: str) -> bool:
    """Return whether an architecture, which may be a user's own, belongs to one of this package's models."""
    return ARCH_MODEL_NAME_REGISTRY.get(name) in FAMILIES


def require_architecture(name: str) -> None:
    """Raise InputError with the reason or the nearest names if an architecture does not exist."""
    if name not in ARCH_MODEL_REGISTRY:
        if lacks_causal_form(name):
            raise InputError(f"there is no --arch {name}: its scheme has no causal form, which a decoder needs")
        raise InputError(
            f"unknown architecture {name!r} (--arch, model._name): {suggestion(name, ARCH_MODEL_REGISTRY)}"
            "fairseq-posenc schemes lists this package's, each also with _tiny and _large, and as albert_… or modernbert_…"
        )


def require_agreement(name: str, positions: str | None) -> None:
    """Raise InputError with what to write unless a new model of an architecture may have these positions, or lack them."""
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
    if known.expression is not None and not same(positions, known.expression):
        neutral = known._replace(scheme=NEUTRAL).name
        raise InputError(
            f"--arch {name} means --positions {known.expression}, and --positions {positions} is given: write "
            f"--arch {neutral} --positions {positions} (with Hydra model._name={neutral} model.positions={positions}), "
            "or leave out --positions"
        )
