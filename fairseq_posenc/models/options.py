"""From the options that were given to those of a model, completed, checked and compared, and to the model itself."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from omegaconf import DictConfig, OmegaConf, open_dict

from ..errors import InputError
from ..schemes import Positions, option_fields
from ..transformer import Encoder, EncoderConfig, Stack, build_positions
from .architectures import fill, require_agreement
from .config import ENCODER_OPTIONS, OptionSet, naming_flags

UNLIMITED = 10**6  # tokens; every model's length for fairseq, so that it drops no sample because of the scheme

ONE_SHAPE = "masked_lm_static"
"""The task all of whose batches have one shape."""


def complete(args: DictConfig | Namespace, task: Any, kind: OptionSet = ENCODER_OPTIONS) -> DictConfig:
    """A model's options, each with its value: the one given, the architecture's or the default; see :func:`record` for schemes.

    Args:
        args: what was given; a config is changed in place.
        task: the task's options; a table of positions is as long as its samples.
        kind: which options there are.
    """
    if isinstance(args, Namespace):
        known = kind.fields()
        args = OmegaConf.structured(kind.config()(**{name: value for name, value in vars(args).items() if name in known}))
    with open_dict(args):
        fill(args, {"max_positions": max(_sample_lengths(task).values(), default=None)})
        fill(args, kind.defaults)
    return args


def record(args: DictConfig, positions: Positions) -> None:
    """Write the options of a model's schemes into its options, so that they describe it whatever the defaults become."""
    values = positions.complete_options
    with open_dict(args):
        for name in option_fields():
            value = values.get(name)
            setattr(args, name, str(value).lower() if isinstance(value, bool) else value)


def complete_new(args: DictConfig, arch: str, task: Any) -> None:
    """Complete a new model's options in place, after checking them.

    Args:
        args: what was given.
        arch: the name of the architecture.
        task: the task's options.

    Raises:
        InputError: they make no model, or another than the architecture's name means, or one that cannot take the task's
            samples, or some do not apply; the message names the flag.
    """
    model = ARCH_MODEL_REGISTRY[arch]
    with naming_flags(model.option_set.names):
        require_agreement(arch, args.positions)
        with open_dict(args):
            ARCH_CONFIG_REGISTRY[arch](args)
        complete(args, task, model.option_set)
        with torch.device("meta"):
            positions = model.build_core(args, Dictionary()).positions
    if getattr(args, "compile", False) and getattr(task, "_name", None) != ONE_SHAPE:
        raise InputError(f"--compile is for batches of one shape: add --task {ONE_SHAPE}, or leave --compile out")
    for flag, samples in _sample_lengths(task).items():
        if positions.max_length is not None and samples > positions.max_length:
            raise InputError(
                f"{flag} {samples} is more than --max-positions {positions.max_length}, which is all that --positions "
                f"{args.positions} learns: raise --max-positions, or leave it out, which makes it as long as the samples"
            )
    record(args, positions)


def differences(first: Any, second: Any, kind: OptionSet = ENCODER_OPTIONS) -> dict[str, tuple[Any, Any]]:
    """The options that make two models different functions of the same parameters: name -> both values.

    Args:
        first, second: complete options.
        kind: which options there are.
    """
    decisive = [name for name, (_, declared) in kind.fields().items() if declared.metadata["decides"] and name != "max_positions"]
    found = _unequal(*({name: _plain(getattr(args, name)) for name in decisive} for args in (first, second)))
    if not found:  # of the schemes' options, those count that have an effect, and only the same schemes have the same
        with torch.device("meta"), naming_flags(kind.names):
            both = [build_positions(encoder_config(args, Dictionary(), kind)) for args in (first, second)]
        found = _unequal(*(positions.effective_options for positions in both))
        lengths = [positions.max_length for positions in both]
        if None not in lengths:  # one that takes any length is the same on those that the other takes
            found |= _unequal(*({"max_positions": longest} for longest in lengths))
    return found


def encoder_config(args: Any, dictionary: Dictionary, kind: OptionSet = ENCODER_OPTIONS) -> EncoderConfig:
    """The shared encoder's config from a model's complete options."""
    return EncoderConfig(**config_values(args, dictionary, kind))


def build_encoder(args: Any, dictionary: Dictionary) -> Encoder:
    """An encoder from a model's complete options."""
    return Encoder(encoder_config(args, dictionary))


def config_values(args: Any, dictionary: Dictionary, kind: OptionSet) -> dict[str, Any]:
    """The values of the core's config that a model's complete options and its dictionary give."""
    words = dict(vocab_size=len(dictionary), padding_idx=dictionary.pad(), separator_idx=dictionary.eos())
    return {**words, **kind.core_values(args)}


def max_length(core: Stack) -> int:
    """Tokens of the longest sequence that an encoder or a decoder takes."""
    return core.positions.max_length or UNLIMITED


def dictionary_of(symbols: int) -> Dictionary:
    """A dictionary of this many made-up symbols, including fairseq's own four."""
    dictionary = Dictionary()
    for number in range(len(dictionary), symbols):
        dictionary.add_symbol(f"madeupword{number:04d}")
    return dictionary


def build(arch: str, options: DictConfig | Namespace, dictionary: Dictionary, task: Any = None) -> BaseFairseqModel:
    """The model of an architecture, freshly initialised, where there is a dictionary and no task of fairseq's.

    Args:
        arch: any that fairseq knows.
        options: the model's; what they lack is the architecture's. Changed in place.
        dictionary: its symbols.
        task: the task's options, where they matter.
    """
    ARCH_CONFIG_REGISTRY[arch](options)
    return ARCH_MODEL_REGISTRY[arch].build_model(options, SimpleNamespace(cfg=task, source_dictionary=dictionary))


def _sample_lengths(task: Any) -> dict[str, int]:
    """How many tokens the samples of a task have at most, by the flags that limit them."""
    tokens = getattr(task, "tokens_per_sample", None)
    if tokens is not None:  # and one more, where a language model's samples begin with a symbol of their own
        return {"--tokens-per-sample": tokens + bool(getattr(task, "add_bos_token", False))}
    sides = {f"--max-{side}-positions": getattr(task, f"max_{side}_positions", None) for side in ("source", "target")}
    return {flag: tokens for flag, tokens in sides.items() if tokens is not None}


def _plain(value: Any) -> Any:
    """A choice of flags counts as the string that files have for it."""
    return value if isinstance(value, (bool, int, float)) else str(value)


def _unequal(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys((*first, *second))
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}
