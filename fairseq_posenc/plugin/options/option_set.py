"""The options of the models: command-line flags, Hydra's configuration and defaults.

What they mean needs no fairseq. They are made from the fields of the core's config and of the schemes' options, whose metadata
have help, limits and names. Every option may be ``None``, which means the architecture's value, so that one dataclass serves all
sizes and schemes.
"""

import argparse
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Optional

from ...base.errors import FieldError, InputError, flag_of, value_types
from ...core.attention import BACKENDS
from ...core.families import FAMILIES, TRANSFORMER, TRANSFORMER_LM
from ...core.schemes import REGISTRY, option_fields
from ...core.transformer import ACTIVATIONS, DecoderConfig, EncoderConfig, PositionSampling
from ...core.transformer.config import FAIRSEQ

ACTIVATION = sorted(ACTIVATIONS)
CHOICES = {"activation": ACTIVATION, "attention_backend": ["auto", *BACKENDS]}
CORE = {declared.name: declared for declared in dataclasses.fields(EncoderConfig)}
POSITIONS = ("positions", "attention_backend", "max_positions", "position_sampling", "position_evaluation")
"""The fields of the core's config that describe positions; the options have the same names in every kind of model."""


UNLIMITED = 10**6
"""Tokens; every model reports this length to fairseq, so that no sample is dropped because of the scheme."""


def opposite(option: str) -> str:
    """Return the name of the flag that switches a yes-or-no option off: ``no_x`` of ``x``, and ``x`` of ``no_x``."""
    return option[3:] if option.startswith("no_") else f"no_{option}"


@contextmanager
def field_errors_as_flags(names: Mapping[str, str] = FAIRSEQ) -> Iterator[None]:
    """Turn the core's FieldError into an InputError that names flags, by the ``names`` of the model's :class:`OptionSet`."""
    try:
        yield
    except FieldError as error:
        raise InputError(error.named(lambda field: flag_of(names.get(field, field)))) from error


def _optional(type_: Any, help_: str, affects_output: bool = True) -> Any:
    """Return an option without a default.

    Args:
        type_: its type, or the list of its values.
        affects_output: whether its value changes what the parameters compute.
    """
    return type_, dataclasses.field(default=None, metadata={"help": help_, "affects_output": affects_output})


def _flag(help_: str, affects_output: bool = True) -> Any:
    return bool, dataclasses.field(default=False, metadata={"help": help_, "affects_output": affects_output})


def _of_core(name: str, option: str) -> Any:
    metadata, kind = CORE[name].metadata, value_types(EncoderConfig)[name][0]
    described, affects_output = metadata["help"], metadata.get("affects_output", True)
    if name == "positions":
        described = f"{described} with --arch {' or '.join(FAMILIES)}: a sum (+) of {', '.join(sorted(REGISTRY))}"
    if kind is bool:
        described = f"no {described}" if option.startswith("no_") else described
        return _optional(bool, f"{described}; {flag_of(opposite(option))} is the opposite", affects_output)
    return _optional(CHOICES.get(name, kind), described, affects_output)


def _of_scheme(declared: dataclasses.Field) -> Any:
    """Return an option of a scheme; :attr:`Positions.effective_options` has those that affect the output."""
    is_bool = declared.type is bool
    kind = str if is_bool else declared.type  # true and false are written out, since None is neither
    choices = ("true", "false") if is_bool else declared.metadata.get("choices")
    default = "that of the scheme's source" if declared.default is None else declared.default
    listed = f" ({'|'.join(choices)})" if choices else ""
    return _optional(kind, f"{declared.metadata['help']}{listed} (default: {default})", affects_output=False)


def to_options(config: Any, names: Mapping[str, str] = FAIRSEQ) -> dict[str, Any]:
    """Return a core's config, or the defaults of its class, as a model's options, without those of its schemes."""
    values = {option: getattr(config, name) for name, option in names.items()}
    return {option: not value if option.startswith("no_") else value for option, value in values.items()}


