"""What determines a model's shape and behaviour, as plain values."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ...base.errors import MAX_POSITIONS, FieldError, check_value, suggestion, value_types
from ..schemes import Positions, Settings, build

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_accurate": functools.partial(F.gelu, approximate="tanh"),  # fairseq's name for it
    "relu": F.relu,
    "tanh": torch.tanh,
    "silu": F.silu,
}


def _option(default: Any, help: str = "", fairseq: str | None = None, transformers: str | None = None, **others: Any) -> Any:
    """A field of a config, with its name in fairseq and in transformers, and limits as for :func:`check_value`.

    A name in fairseq that begins with ``no_`` is the opposite. ``affects_output=False``: it does not change the function.
    """
    return field(default=default, metadata={"help": help, "fairseq": fairseq, "transformers": transformers, **others})


@dataclass(frozen=True)
class EncoderConfig:
    """Everything that determines an encoder; plain values only, so that it can be written to a file.

    ``embed_dim`` is the width E of the word embeddings, from which a linear layer leads to D (ALBERT, ELECTRA); 0: they are D
    wide, and there is no such layer. ``layer_groups`` is the number G of sets of weights, each of which L/G consecutive layers
    share (ALBERT); 0: each layer has its own.

    With ``gated_ffn``, ``fc1`` has ``2 ffn_dim`` outputs ``[a | b]``, and the input of ``fc2`` is ``activation(a) * b`` (Shazeer
    2020). ModernBERT (Warner et al. 2024) has that and ``normalize_before``, neither ``first_norm`` nor ``linear_bias``,
    ``norm_bias`` and ``head_bias``, and the initialization ``megatron`` (Shoeybi et al. 2019).

    With ``norm="rms"``, RMSNorm, ``g x / sqrt(mean(x²) + ε)`` (Zhang and Sennrich 2019, eq. 4), replaces each LayerNorm but those
    of schemes, and ``norm_bias`` has no effect. Without ``head_layer``, the language model's head is the output projection alone,
    and ``head_bias`` has no effect. EuroBERT (Boizard et al. 2025) has RMSNorm, and neither ``head_layer`` nor ``output_bias``.

    ``scale_embeddings`` multiplies the sum of word and position embeddings by √D and starts as Vaswani et al. 2017 do:
    embeddings at standard deviation 1/√D, and projections as Glorot and Bengio 2010.

    With ``masked_next_token``, masked token i is predicted from the state of token i - 1 of its row or document (Charpentier and
    Samuel 2024: GPT-BERT), so that the first token of each is not predicted.

    Raises:
        FieldError: a value without meaning, or beyond all sizes that are built; the message names the field.
    """

    vocab_size: int = _option(MISSING, minimum=1, maximum=1 << 24)
    padding_idx: int = _option(1, minimum=0, maximum=1 << 24)
    separator_idx: int | None = _option(2, minimum=0, maximum=1 << 24)
    layers: int = _option(12, "number of layers", "encoder_layers", "num_hidden_layers", minimum=1, maximum=10_000)
    layer_groups: int = _option(
        0, "sets of weights that consecutive layers share; ALBERT has 1; 0: each layer has its own", "encoder_layer_groups",
        minimum=0, maximum=10_000,
    )  # fmt: skip
    dim: int = _option(768, "width D of the model", "encoder_embed_dim", "hidden_size", minimum=1, maximum=1 << 17)
    embed_dim: int = _option(
        0, "width E of the word embeddings, projected to D; 128 in ALBERT; 0: D, without a projection", "embedding_size",
        minimum=0, maximum=1 << 17,
    )  # fmt: skip
    ffn_dim: int = _option(
        3072, "width of the feed-forward networks", "encoder_ffn_embed_dim", "intermediate_size", minimum=1, maximum=1 << 20
    )
    heads: int = _option(
        12, "number of attention heads", "encoder_attention_heads", "num_attention_heads", minimum=1, maximum=1 << 17
    )
    max_positions: int = _option(
        512, "number n of positions that schemes with tables learn; by default the task's length", "max_positions",
        "max_position_embeddings", minimum=1, maximum=MAX_POSITIONS,
    )  # fmt: skip
    positions: str = _option("absolute", "positional encoding", "positions")
    position_options: Mapping[str, Any] = field(default_factory=dict)
    position_sampling: str | None = _option(
        None, "draw positions for each batch of training: random:L, shift:K, cape, cape:SHIFT:JITTER:SCALE or uniform:L",
        "position_sampling",
    )  # fmt: skip
    position_evaluation: str | None = _option(
        None, "positions in evaluation after --position-sampling: even (spaced over L) or plain (0, 1, 2)",
        "position_evaluation", choices=("even", "plain"),
    )  # fmt: skip
    attention_backend: str = _option(
        "auto",
        "how attention is computed; a backend that cannot run the scheme is refused",
        "attention_backend",
        affects_output=False,
    )
    activation: str = _option(
        "gelu", "activation of the feed-forward networks", "activation_fn", "hidden_act", choices=tuple(ACTIVATIONS)
    )
    gated_ffn: bool = _option(
        False, "gated feed-forward networks (GeGLU, SwiGLU): the activation of half of the inner states times the other half",
        "gated_ffn",
    )  # fmt: skip
    linear_bias: bool = _option(True, "biases of the projections in the layers", "no_linear_bias")
    dropout: float = _option(
        0.1, "dropout probability", "dropout", "hidden_dropout_prob", minimum=0, maximum=1, affects_output=False
    )
    attention_dropout: float = _option(
        0.1, "dropout probability of attention weights", "attention_dropout", "attention_probs_dropout_prob",
        minimum=0, maximum=1, affects_output=False,
    )  # fmt: skip
    activation_dropout: float = _option(
        0.0, "dropout probability after the activation in feed-forward networks", "activation_dropout",
        minimum=0, maximum=1, affects_output=False,
    )  # fmt: skip
    layerdrop: float = _option(
        0.0, "probability of skipping a layer in training", "encoder_layerdrop", minimum=0, maximum=1, affects_output=False
    )
    normalize_before: bool = _option(False, "LayerNorm before each block rather than after it", "encoder_normalize_before")
    layernorm_embedding: bool = _option(True, "LayerNorm after the embeddings", "no_layernorm_embedding")
    first_norm: bool = _option(
        True, "LayerNorm before the first layer's attention, for layers with LayerNorm before each block", "no_first_norm"
    )
    norm: str = _option(
        "layer", "normalization: LayerNorm (layer), or in its place RMSNorm, which has no mean and no bias (rms)", "norm",
        choices=("layer", "rms"),
    )  # fmt: skip
    norm_bias: bool = _option(True, "biases of LayerNorm", "no_norm_bias")
    head_layer: bool = _option(True, "inner layer, activation and LayerNorm of the language model's head", "no_head_layer")
    head_bias: bool = _option(True, "bias of the inner layer of the language model's head", "no_head_bias")
    output_bias: bool = _option(True, "bias of the output projection of the language model's head", "no_output_bias")
    scale_embeddings: bool = _option(False, "multiplication of the word and position embeddings by sqrt(D)")
    layer_norm_eps: float = _option(
        1e-5, "what LayerNorm adds to the variance; 1e-12 in BERT", "layer_norm_eps", "layer_norm_eps", minimum=1e-20, maximum=1
    )
    mask_decoder_steps: int = _option(
        0, "runs of the last layer for masked words, absolute positions added to its queries; DeBERTa has 2; 0: none",
        "mask_decoder_steps", minimum=0, maximum=100,
    )  # fmt: skip
    masked_next_token: bool = _option(
        False, "prediction of a masked token from the state one place to its left, as in GPT-BERT", "masked_next_token"
    )
    initialization: str = _option(
        "bert", "initial weights: normal, of standard deviation 0.02 (bert), or truncated at twice that, and smaller by the root "
        "of twice the number of layers where a block ends (megatron)", "initialization", choices=("bert", "megatron"),
        affects_output=False,
    )  # fmt: skip
    checkpoint_activations: bool = _option(
        False, "recompute activations in the backward pass to save memory", "checkpoint_activations", affects_output=False
    )

    def __post_init__(self) -> None:
        types = value_types(type(self))
        for declared in fields(self):
            check_value(declared.name, getattr(self, declared.name), types[declared.name], declared.metadata)
        for name, index in (("padding_idx", self.padding_idx), ("separator_idx", self.separator_idx)):
            if index is not None and index >= self.vocab_size:
                raise FieldError(f"`{name}` must be below vocab_size {self.vocab_size}, got {index}")
        if self.layer_groups and self.layers % self.layer_groups:
            raise FieldError(f"`layers` {self.layers} do not divide into `layer_groups` {self.layer_groups}")
        if not self.first_norm and (self.layer_groups or not self.normalize_before):
            raise FieldError(
                "`first_norm` changes the first of layers with LayerNorm before each block (`normalize_before`) and weights of "
                "their own (no `layer_groups`): others need its default"
            )
        if self.embed_dim and not self.head_layer:
            raise FieldError("`head_layer` needs its default with `embed_dim`, the width to which the inner layer leads")
        if self.initialization != "bert" and self.scale_embeddings:
            raise FieldError(f"`initialization` {self.initialization} means nothing to `scale_embeddings`, which has its own")
        if self.mask_decoder_steps and self.normalize_before:
            raise FieldError("`mask_decoder_steps` needs LayerNorm after each block, so leave out `normalize_before`")


FAIRSEQ: dict[str, str] = {option.name: name for option in fields(EncoderConfig) if (name := option.metadata.get("fairseq"))}
TRANSFORMERS = {option.name: name for option in fields(EncoderConfig) if (name := option.metadata.get("transformers"))}
"""A field of EncoderConfig -> its name there. The schemes' options have one name everywhere."""
LAYER_TYPES = ("full_attention", "sliding_attention")
"""transformers' types of layers: those without a window, and those with one."""


