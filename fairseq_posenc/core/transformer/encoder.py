"""The transformer encoder that all interfaces share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...base.errors import FieldError
from ..attention import Attend, Mask
from ..terms import Window, is_captured
from .config import EncoderConfig, config_of
from .layers import EncoderLayer, init_as_bert
from .stack import Stack, reordered, require_padding, tokens_first

COMPILER = "inductor"


@dataclass(frozen=True)
class EncoderOutput:
    """The output of an encoder, batch first."""

    last_hidden_state: Tensor  # (B, n, D)
    hidden_states: tuple[Tensor, ...] = ()  # the input of the first layer and the output of each, if requested
    attentions: tuple[Tensor, ...] = ()  # (B, H, n, n) per layer, if requested

    def reordered(self, order: Tensor) -> EncoderOutput:
        """The same with the places of each row in its order, (B, n)."""
        by_key = (reordered(p.transpose(1, 3), order) for p in self.attentions)  # (B, K, Q, H)
        by_query = (reordered(p.transpose(1, 2), order) for p in by_key)  # (B, Q, K, H)
        return EncoderOutput(
            reordered(self.last_hidden_state, order),
            tuple(reordered(state, order) for state in self.hidden_states),
            tuple(p.permute(0, 3, 1, 2) for p in by_query),
        )


class Encoder(Stack):
    """A stack in which every token attends to all others.

    Args:
        config: everything that determines it; or an expression of positions, such as ``"absolute+tisa"``, whose config has
            ``options``.
        embed_tokens: word embeddings to be used, with their weights, in place of new ones.
        options: fields of :class:`.config.EncoderConfig`, ``vocab_size`` among them.

    Raises:
        FieldError: an option or an expression that cannot be used.
    """

    def __init__(self, config: EncoderConfig | str, embed_tokens: nn.Embedding | None = None, **options: Any) -> None:
        config = config_of(EncoderConfig, config, options)
        super().__init__(config, EncoderLayer, embed_tokens)
        self.mask_positions = nn.Embedding(config.max_positions, config.dim) if config.mask_decoder_steps else None
        if self.mask_positions is not None:
            init_as_bert(self.mask_positions)
            if self.sampling is not None:
                self._mask_positions(self.sampling.extremes)
        self.compiles_layers = False  # in training; every shape of a batch is compiled for

    def forward(
        self,
        tokens: Tensor | None,
        padding: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        decode_masks: bool = False,
        mask: Mask | None = None,
        position_ids: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode tokens. Positions count the tokens that are not padding, on whichever side the padding is.

        Args:
            tokens: (B, n); may be None where ``inputs_embeds`` are given.
            padding: (B, n) bool, True at padding; by default, where ``tokens`` are the padding symbol.
            inputs_embeds: (B, n, D), or (B, n, E) where ``embed_dim`` is set, to be used in place of the word embeddings.
            output_hidden_states: return the states between the layers.
            output_attentions: return the attention weights, computed by a backend that supports it.
            decode_masks: return the states that masked words are predicted from: those of DeBERTa's enhanced mask decoder, if the
                model has one, which replaces the last layer, and with ``masked_next_token`` for each token that of the token
                before it. The attention weights of the decoder are those of every step.
            mask: the mask of the batch, in place of ``padding``, with padding on the right only. Tokens attend to their own
                document, and positions restart in each.
            position_ids: (B or 1, n), each token's position: whole numbers from 0, or real ones for schemes that compute their
                terms. They need not be neighbours, nor in order.

        Raises:
            FieldError: a sequence that is too long, padding of another shape or type or besides a mask, or positions that the
                scheme has no terms for.
        """
        order = None
        words = self.embed_tokens(tokens) if inputs_embeds is None else inputs_embeds
        require_padding(padding, *words.shape[:2])
        if padding is not None and mask is not None:
            raise FieldError("`padding` and `mask` are both given: give the padding in the mask")
        if mask is None:
            if padding is None and tokens is not None:
                padding = tokens.eq(self.config.padding_idx)
            if padding is not None and not is_captured() and not padding.any():
                padding = None
            order = None if padding is None else tokens_first(padding)
            words, tokens, padding, position_ids = (reordered(x, order) for x in (words, tokens, padding, position_ids))
            mask = Mask(padding)
        window, window_of_terms = self.windows(words, mask, position_ids)
        x = self.embed(words, window, tokens)
        x = x if mask.padding is None else x.masked_fill(mask.padding[..., None], 0.0)
        terms = self.positions.terms(window_of_terms)
        hidden = [x]
        attentions: list[Tensor | None] = []
        bound: dict[int, Attend] = {}
        for i, layer in enumerate(self.layers_in_order):
            decodes = decode_masks and self.mask_positions is not None and i == self.config.layers - 1
            if not decodes and self.skips_layer():
                continue
            # Outside the layer, so that layers with the same terms share it and checkpointing does not recompute it.
            own = layer.self_attn.project(terms.of(i, x, layer.normalised))
            attend = bound.get(id(own)) or self.bind(own, mask, words, window.keys, output_attentions)
            if terms.shared(own):
                bound[id(own)] = attend
            if decodes:
                x, weights = self._decode_masks(layer, x, window, own.inputs, attend)
            else:
                x, p = self._run(layer, x, own.inputs, attend)
                weights = [p]
            attentions += weights
            hidden.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        if decode_masks and self.config.masked_next_token:
            x = _states_before(x, mask)
        given = tuple(p for p in attentions if p is not None)
        output = EncoderOutput(x, tuple(hidden) if output_hidden_states else (), given)
        return output if order is None else output.reordered(order.argsort(1))

    def _run(self, layer: nn.Module, *inputs: Any) -> tuple[Tensor, Tensor | None]:
        """A layer's output and attention weights, compiled or recomputed in the backward pass if requested."""
        run = _compiled() if self.compiles_layers and self.training else _call
        if self.checkpoint_activations and self.training:
            return checkpoint(run, layer, *inputs, use_reentrant=False)
        return run(layer, *inputs)

    def _decode_masks(
        self, layer: nn.Module, x: Tensor, window: Window, inputs: tuple[Tensor, ...], attend: Attend
    ) -> tuple[Tensor, list[Tensor | None]]:
        """DeBERTa's enhanced mask decoder (He et al. 2021, section 3.2) in place of the last layer.

        With H, the layer's input, and absolute positions P, the layer runs ``mask_decoder_steps`` times with keys and values of
        H, and with queries of H + P and then of its own output.
        """
        memory = x
        weights: list[Tensor | None] = []
        x = x + self._mask_positions(window).to(x.dtype)
        for _ in range(self.config.mask_decoder_steps):
            x, p = self._run(layer, x, inputs, attend, memory)
            weights.append(p)
        return x, weights

    def _mask_positions(self, window: Window) -> Tensor:
        """(B or 1, n, D)."""
        if window.span is None:
            raise FieldError("`mask_decoder_steps` adds learned positions, which have no values between two whole numbers")
        if window.span > self.config.max_positions:
            raise FieldError(
                f"`mask_decoder_steps` adds {self.config.max_positions} learned positions, and a sequence needs {window.span}: "
                "raise `max_positions` (and train again), or shorten the sequences"
            )
        return self.mask_positions(window.positions)  # type: ignore[misc]  # there where this is called


def _states_before(x: Tensor, mask: Mask) -> Tensor:
    """(B, n, D): for each token, the state of the one before it; for the first of a row or a document, its own."""
    first = torch.arange(x.shape[1], device=x.device) == (0 if mask.documents is None else mask.documents)
    return torch.where(first[..., None], x, x.roll(1, dims=1))


def _call(layer: nn.Module, *args: Any) -> tuple[Tensor, Tensor | None]:
    return layer(*args)


@functools.cache
def _compiled() -> Callable[..., tuple[Tensor, Tensor | None]]:
    """:func:`_call`, compiled: once for all layers that are alike, and again for each shape of a batch."""
    return torch.compile(_call, dynamic=False, backend=COMPILER)
