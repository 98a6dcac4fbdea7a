"""What a type of transformers' models is: its parameters' names, its configuration in both directions, and what is fixed.

fairseq's names are this project's. A model has the same tensors on both sides, with four exceptions: some are one tensor on one
side and several, one below the other, on the other side; BERT and types like it add a token type's vector to every embedding;
tied weights have two names in transformers, or one for both; and tables of positions may have other shapes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig

from ...base.errors import InputError
from ...core.transformer import ACTIVATIONS, EncoderConfig
from ...core.transformer.config import TRANSFORMERS
from ...plugin.checkpoint.state_dict import ABSOLUTE, CLASSIFICATION, ENCODER, LANGUAGE_MODEL, SPANS, WORDS, StateDict
from ...text.vocabulary import Dictionary

Options = dict[str, Any]
Names = str | tuple[str, ...]
Keys = tuple[tuple[Names, Names], ...]
"""Beginnings of parameters' names, fairseq's and transformers'; # is a number, and a tuple has the parts of one tensor."""
KINDS = ("MaskedLM", "SequenceClassification", "QuestionAnswering")
"""The kinds of heads that fairseq's encoders have: the ends of the names of transformers' classes."""
CAUSAL = ("CausalLM",)
"""The kind of head of language models that read from left to right."""
OUTPUT = f"{LANGUAGE_MODEL}weight"
PROJECTION, FINAL_NORM = f"{ENCODER}project_in_dim.", f"{ENCODER}layer_norm."
TOKEN_TYPES = "embeddings.token_type_embeddings.weight"
ABSENT = (TOKEN_TYPES, "contact_head.regression.weight", "contact_head.regression.bias")
"""Ends of the names of parameters that are zero in exports, as nothing here has them; the last two are ESM's, for proteins."""
DERIVED = ("predictions.bias", "lm_head.bias", "encoder.embed_positions.weight", "rotary_embeddings.inv_freq")
"""Ends of the names of parameters that are others once more, of RoFormer's sines, and of ESM's angles."""
ATTENTION: dict[Names, Names] = {
    **{f"self_attn.{name}_proj": f"self_attn.{name}_proj" for name in "qkv"},
    "self_attn.out_proj": "self_attn.o_proj",
}
"""The projections of attention as Llama, and many types since, name them."""
GATED: dict[Names, Names] = {"fc1": ("mlp.gate_proj", "mlp.up_proj"), "fc2": "mlp.down_proj"}
NORMS_AFTER: dict[Names, Names] = {"self_attn_layer_norm": "post_attention_layernorm", "final_layer_norm": "post_mlp_layernorm"}


def embeddings(model: str) -> Keys:
    """Return the names of BERT's embeddings in the module ``model``, and of their LayerNorm."""
    return (
        (WORDS, f"{model}.embeddings.word_embeddings.weight"),
        (ABSOLUTE, f"{model}.embeddings.position_embeddings.weight"),
        (f"{ENCODER}layernorm_embedding.", f"{model}.embeddings.LayerNorm."),
    )


def layers(layer: str, names: Mapping[Names, Names]) -> Keys:
    """Return the names of the parts of a layer, whose module ``layer`` has # for its number."""

    def within(module: str, names: Names) -> Names:
        return f"{module}.{names}." if isinstance(names, str) else tuple(f"{module}.{name}." for name in names)

    return tuple((within(f"{ENCODER}layers.#", ours), within(layer, theirs)) for ours, theirs in names.items())


def language_model(transform: str, norm: str, decoder: str) -> Keys:
    """Return the names of the language model's head: its inner layer and LayerNorm, and the output projection."""
    return (
        (f"{LANGUAGE_MODEL}dense.", f"{transform}.dense."),
        (f"{LANGUAGE_MODEL}layer_norm.", f"{transform}.{norm}."),
        (OUTPUT, f"{decoder}.weight"),
        (f"{LANGUAGE_MODEL}bias", f"{decoder}.bias"),
    )


def pooled(pooler: str) -> Keys:
    """Return the names of classification by BERT's pooler and one layer, and of question answering."""
    return (f"{CLASSIFICATION}dense.", f"{pooler}."), (f"{CLASSIFICATION}out_proj.", "classifier."), (SPANS, "qa_outputs.")


CLASSIFIER: Keys = ((CLASSIFICATION, "classifier."), (SPANS, "qa_outputs."))
"""Classification by RoBERTa's head of two layers, and question answering."""
ROBERTA_HEADS: Keys = (*language_model("lm_head", "layer_norm", "lm_head.decoder"), *CLASSIFIER)


