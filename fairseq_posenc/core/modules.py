"""Positional-encoding schemes as PyTorch modules, for models of your own.

:class:`PositionBias` is for schemes that only add to the scores, and :class:`PositionalAttention` for all that need no more than
queries, keys and values. :class:`.transformer.Encoder` has every scheme.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import FieldError
from .attention import Call, Mask, choose
from .attention.bias import additive_bias, beyond_bias, rounded
from .schemes import Positions, Scheme, Settings, build
from .terms import Terms, Window, computed_in, is_captured
from .transformer.config import require_options
from .transformer.stack import require_padding, span_of


class _Positional(nn.Module):
    """What both have in common: the schemes with their parameters, for some layers."""

    positions: Positions

    def __init__(
        self,
        positions: str,
        heads: int,
        head_dim: int,
        layers: int,
        max_positions: int,
        causal: bool,
        position_options: Mapping[str, Any] | None,
    ) -> None:
        super().__init__()
        for name, size in (("heads", heads), ("head_dim", head_dim), ("layers", layers), ("max_positions", max_positions)):
            if size < 1:
                raise FieldError(f"`{name}` must be at least 1, got {size}")
        settings = Settings(layers=layers, heads=heads, dim=heads * head_dim, max_positions=max_positions)
        self.positions = build(positions, settings, position_options)
        self.heads, self.head_dim, self.layers, self.causal = heads, head_dim, layers, causal
        embedded = any(type(scheme).embed is not Scheme.embed for scheme in self.positions.schemes)
        if embedded or any(terms.inputs or not terms.projected for terms in self.positions.probes()):
            self._refuse("they are added to embeddings or inputs of layers, or go through projections of the layers", "Encoder")
        unsuited = [scheme.name for scheme in self.positions.schemes if not scheme.has_causal_form]
        if causal and unsuited:
            raise FieldError(f"`positions` {positions}: {' and '.join(unsuited)} has no causal form; leave out `causal`")

    def _refuse(self, reason: str, alternative: str) -> None:
        raise FieldError(f"`positions` {self.positions.expression}: {reason}; use fairseq_posenc.{alternative}")

    def _terms(self, window: Window, layer: int, x: Tensor | None = None) -> Terms:
        if not 0 <= layer < self.layers:
            raise FieldError(f"`layer` {layer}: there are {self.layers} `layers`, from 0")
        x = torch.empty(1, 0, 0) if x is None else x
        return self.positions.terms(window).of(layer, x[:, -window.queries :], at_keys=lambda _: (x,))


class PositionBias(_Positional):
    """The additive bias b of ``softmax(q·k / √d + b)``, for ``torch.nn.functional.scaled_dot_product_attention``.

    Args:
        positions: an expression such as ``"t5"``, ``"tisa+kerple"`` or ``"alibi(sided=true)"``.
        heads: the number of attention heads.
        head_dim: the width d of a head, on which the biases of TUPE and of Raffel depend.
        layers: sets of parameters, one per layer, for schemes whose layers have their own.
        max_positions: the number n of positions that schemes with tables learn.
        causal: mask keys after the query.
        position_options: the schemes' options by full name, such as ``{"max_relative_position": 16}``.

    Raises:
        FieldError: an unknown scheme or option, or a scheme that is no additive bias; the message names the module to use.
    """

    _place: Tensor

    def __init__(
        self,
        positions: str,
        heads: int,
        *,
        head_dim: int = 64,
        layers: int = 1,
        max_positions: int = 512,
        causal: bool = False,
        position_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(positions, heads, head_dim, layers, max_positions, causal, position_options)
        self.register_buffer("_place", torch.zeros(()), persistent=False)  # has the device and the type of the module
        reads_input = any(scheme.reads_input for scheme in self.positions.schemes)
        for terms in self.positions.probes():
            if reads_input or not terms.content or terms.factor != 1 or terms.transforms or beyond_bias(terms):
                self._refuse("they are more than one b in q·k / √d + b for all inputs", "PositionalAttention")

    def forward(self, keys: int, queries: int | None = None, layer: int = 0) -> Tensor:
        """Return (heads, queries, keys), -inf where a key is masked. The queries are the last of the keys; by default, all.

        A module in half precision subtracts the greatest value of each row, which softmax ignores, so that less is rounded.

        Raises:
            FieldError: no queries or more than keys, too many keys, or a layer that does not exist.
        """
        window = _window(keys, queries, self.causal, self._place, None)
        call = Call(window.device, window.dtype, self.head_dim, window.queries, window.keys)
        terms = self._terms(window, layer)
        bias, blocked = additive_bias(terms, call), Mask(causal=self.causal).blocked(call, terms.window)
        bias = self._place.new_zeros(1, 1, 1, 1) if bias is None else bias
        bias = bias.expand(1, self.heads, window.queries, window.keys)
        bias = rounded(bias, blocked, self._place.dtype)
        return (bias if blocked is None else bias.masked_fill(blocked, -torch.inf))[0]


def position_bias(positions: str, heads: int, **options: Any) -> PositionBias:
    """Return a :class:`PositionBias`: ``position_bias("t5", heads=8)(n)`` is a tensor (heads, n, n).

    Raises:
        FieldError: as that, or an unknown option.
    """
    require_options(options, inspect.signature(PositionBias).parameters)
    return PositionBias(positions, heads, **options)


class PositionalAttention(_Positional):
    """``softmax(e) v`` of queries, keys and values, with the scores e of a scheme; as fast as the scheme allows.

    Args:
        positions: an expression such as ``"shaw"``, ``"rope+t5"`` or ``"rope | rope(window=64)"``.
        heads: the number of attention heads.
        head_dim: the width d of a head.
        layers: sets of parameters, one per layer, for schemes whose layers have their own.
        max_positions: the number n of positions that schemes with tables learn.
        causal: mask keys after the query.
        dropout: of the attention weights, in training.
        backend: one of :data:`.attention.BACKENDS`; ``auto`` takes the first that suits device, precision and scheme.
        position_options: the schemes' options by full name, such as ``{"max_relative_position": 16}``.

    Raises:
        FieldError: an unknown scheme, option or backend, or a scheme that needs more of a model than q, k and v.
    """

    def __init__(
        self,
        positions: str,
        heads: int,
        head_dim: int,
        *,
        layers: int = 1,
        max_positions: int = 512,
        causal: bool = False,
        dropout: float = 0.0,
        backend: str = "auto",
        position_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(positions, heads, head_dim, layers, max_positions, causal, position_options)
        if not 0 <= dropout <= 1:
            raise FieldError(f"`dropout` must be from 0 to 1, got {dropout}")
        self.dropout, self.backend = dropout, backend
        for terms in self.positions.probes():
            choose(backend, terms)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        padding: Tensor | None = None,
        documents: Tensor | None = None,
        position_ids: Tensor | None = None,
        layer: int = 0,
        x: Tensor | None = None,
    ) -> Tensor:
        """Return z, (batch, heads, queries, head_dim); zeros where a query has no keys.

        Args:
            q: (batch, heads, queries, head_dim), before any rotation or scale. Queries are the last of the keys.
            k: (batch, heads, keys, head_dim).
            v: of the same shape.
            padding: (batch, keys) bool, True at padding.
            documents: (batch or 1, keys), the place where the document of each key starts; queries see their own alone.
            position_ids: (batch or 1, keys), the position of each key; by default 0, 1, 2 and so on from the start of the row, or
                of each document, padding included.
            layer: which of the layers' parameters.
            x: (batch, queries, heads * head_dim), the input of attention, after any LayerNorm before it, for
                schemes whose terms depend on it; at all keys, (batch, keys, …), for those with :attr:`.Scheme.reads_past`.

        Raises:
            FieldError: a shape that does not fit, a sequence that is too long, or no x where the scheme needs one.
        """
        n, d = k.shape[2], self.head_dim
        if q.shape != (len(q), self.heads, q.shape[2], d) or k.shape != (len(q), self.heads, n, d) or v.shape != k.shape:
            raise FieldError(
                f"q, k and v must be (batch, {self.heads}, n, {self.head_dim}) by `heads` and `head_dim`, and they are "
                f"{', '.join(str(tuple(tensor.shape)) for tensor in (q, k, v))}"
            )
        readers = [scheme.name for scheme in self.positions.schemes if scheme.reads_input]
        if readers and x is None:
            raise FieldError(
                f"`positions` {self.positions.expression}: {' and '.join(readers)} reads the layer's input: give `x`"
            )
        past = any(scheme.reads_past for scheme in self.positions.schemes)
        batch, read = len(q), (len(q), (k if past else q).shape[2], self.heads * self.head_dim)
        if readers and x is not None and x.shape != read:
            raise FieldError(f"`x` must be {read}, and it is {tuple(x.shape)}")
        require_padding(padding, batch, k.shape[2])
        first, resets = None, any(part.settings.reset for part in self.positions.alternatives)
        if padding is not None and (position_ids is not None or (resets and (is_captured() or padding[:, 0].any()))):
            first = ~padding & ((~padding).cumsum(1) == 1)  # padding may be on the left
        if documents is not None:
            places = torch.arange(k.shape[2], device=q.device) - documents
            first, position_ids = places == 0, places if position_ids is None else position_ids
        window = _window(k.shape[2], q.shape[2], self.causal, q, position_ids, first, padding, documents)
        call = Call(q.device, computed_in(q), self.head_dim, q.shape[2], k.shape[2], self.dropout if self.training else 0.0)
        terms = self._terms(window, layer, x)
        return choose(self.backend, terms, call).bind(terms, Mask(padding, self.causal, documents), call)(q, k, v)[0]


def _window(
    keys: int,
    queries: int | None,
    causal: bool,
    like: Tensor,
    position_ids: Tensor | None,
    first: Tensor | None = None,
    padding: Tensor | None = None,
    documents: Tensor | None = None,
) -> Window:
    if not 1 <= (keys if queries is None else queries) <= keys:
        raise FieldError(f"there must be at least one query and a key for each, got {queries} queries and {keys} keys")
    span: int | None = keys
    if position_ids is not None:
        span = span_of(position_ids, like.shape[0], keys)
    elif is_captured():  # where positions are data, no length becomes a constant
        position_ids = torch.arange(keys, device=like.device)[None]
    seen: dict[str, Any] = {"first": first, "padding": padding, "documents": documents, "causal": causal}
    return Window(keys, queries, positions=position_ids, span=span, **seen, device=like.device, dtype=like.dtype)