@dataclass(frozen=True)
class DecoderConfig(EncoderConfig):
    """Everything that determines a decoder.

    ``cross_attention``: the layers attend to an encoder's states, too; a language model's do not. ``share_output``: the word
    embeddings are the output projection, too (Press and Wolf 2017).

    Raises:
        FieldError: as :class:`EncoderConfig`, or something that only encoders have.
    """

    cross_attention: bool = True
    share_output: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("mask_decoder_steps", "masked_next_token"):
            if getattr(self, name):
                raise FieldError(f"`{name}` predicts masked words, and a decoder has none: leave it out")
        if self.embed_dim:
            raise FieldError("`embed_dim` narrows the word embeddings, which are as wide as a decoder's output: leave it out")
        if not (self.head_layer and self.output_bias):
            raise FieldError("`head_layer` and `output_bias` are of the head of masked language models: leave them out")


Config = TypeVar("Config", bound=EncoderConfig)


def require_options(options: Iterable[str], known: Collection[str]) -> None:
    """Raise FieldError for the first option that is not known; the message has the nearest."""
    for name in options:
        if name not in known:
            raise FieldError(f"unknown option {name!r}: {suggestion(name, known)}Options of schemes belong in `position_options`")


def config_of(kind: type[Config], config: Config | str, options: Mapping[str, Any]) -> Config:
    """A config, or that of an expression with these options.

    Raises:
        FieldError: as :class:`EncoderConfig`, an unknown option, no ``vocab_size``, or options besides a config.
    """
    if not isinstance(config, str):
        if options:
            raise FieldError(f"`{next(iter(options))}` is given besides a config, which has it already: change the config")
        return config
    require_options(options, {declared.name for declared in fields(kind)} - {"positions"})
    if "vocab_size" not in options:
        raise FieldError("`vocab_size` is missing: give the number of symbols")
    return kind(positions=config, **options)


def build_positions(config: EncoderConfig) -> Positions:
    """The positional encoding of an encoder, freshly initialised.

    Raises:
        FieldError: as :class:`Positions` and :class:`LayeredPositions`.
    """
    settings = Settings(
        layers=config.layers,
        heads=config.heads,
        dim=config.dim,
        max_positions=config.max_positions,
        separator=config.separator_idx,
        embed_dim=config.embed_dim or None,
    )
    return build(config.positions, settings, config.position_options)
