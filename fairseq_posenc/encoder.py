"""The transformer encoder that every face shares, with fairseq's parameter names and without fairseq."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .attention import BACKENDS, Backend, SelfAttention, choose
from .bounds import MOST_POSITIONS, check_value
from .schemes import Positions, Settings
from .terms import Sample, Terms, Window

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "tanh": torch.tanh, "silu": F.silu}


def _bounded(name: str, minimum: float, maximum: float, default: Any = MISSING) -> Any:
    """A field with the name that messages use: the flag's, where there is one."""
    return field(default=default, metadata={"name": name, "minimum": minimum, "maximum": maximum})


@dataclass(frozen=True)
class EncoderConfig:
    """Everything that determines an encoder; plain values only, so that it can be written to a file.

    Raises:
        ValueError: a value without meaning, or beyond all sizes that are built; the message names the flag.
    """

    vocab_size: int = _bounded("vocab_size", 1, 1 << 24)
    padding_idx: int = _bounded("padding_idx", 0, 1 << 24, default=1)
    separator_idx: int | None = _bounded("separator_idx", 0, 1 << 24, default=2)
    layers: int = _bounded("--encoder-layers", 1, 10_000, default=12)
    dim: int = _bounded("--encoder-embed-dim", 1, 1 << 17, default=768)
    ffn_dim: int = _bounded("--encoder-ffn-embed-dim", 1, 1 << 20, default=3072)
    heads: int = _bounded("--encoder-attention-heads", 1, 1 << 17, default=12)
    max_positions: int = _bounded("--max-positions", 1, MOST_POSITIONS, default=512)
    positions: str = "absolute"
    position_options: Mapping[str, Any] = field(default_factory=dict)
    attention_backend: str = "auto"
    activation: str = field(default="gelu", metadata={"name": "--activation-fn", "choices": tuple(ACTIVATIONS)})
    dropout: float = _bounded("--dropout", 0, 1, default=0.1)
    attention_dropout: float = _bounded("--attention-dropout", 0, 1, default=0.1)
    activation_dropout: float = _bounded("--activation-dropout", 0, 1, default=0.0)
    layerdrop: float = _bounded("--encoder-layerdrop", 0, 1, default=0.0)
    normalize_before: bool = False
    layernorm_embedding: bool = True
    layer_norm_eps: float = _bounded("--layer-norm-eps", 1e-20, 1, default=1e-5)
    checkpoint_activations: bool = False

    def __post_init__(self) -> None:
        for declared in fields(self):
            check_value(declared.metadata.get("name", declared.name), declared, getattr(self, declared.name))
        for name, index in (("padding_idx", self.padding_idx), ("separator_idx", self.separator_idx)):
            if index is not None and index >= self.vocab_size:
                raise ValueError(f"{name} must be below vocab_size {self.vocab_size}, got {index}")


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder gives, batch first."""

    last: Tensor  # (B, n, D)
    hidden: tuple[Tensor, ...] = ()  # the input of the first layer and the output of each, if asked for
    attentions: tuple[Tensor, ...] = ()  # (B, H, n, n) a layer, if asked for


def build_positions(config: EncoderConfig, ignore_idle: bool = False) -> Positions:
    """The positional encoding of an encoder, freshly initialised.

    Raises:
        ValueError: as :class:`Positions`.
    """
    settings = Settings(config.layers, config.heads, config.dim, config.max_positions, config.separator_idx)
    return Positions(config.positions, settings, config.position_options, ignore_idle)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection and a LayerNorm after (or before) it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.self_attn = SelfAttention(config.dim, config.heads, config.attention_dropout)
        self.self_attn_layer_norm = nn.LayerNorm(config.dim, config.layer_norm_eps)
        self.fc1 = nn.Linear(config.dim, config.ffn_dim)
        self.fc2 = nn.Linear(config.ffn_dim, config.dim)
        self.final_layer_norm = nn.LayerNorm(config.dim, config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, terms: Terms, backend: Backend, prepared: Any) -> tuple[Tensor, Tensor | None]:
        """(B, n, D) -> (B, n, D), and the attention weights where the backend has them."""
        before = self.config.normalize_before
        attention_input = self.self_attn_layer_norm(x) if before else x
        for addition in terms.inputs:
            attention_input = attention_input + addition
        z, p = self.self_attn(attention_input, terms, backend, prepared)
        x = x + self._dropout(z, self.config.dropout)
        if not before:
            x = self.self_attn_layer_norm(x)
        z = self.final_layer_norm(x) if before else x
        z = self._dropout(self.activation(self.fc1(z)), self.config.activation_dropout)
        x = x + self._dropout(self.fc2(z), self.config.dropout)
        return x if before else self.final_layer_norm(x), p

    def _dropout(self, x: Tensor, p: float) -> Tensor:
        return F.dropout(x, p, self.training)


class Encoder(nn.Module):
    """Word embeddings, positions, and layers.

    Raises:
        ValueError: a configuration without meaning; the message names the flag.
    """

    def __init__(self, config: EncoderConfig, embed_tokens: nn.Embedding | None = None) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = embed_tokens or nn.Embedding(config.vocab_size, config.dim, config.padding_idx)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        eps = config.layer_norm_eps
        self.layernorm_embedding = nn.LayerNorm(config.dim, eps) if config.layernorm_embedding else None
        self.layer_norm = nn.LayerNorm(config.dim, eps) if config.normalize_before else None
        self.apply(_init_as_bert)
        self.positions = build_positions(config)
        self.checkpoint_activations = config.checkpoint_activations
        self.backend = choose(config.attention_backend, self.positions.probe())

    def forward(
        self,
        tokens: Tensor | None,
        padding: Tensor | None = None,
        embeddings: Tensor | None = None,
        with_hidden: bool = False,
        with_attentions: bool = False,
    ) -> EncoderOutput:
        """Encode.

        Args:
            tokens: (B, n); may be None where ``embeddings`` are given.
            padding: (B, n) bool, True at padding; by default, where ``tokens`` are the padding symbol.
            embeddings: (B, n, D) to be used in place of the word embeddings.
            with_hidden: return the states between the layers.
            with_attentions: return the attention weights; computed by the eager backend.
        """
        if padding is None and tokens is not None:
            padding = tokens.eq(self.config.padding_idx)
        if padding is not None and not padding.any():
            padding = None
        words = self.embed_tokens(tokens) if embeddings is None else embeddings
        window = Window(words.shape[1], device=words.device)
        x = self._embed(words, window, Sample(tokens, _count_positions(words, padding)), padding)
        backend = BACKENDS["eager"] if with_attentions else self.backend
        blocked = None if padding is None else padding[:, None, None, :]

        hidden, attentions = [x], []
        terms = prepared = None
        for i, layer in enumerate(self.layers):
            previous, terms = terms, self.positions.terms(i, window, x)
            if terms is not previous:
                # Outside the layer, so that layers with equal terms share it and recomputation in backward never sees it.
                prepared = backend.prepare(terms, blocked, words)
            if self.training and self.config.layerdrop and torch.rand(()).item() < self.config.layerdrop:
                continue
            if self.checkpoint_activations and self.training:
                x, p = checkpoint(layer, x, terms, backend, prepared, use_reentrant=False)
            else:
                x, p = layer(x, terms, backend, prepared)
            hidden.append(x)
            attentions.append(p)
        window.forget()
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return EncoderOutput(x, tuple(hidden) if with_hidden else (), tuple(attentions) if with_attentions else ())

    def _embed(self, words: Tensor, window: Window, sample: Sample, padding: Tensor | None) -> Tensor:
        addition = self.positions.embed(window, sample)
        x = words if addition is None else words + addition.to(words.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = F.dropout(x, self.config.dropout, self.training)
        return x if padding is None else x.masked_fill(padding[..., None], 0.0)


def _count_positions(words: Tensor, padding: Tensor | None) -> Tensor:
    """(B or 1, n): each token's position among the tokens that are not padding, from 0; 0 at padding."""
    if padding is None:
        return torch.arange(words.shape[1], device=words.device)[None]
    return (padding.logical_not().cumsum(1) - 1).clamp(min=0).masked_fill(padding, 0)


def _init_as_bert(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()