class Head(NamedTuple):
    """The head that a checkpoint is exported with.

    Attributes:
        kind: one of :data:`KINDS` or :data:`CAUSAL`.
        tied: whether a language model's output projection is the word embeddings.
        width: of the inner layer of a classification head; None for another head.
        activation: of that layer.
        dropout: of a classification head.
    """

    kind: str
    tied: bool
    width: int | None
    activation: str
    dropout: float

    def may_have(self, width: int, activation: str) -> bool:
        """Return whether the inner layer of a classification head is of this width and activation; another head has none."""
        return self.width is None or (self.width, self.activation) == (width, activation)


class ModelType:
    """A type of transformers' models. To add one, write a module here with a subclass under :func:`register`.

    Attributes:
        name: transformers' name of the type, ``model_type``.
        prefix: the beginning of its classes' names.
        title: its name in text, if models are exported to it; empty if they become the project's own class.
        also: other types whose models are read as this one.
        library: the module that has its classes.
        heads: the kinds of heads, of :data:`KINDS`, that have an equivalent here; of other models the encoder is imported.
            With :data:`CAUSAL`, it is the type of a language model that reads from left to right, which is exported only.
        keys: the names of its parameters on both sides.
        names: a field of :class:`EncoderConfig` -> its name in the type's configuration.
        fixed: fields that have the same value in all models of the type.
        pooler: an option of a fairseq model -> names of it in the configuration, of which the first that is there counts.
        counts_from_padding: whether the first position is the row ``pad_token_id + 1`` of the table.
    """

    name: str
    prefix: str
    title = ""
    also: tuple[str, ...] = ()
    library: Any = transformers
    heads: tuple[str, ...] = KINDS
    keys: Keys
    names: Mapping[str, str] = TRANSFORMERS
    fixed: Mapping[str, Any] = {}
    pooler: Mapping[str, tuple[str, ...]] = {
        "pooler_activation_fn": ("pooler_activation", "pooler_hidden_act"),
        "pooler_dropout": ("pooler_dropout", "classifier_dropout_prob", "classifier_dropout", "hidden_dropout_prob"),
    }
    counts_from_padding = False

    def model_class(self, kind: str) -> Any:
        """Return the class for a kind of head; ``Model`` is none."""
        return getattr(self.library, self.prefix + ("Model" if kind == "Model" else f"For{kind}"))

    def head_of(self, config: PretrainedConfig) -> str:
        """Return the kind of the head that a configuration names, if it has an equivalent here, or ``Model``."""
        if not isinstance(config.architectures or [], list):
            raise InputError(f"architectures {config.architectures!r} is no list of names of classes")
        architecture = str((config.architectures or [""])[0]).replace("ForPreTraining", "ForMaskedLM")
        return next((head for head in self.heads if architecture.endswith(f"For{head}")), "Model")

    def model_options(self, config: PretrainedConfig) -> Options:
        """Return the options of a fairseq model's classification head that a configuration has.

        Raises:
            InputError: the head has an activation that has no equivalent here.
        """
        options: Options = {"pooler_activation_fn": "tanh"}
        for option, name in ((option, name) for option, names in self.pooler.items() for name in reversed(names)):
            if (value := getattr(config, name, None)) is not None:
                options[option] = value
        if (activation := our_activation(options["pooler_activation_fn"])) not in ACTIVATIONS:
            raise InputError(f"the pooler's activation {activation!r} has no equivalent here, only {', '.join(ACTIVATIONS)}")
        return options | {"pooler_activation_fn": activation}

    def prepare(self, config: PretrainedConfig, weights: StateDict) -> tuple[PretrainedConfig, StateDict]:
        """Return a source's configuration and weights as this type has them."""
        return config, weights

    def fields(self, config: PretrainedConfig) -> Options:
        """Return the fields of :class:`EncoderConfig` that follow from a configuration otherwise than by :attr:`names`.

        Raises:
            InputError: an option has a value without an equivalent here; the message names it.
        """
        return {}

    def after_import(self, state: StateDict, config: PretrainedConfig) -> None:
        """Convert what differs in more than its name, in a state dict under fairseq's names, in place."""

    def before_export(self, state: StateDict, config: PretrainedConfig) -> None:
        """Convert back what :meth:`after_import` converts, in a state dict under fairseq's names, in place."""

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        """Return options, besides :attr:`names`, of the model of this type that is nearest to an encoder; None if there is none.

        The caller compares the encoder with :meth:`encoder_config` of the result. A model of the result has the head. Types
        without a :attr:`title` are not asked.
        """
        return {}

    def encoder_config(self, config: PretrainedConfig, dictionary: Dictionary) -> EncoderConfig:
        """Return the encoder that a configuration describes, of the symbols of ``dictionary``.

        Raises:
            InputError: as :meth:`fields`, or a value that no encoder has.
        """
        values = {ours: getattr(config, theirs) for ours, theirs in self.names.items() if ours not in self.fixed}
        width = getattr(config, "embedding_size", config.hidden_size)
        values |= {"embed_dim": width if width != config.hidden_size else 0, **self.fixed, **self.fields(config)}
        values["activation"] = our_activation(named := values["activation"])
        if values["activation"] not in ACTIVATIONS:
            raise InputError(f"{self.names['activation']} {named!r} has no equivalent here, only {', '.join(ACTIVATIONS)}")
        return EncoderConfig(vocab_size=len(dictionary), padding_idx=dictionary.pad(), separator_idx=dictionary.eos(), **values)

    def new_config(self, encoder: EncoderConfig, options: Options) -> PretrainedConfig:
        """Return a configuration with the options that follow from an encoder by :attr:`names`, and others."""
        named = {theirs: getattr(encoder, ours) for ours, theirs in self.names.items()}
        named[self.names["activation"]] = their_activation(encoder.activation)
        config = AutoConfig.for_model(self.name, **{**named, **options})
        config.update(options)  # also by names that only transformers 4 reads
        return config

    def to_fairseq(self, state: StateDict, config: PretrainedConfig) -> tuple[StateDict, list[str]]:
        """Return a model's state dict under fairseq's names, and the names of parameters that have no place here.

        The vector of token type 0, which every token has here, goes into the position table, or into the word embeddings, which
        the output projection then differs from.
        """
        types = next((value for name, value in state.items() if name.endswith(TOKEN_TYPES)), None)
        headless = not any(name.startswith("classifier.") for name in state)
        poolers = [name for name in state if headless and "pooler." in name]
        known = {name: value for name, value in state.items() if name not in poolers}
        renamed, others = rename(known, [(theirs, ours) for ours, theirs in self.keys])
        if types is not None:
            table = ABSOLUTE if ABSOLUTE in renamed else WORDS
            renamed[table] = renamed[table] + types[0]
        self.after_import(renamed, config)
        return renamed, poolers + [name for name in others if not name.endswith((*ABSENT, *DERIVED))]

    def to_transformers(self, state: StateDict, config: PretrainedConfig) -> tuple[StateDict, list[str]]:
        """Return a state dict under transformers' names, and the names of parameters that a model of this type has no place for.

        Args:
            state: with ``classification_heads.out_proj.weight`` and the like for a classification head of any name.
            config: the result of :meth:`new_config`.
        """
        state = dict(state)
        self.before_export(state, config)
        return rename(state, self.keys)