def fill(options: Any, values: Mapping[str, Any]) -> None:
    """Set the options that are missing or None."""
    for name, value in values.items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)


def sample_lengths(task: Any) -> dict[str, int]:
    """Return the maximum number of tokens in a task's samples for each flag that limits it."""
    tokens = getattr(task, "tokens_per_sample", None)
    if tokens is not None:  # a language model's samples may begin with another symbol
        return {"--tokens-per-sample": tokens + bool(getattr(task, "add_bos_token", False))}
    sides = {f"--max-{side}-positions": getattr(task, f"max_{side}_positions", None) for side in ("source", "target")}
    return {flag: tokens for flag, tokens in sides.items() if tokens is not None}


def _most_positions(options: Any, task: Any) -> int | None:
    """Return the number of positions that tokens of a task's samples can have, if it limits them."""
    tokens = max(sample_lengths(task).values(), default=None)
    sampling = PositionSampling.parse(getattr(options, "position_sampling", None), getattr(options, "position_evaluation", None))
    return tokens if tokens is None or sampling is None else max(tokens, sampling.span(tokens) or 0)


@dataclasses.dataclass(frozen=True)
class OptionSet:
    """The options of a kind of model.

    Attributes:
        names: a field of the core's config -> the option's name; one that begins with ``no_`` negates the field.
        others: options that the core does not have: name -> type and dataclass field.
        values: defaults of the options that differ from the core's, or that the core does not have.
        task: fairseq's name of the task that trains such models.
    """

    names: Mapping[str, str]
    others: Mapping[str, Any]
    values: Mapping[str, Any]
    task: str

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The value of each option that neither the command line nor the architecture sets."""
        return {**to_options(EncoderConfig, self.names), **self.values}

    def fields(self) -> dict[str, Any]:
        """Return all options, with those of the schemes registered so far: name -> type or values, and dataclass field."""
        schemes = {name: _of_scheme(declared) for name, declared in option_fields().items()}
        core = {option: _of_core(name, option) for name, option in self.names.items()}
        return {**{name: core[name] for name in POSITIONS}, **schemes, **core, **self.others}

    def config(self) -> type[Any]:
        """Return the dataclass that flags and Hydra's configuration are made of."""
        from fairseq.dataclass import ChoiceEnum, FairseqDataclass

        declared = []
        for name, (kind, described) in self.fields().items():
            kind = ChoiceEnum(kind) if isinstance(kind, list) else kind
            declared.append((name, Optional[kind] if described.default is None else kind, described))
        return dataclasses.make_dataclass("ModelConfig", declared, bases=(FairseqDataclass,))

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command-line flags of all options, without defaults, and the opposites of the core's, without help."""
        from fairseq.dataclass.utils import gen_parser_from_dataclass

        gen_parser_from_dataclass(parser, self.config()(), delete_default=True)
        for name, option in self.names.items():
            if value_types(EncoderConfig)[name][0] is bool:
                parser.add_argument(flag_of(opposite(option)), dest=option, action="store_false", help=argparse.SUPPRESS)

    def actions(self) -> dict[str, argparse.Action]:
        """Return the command-line flags of all options, by name, to be added to a parser; they have no defaults."""
        self.add_to(parser := argparse.ArgumentParser(add_help=False))
        return {action.dest: action for action in parser._actions if action.help != argparse.SUPPRESS}

    def complete(self, options: Any, task: Any) -> None:
        """Set the options that have no value, except those of schemes, in place, for a task of these options."""
        fill(options, {"max_positions": _most_positions(options, task)})
        fill(options, self.defaults)

    def core_values(self, options: Any, dictionary: Any) -> dict[str, Any]:
        """Return the values of the core's config, from a model's complete options and its dictionary, fairseq's or ours."""
        words = dict(vocab_size=len(dictionary), padding_idx=dictionary.pad(), separator_idx=dictionary.eos())
        values: dict[str, Any] = {**words, "position_options": position_options(options)}
        for name, option in self.names.items():
            value = getattr(options, option)
            values[name] = not value if option.startswith("no_") else str(value) if isinstance(value, Enum) else value
        return values


