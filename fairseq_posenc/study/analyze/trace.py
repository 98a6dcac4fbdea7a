"""One forward pass of an encoder, with each layer's queries, keys and terms."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.attention import Call, Mask
from ...core.attention.bias import additive_bias
from ...core.attention.eager import scores
from ...core.attention.relative import dense
from ...core.terms import Terms
from ...core.transformer import Encoder
from ...core.transformer.layers import Attention


@dataclass(frozen=True, eq=False)
class Layer:
    """The inputs of one layer's attention."""

    queries: Tensor  # (B, H, n, d), before the terms' transforms
    keys: Tensor  # (B, H, n, d)
    terms: Terms  # projected

    @property
    def scale(self) -> float:
        """The scale s = 1/√(f·d), by which the layer multiplies products of queries and keys."""
        return float((self.terms.factor * self.queries.shape[-1]) ** -0.5)

    @property
    def call(self) -> Call:
        """The kind of call that computes this layer's attention."""
        n, d = self.queries.shape[-2:]
        return Call(self.queries.device, self.queries.dtype, d, n, n)

    @property
    def bias(self) -> Tensor | None:
        """(1 or B, 1 or H, n, n): the sum of the additive biases, or None."""
        return additive_bias(self.terms, self.call)

    @property
    def outside(self) -> Tensor | None:
        """(1, 1, n, n) bool, whether the key is outside the terms' window; None if none is."""
        return Mask().blocked(self.call, self.terms.window)

    @property
    def centred_scores(self) -> Tensor:
        """(B, H, n, n): the scores e_ij, the products of queries, keys and tables less their mean, which the softmax ignores.

        They are NaN where the key is outside the terms' window.
        """
        e = scores(self.queries, self.keys, self.terms, self.scale)
        for gain in self.terms.gains:
            e = e * dense(gain)
        e = e - e.mean((-2, -1), keepdim=True)
        e = e if self.bias is None else e + self.bias
        return e if (outside := self.outside) is None else e.masked_fill(outside, torch.nan)


@dataclass(frozen=True)
class Trace:
    """What one forward pass of an encoder of L layers on (B, n) tokens computes."""

    layers: list[Layer]
    hidden: tuple[Tensor, ...]  # (B, n, D): the input of the first layer and the output of each
    attentions: tuple[Tensor, ...]  # (B, H, n, n) per layer, if requested


@torch.no_grad()
def trace(encoder: Encoder, tokens: Tensor, inputs_embeds: Tensor | None = None, output_attentions: bool = False) -> Trace:
    """Run an encoder on sequences without padding.

    Args:
        encoder: for evaluation.
        tokens: (B, n).
        inputs_embeds: (B, n, E), which replace the word embeddings.
        output_attentions: keep the attention weights.
    """
    inputs: list[tuple[Attention, Tensor]] = []  # each call of a layer's attention, in the order of the layers
    modules = [module for module in encoder.modules() if isinstance(module, Attention)]  # one, where layers share it
    hooks = [module.register_forward_pre_hook(lambda m, args: inputs.append((m, args[0]))) for module in modules]
    try:
        output = encoder(tokens, inputs_embeds=inputs_embeds, output_hidden_states=True, output_attentions=output_attentions)
    finally:
        for hook in hooks:
            hook.remove()
    terms = encoder.positions.terms(encoder.windows(output.hidden_states[0], Mask(), None)[1])
    layers = []
    for number, (layer, (attention, x)) in enumerate(zip(encoder.layers_in_order, inputs, strict=True)):
        q, k = (proj(x).unflatten(-1, (attention.heads, -1)).transpose(1, 2) for proj in (attention.q_proj, attention.k_proj))
        layers.append(Layer(q, k, attention.project(terms.of(number, output.hidden_states[number], layer.normalised))))
    return Trace(layers, output.hidden_states, output.attentions)