MODEL_TYPES: dict[str, ModelType] = {}
"""By transformers' names of the types and of those that are read as them."""
CAUSAL_TYPES: dict[str, ModelType] = {}
"""The same of language models that read from left to right, which are not imported."""


def register(kind: type[ModelType]) -> type[ModelType]:
    """Enter a type into :data:`MODEL_TYPES` or :data:`CAUSAL_TYPES`, under its name and those of types that are read as it."""
    types = CAUSAL_TYPES if kind.heads == CAUSAL else MODEL_TYPES
    types.update(dict.fromkeys((kind.name, *kind.also), kind()))
    return kind


class RobertaHeads(ModelType):
    """A type with RoBERTa's heads, whose activations are GELU and tanh whatever is configured."""

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        if (head.kind == "MaskedLM" and encoder.activation != "gelu") or not head.may_have(encoder.dim, "tanh"):
            return None
        return {"type_vocab_size": 1, "classifier_dropout": head.dropout}


def our_activation(name: str) -> str:
    """Return this project's name of an activation in transformers."""
    return {"gelu_pytorch_tanh": "gelu_accurate", "gelu_new": "gelu_accurate", "swish": "silu"}.get(name, name)


def their_activation(name: str) -> str:
    """Return transformers' name of an activation of this project."""
    return "gelu_new" if name == "gelu_accurate" else name


def require_equal(config: PretrainedConfig, one: str, other: str) -> None:
    """Raise InputError if two options of a configuration differ, which this project has one for."""
    if (first := getattr(config, one)) != (second := getattr(config, other)):
        raise InputError(f"{one} {first} and {other} {second} cannot be imported, only the same for both")


def rename(state: StateDict, keys: Sequence[tuple[Names, Names]]) -> tuple[StateDict, list[str]]:
    """Return the tensors whose names begin as the first of a pair, beginning as the second instead; and the other names."""
    renamed: StateDict = {}
    rest = dict(state)
    for old, new in keys:
        olds, news = ((names,) if isinstance(names, str) else names for names in (old, new))
        pattern = re.compile(re.escape(olds[0]).replace(r"\#", r"(\d+)"))
        for match in [match for match in map(pattern.match, rest) if match]:
            end, number = match.string[match.end() :], "".join(match.groups())
            values: Sequence[Tensor] = [rest.pop(name.replace("#", number) + end) for name in olds]
            if len(olds) != len(news):
                values = [value.clone() for value in torch.cat([*values]).chunk(len(news))]
            renamed |= {name.replace("#", number) + end: value for name, value in zip(news, values, strict=True)}
    return renamed, list(rest)
