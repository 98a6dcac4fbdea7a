"""The layers that every model shares, with fairseq's parameter names and without fairseq."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...base.errors import FieldError
from ..attention import Attend
from ..terms import Terms
from .config import ACTIVATIONS, DecoderConfig, EncoderConfig


class Attention(nn.Module):
    """Projections around a backend, under fairseq's parameter names (``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``)."""

    def __init__(self, dim: int, heads: int, bias: bool = True) -> None:
        super().__init__()
        if dim % heads:
            raise FieldError(f"`dim` {dim} does not divide into `heads` {heads}")
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim, bias)
        self.k_proj = nn.Linear(dim, dim, bias)
        self.v_proj = nn.Linear(dim, dim, bias)
        self.out_proj = nn.Linear(dim, dim, bias)

    def project(self, terms: Terms) -> Terms:
        """Terms whose hidden tables have gone through this layer's own projections."""
        return terms.project(lambda t: self._split(self.k_proj(t))[0], lambda t: self._split(self.q_proj(t))[0])

    def forward(self, x: Tensor, attend: Attend, memory: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(B, n, D) -> (B, n, D), and the attention weights (B, H, n, n) if computed. Keys and values are of ``memory`` or x."""
        return self.attend(x, self.keys_and_values(x if memory is None else memory), attend)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, K, D) -> (B, H, K, d) each."""
        return self._split(self.k_proj(memory)), self._split(self.v_proj(memory))

    def attend(self, x: Tensor, keys_and_values: tuple[Tensor, Tensor], attend: Attend) -> tuple[Tensor, Tensor | None]:
        """(B, Q, D) -> (B, Q, D), with keys and values that exist already."""
        z, p = attend(self._split(self.q_proj(x)), *keys_and_values)
        return self.out_proj(z.transpose(1, 2).flatten(2)), p

    def _split(self, x: Tensor) -> Tensor:
        """(B, n, D) -> (B, H, n, d)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection and a LayerNorm after (or before) it.

    Args:
        number: the layer's place in the stack.
    """

    def __init__(self, config: EncoderConfig, number: int) -> None:
        super().__init__()
        self.config = config
        self.self_attn = Attention(config.dim, config.heads, config.linear_bias)
        self.self_attn_layer_norm = new_norm(config) if number or config.first_norm else nn.Identity()
        self.fc1 = nn.Linear(config.dim, config.ffn_dim * (2 if config.gated_ffn else 1), config.linear_bias)
        self.fc2 = nn.Linear(config.ffn_dim, config.dim, config.linear_bias)
        self.final_layer_norm = new_norm(config)
        self.activation = ACTIVATIONS[config.activation]

    def self_attention(
        self, x: Tensor, inputs: tuple[Tensor, ...], attend: Attend, memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The first half: (B, n, D) -> (B, n, D), and the attention weights where ``attend`` gives them."""
        y = self.normalised(x)
        for addition in inputs:
            addition = addition.to(y.dtype)
            y = y + addition
            memory = None if memory is None else memory + addition
        z, p = self.self_attn(y, attend, memory)
        return self._after(x, z, self.self_attn_layer_norm), p

    def normalised(self, x: Tensor) -> Tensor:
        """A layer's input (B, n, D) as attention reads it, before the additions of positions."""
        return self._before(x, self.self_attn_layer_norm)

    def feed_forward(self, x: Tensor) -> Tensor:
        """The second half: (B, n, D) -> (B, n, D)."""
        z = self.fc1(self._before(x, self.final_layer_norm))
        if self.config.gated_ffn:
            z, gate = z.chunk(2, dim=-1)
            z = self.activation(z) * gate
        else:
            z = self.activation(z)
        z = F.dropout(z, self.config.activation_dropout, self.training)
        return self._after(x, self.fc2(z), self.final_layer_norm)

    def _before(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x) if self.config.normalize_before else x

    def _after(self, x: Tensor, z: Tensor, norm: nn.Module) -> Tensor:
        x = x + F.dropout(z, self.config.dropout, self.training)
        return x if self.config.normalize_before else norm(x)


class EncoderLayer(Layer):
    """A layer of an encoder."""

    def forward(
        self, x: Tensor, inputs: tuple[Tensor, ...], attend: Attend, memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(B, n, D) -> (B, n, D), and the attention weights where ``attend`` gives them.

        ``inputs``, (B or 1, n, D) each, are added to the input of attention. Keys and values are of ``memory`` (B, n, D), or x.
        """
        x, p = self.self_attention(x, inputs, attend, memory)
        return self.feed_forward(x), p


class DecoderLayer(Layer):
    """A layer of a decoder; between its halves it attends to an encoder's states, if configured."""

    def __init__(self, config: DecoderConfig, number: int) -> None:
        super().__init__(config, number)
        if config.cross_attention:
            self.encoder_attn = Attention(config.dim, config.heads, config.linear_bias)
            self.encoder_attn_layer_norm = new_norm(config)

    def forward(
        self,
        x: Tensor,
        inputs: tuple[Tensor, ...],
        attend: Attend,
        cross_attend: Callable[[Attention, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """(B, n, D) -> (B, n, D); ``inputs`` as for an encoder's, and ``cross_attend`` as a function of projections and input."""
        x, _ = self.self_attention(x, inputs, attend)
        if cross_attend is not None:
            norm = self.encoder_attn_layer_norm
            x = self._after(x, cross_attend(self.encoder_attn, self._before(x, norm)), norm)
        return self.feed_forward(x)


def new_norm(config: EncoderConfig, width: int | None = None) -> nn.LayerNorm | nn.RMSNorm:
    """A new LayerNorm or RMSNorm of a model, D wide by default."""
    if config.norm == "rms":
        return nn.RMSNorm(width or config.dim, config.layer_norm_eps)
    return nn.LayerNorm(width or config.dim, config.layer_norm_eps, bias=config.norm_bias)


def init_weights(module: nn.Module, config: EncoderConfig) -> None:
    """Draw the weights of linear maps and embeddings as configured. Positions are not among them: schemes draw their own."""
    if config.initialization == "megatron":
        init_as_megatron(module, config.layers)
    else:
        module.apply(init_as_vaswani if config.scale_embeddings else init_as_bert)


def init_as_bert(module: nn.Module) -> None:
    """Normal weights of standard deviation 0.02, zero biases and padding (Devlin et al. 2019)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    _init_zeros(module)


def init_as_megatron(module: nn.Module, layers: int) -> None:
    """As BERT, with weights truncated at twice their standard deviation, that of each block's last projection 0.02/√(2L).

    Megatron-LM (Shoeybi et al. 2019, section 5.1), as in ModernBERT. LayerNorms are left as they are.
    """
    for name, part in module.named_modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            std = 0.02 / math.sqrt(2 * layers) if name.endswith(("out_proj", "fc2", "dense")) else 0.02
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
            _init_zeros(part)


def _init_zeros(module: nn.Module) -> None:
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()


def init_as_vaswani(module: nn.Module) -> None:
    """Projections as Glorot and Bengio 2010, embeddings at standard deviation 1/√D, zero biases and padding."""
    init_as_bert(module)
    with torch.no_grad():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
        if isinstance(module, nn.Embedding):
            module.weight *= module.embedding_dim**-0.5 / 0.02