ENCODER_OPTIONS = OptionSet(
    FAIRSEQ,
    dict(
        pooler_activation_fn=_optional([name for name in ACTIVATION if name != "silu"], "activation of classification heads"),
        pooler_dropout=_optional(float, "dropout probability in classification heads", affects_output=False),
        untie_weights_roberta=_flag("a separate output projection rather than the word embeddings"),
        compile=_flag(
            "compile the layers for training; needs batches of one shape: --task masked_lm_static", affects_output=False
        ),
        load_checkpoint_heads=_flag("(re-)register and load classification heads when loading checkpoints", affects_output=False),
    ),
    {"pooler_activation_fn": "tanh", "pooler_dropout": 0.0, "compile": False},
    task="masked_lm",
)
DEFAULTS = ENCODER_OPTIONS.defaults

_IN_ENCODERS = (
    *("embed_dim", "layer_groups", "mask_decoder_steps", "masked_next_token"),
    *("head_layer", "head_bias", "output_bias", "initialization"),
)
_IN_DECODERS = {
    **{name: option for name, option in FAIRSEQ.items() if name not in _IN_ENCODERS},
    "layernorm_embedding": "layernorm_embedding",
    "scale_embeddings": "no_scale_embedding",
}
_SHARED_OUTPUT = _flag("the decoder's word embeddings as its output projection")
_VALUES = {  # Vaswani et al. 2017, base
    "activation_fn": "relu", "attention_dropout": 0.0, "layernorm_embedding": False, "no_scale_embedding": False,
}  # fmt: skip

TRANSLATION_OPTIONS = OptionSet(
    _IN_DECODERS,
    {
        "decoder_layers": _optional(int, "number of the decoder's layers, in all else as the encoder's"),
        "share_decoder_input_output_embed": _SHARED_OUTPUT,
        "share_all_embeddings": _flag("the same embeddings for source, target and output; needs a joined dictionary"),
    },
    {**_VALUES, **TRANSFORMER.sizes[""]},
    task="translation",
)
"""Options of an encoder and a decoder, whose layers are alike."""


def decoder_config(options: Any, dictionary: Any) -> DecoderConfig:
    """Return the config of a translation model's decoder from the model's complete options; raises InputError."""
    values = {**TRANSLATION_OPTIONS.core_values(options, dictionary), "layers": options.decoder_layers}
    with field_errors_as_flags({**TRANSLATION_OPTIONS.names, "layers": "decoder_layers"}):
        return DecoderConfig(
            **values, share_output=bool(options.share_decoder_input_output_embed or options.share_all_embeddings)
        )


LANGUAGE_MODEL_OPTIONS = OptionSet(
    {name: option.replace("encoder_", "decoder_") for name, option in _IN_DECODERS.items()},
    {"share_decoder_input_output_embed": _SHARED_OUTPUT},
    {**_VALUES, **TRANSFORMER_LM.sizes[""]},
    task="language_modeling",
)
"""Options of a decoder alone."""


def add_position_flags(parser: argparse._ActionsContainer) -> None:
    """Declare the options of all schemes, for a command that is not fairseq's; :func:`position_options` reads them."""
    for name, declared in option_fields().items():
        kind, described = _of_scheme(declared)
        parser.add_argument(flag_of(name), type=kind, metavar=kind.__name__.upper(), help=described.metadata["help"])


def position_options(options: Any) -> dict[str, Any]:
    """Return the schemes' options among a model's that are not None, in the core's plain types, or raise InputError."""
    values = {name: value for name in option_fields() if (value := getattr(options, name, None)) is not None}
    for name, declared in option_fields().items():
        if declared.type is bool and name in values:
            if str(values[name]).lower() not in ("true", "false"):
                raise InputError(f"{flag_of(name)} must be true or false, got {values[name]!r}")
            values[name] = str(values[name]).lower() == "true"
    return values
