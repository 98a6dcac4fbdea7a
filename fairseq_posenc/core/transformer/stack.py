"""The base of encoder and decoder: embeddings, layers, positions, and the choice of a backend."""

import logging
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...base.errors import MAX_POSITIONS, FieldError
from ..attention import Attend, Backend, Call, Mask, choose
from ..terms import Terms, Window, computed_in, is_captured
from .config import EncoderConfig, build_positions
from .layers import Layer, init_weights, new_norm
from .sampling import Draws, PositionSampling

logger = logging.getLogger(__name__)


class Stack(nn.Module):
    """Word embeddings, positions, and layers. Layers that share their weights have their own positional parameters."""

    def __init__(self, config: EncoderConfig, layer: type[Layer], embed_tokens: nn.Embedding | None = None) -> None:
        nn.Module.__init__(self)  # not super(): subclasses also inherit from classes of fairseq that need arguments
        self.config = config
        width = config.embed_dim or config.dim
        self.embed_tokens = nn.Embedding(config.vocab_size, width, config.padding_idx)
        self.layers = nn.ModuleList(layer(config, number) for number in range(config.layer_groups or config.layers))
        self.layernorm_embedding = new_norm(config, width) if config.layernorm_embedding else None
        self.project_in_dim = nn.Linear(width, config.dim) if config.embed_dim else None
        self.layer_norm = new_norm(config) if config.normalize_before else None
        init_weights(self, config)
        self.embed_tokens = embed_tokens or self.embed_tokens  # those given keep their weights
        with torch.random.fork_rng(devices=[]):  # so that all other weights are equal under all schemes
            state = torch.get_rng_state()
            torch.default_generator.manual_seed(zlib.crc32(bytes(state.tolist())))  # other numbers than those that follow
            self.positions = build_positions(config)
        self.sampling = PositionSampling.parse(config.position_sampling, config.position_evaluation)
        self._draws = Draws()
        if self.sampling is not None:
            self._require_samples(self.sampling.extremes)
        self.checkpoint_activations = config.checkpoint_activations
        self.attention_backend: str | Backend = config.attention_backend
        for probe in self.positions.probes():  # reports here, rather than at the first call, a backend that cannot run the terms
            choose(self.attention_backend, probe)
        self._trained_with: set[str] = set()  # names of backends, each of which is logged once

    @property
    def layers_in_order(self) -> list[Layer]:
        """Each layer as often as the input passes it."""
        count = self.config.layers
        return [self.layers[i * len(self.layers) // count] for i in range(count)]  # type: ignore[misc]  # Layers

    def set_num_updates(self, num_updates: int) -> None:
        """Take the number of the update, which fairseq tells every module that has this method before each batch of training."""
        self._draws.update = num_updates

    def skips_layer(self) -> bool:
        """Whether LayerDrop leaves the next layer out."""
        return self.training and self.config.layerdrop > 0 and torch.rand(()).item() < self.config.layerdrop

    def bind(self, terms: Terms, mask: Mask, x: Tensor, keys: int, weights: bool = False, transformed: bool = False) -> Attend:
        """Attention of the queries ``x`` (B, Q, D) over so many keys, by the backend that is configured or suits the call.

        Log its name when training first uses it, since the choice depends on device and precision. ``transformed`` queries and
        keys have gone through the terms' transforms already.
        """
        config, device, dtype = self.config, x.device, computed_in(x)
        dropout = config.attention_dropout if self.training else 0.0
        call = Call(device, dtype, config.dim // config.heads, x.shape[1], keys, dropout, weights)
        backend = choose("auto" if weights else self.attention_backend, terms, call)
        if self.training and backend.name not in self._trained_with and not is_captured():
            self._trained_with.add(backend.name)
            where = f"{type(self).__name__}, {device.type}, {str(dtype).removeprefix('torch.')}, attention dropout {dropout}"
            logger.info(f"attention backend {backend.name} ({where})")
        return backend.bind(replace(terms, transforms=()) if transformed else terms, mask, call)

    @property
    def max_length(self) -> int | None:
        """The number of tokens of the longest sequence; None if any length is possible."""
        limits = [self.positions.max_length, None if self.sampling is None else self.sampling.max_length]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def max_predicted(self) -> int | None:
        """The number of tokens of the longest sequence whose words are predicted: an enhanced mask decoder has a table, too."""
        learned = self.config.max_positions if getattr(self.config, "mask_decoder_steps", 0) else self.max_length
        return min(learned, self.max_length or learned) if learned else None

    def windows(self, words: Tensor, mask: Mask, position_ids: Tensor | None) -> tuple[Window, Window]:
        """Return the positions of the words (B, n, …): for what is added to the words, and for the layers' terms.

        They are those given, or drawn, or else the places in the row or in the documents. The second window is contiguous where
        that makes no difference, since more backends can run that.

        Args:
            words: the words.
            mask: their padding, on the right, and their documents.
            position_ids: (B or 1, n) or None; the largest of whole numbers is read, for which the host waits for a GPU.
                torch.export and torch.compile, which cannot read it, take positions below n.

        Raises:
            FieldError: the rows are empty, the positions have another shape, or are whole and below 0, or there are too few to
                draw from.
        """
        n = words.shape[1]
        if not n:
            raise FieldError("a row needs at least one token")
        if not words.is_meta and any(parameter.is_meta for parameter in self.positions.parameters()):
            raise FieldError("the parameters of `positions` are offloaded (device_map), which needs them on the words' device")
        seen: dict[str, Any] = {"padding": mask.padding, "documents": mask.documents, "causal": mask.causal}
        window_at = partial(Window, n, **seen, device=words.device, dtype=words.dtype)
        row, places, first = window_at(), torch.arange(n, device=words.device)[None], None
        if mask.documents is not None:
            places = places - mask.documents
            first = places == 0
        if position_ids is not None:
            window = window_at(positions=position_ids, span=span_of(position_ids, *words.shape[:2]), first=first)
            return window, window
        sampled = self._sampled(places, row)
        shorter = first is not None or mask.padding is not None  # the tokens of a document may be fewer than those of the row
        if shorter and sampled is None and not is_captured() and n > (self.max_predicted or n):
            places = places if mask.padding is None else places.masked_fill(mask.padding, 0)
            window = window_at(positions=places, span=int(places.max()) + 1, first=first)
            return window, window
        if sampled is None and first is None and not is_captured():
            return row, row
        positions, span = (places, n) if sampled is None else sampled
        window = window_at(positions=positions, span=span, first=first)
        moved = sampled is None or (self.sampling is not None and self.sampling.kind == "shift")  # so that offsets stay
        return window, row if moved and not is_captured() and self.positions.terms_are_invariant else window

    def _sampled(self, places: Tensor, row: Window) -> tuple[Tensor, int | None] | None:
        """(B or 1, n) positions in place of ``places`` in a row, and what they are below if they are whole; None: these."""
        if self.sampling is None:
            return None
        if self.training:
            return self.sampling.draw(places, row.padding, self._draws.generator()), self.sampling.span(row.keys)
        return self.sampling.evaluated(places, row.padding, row.seen(None))

    def _require_samples(self, window: Window) -> None:
        """Refuse a scheme that has no terms for sampled positions, rather than at the first call.

        Raises:
            FieldError: the message names what to change.
        """
        with torch.no_grad():
            self.positions.embed(window, torch.zeros(1, 2, dtype=torch.int64))
            self.positions.terms(window).of(0, torch.zeros(1, 2, self.config.dim))

    def embed(self, words: Tensor, window: Window, tokens: Tensor | None) -> Tensor:
        """Word embeddings (B, Q, D) of the tokens (B, Q), if there are any, with what the positions add to them."""
        addition = self.positions.embed(window, tokens)
        x = words if addition is None else words + addition.to(words.dtype)
        if self.config.scale_embeddings:
            x = x * self.config.dim**0.5
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = F.dropout(x, self.config.dropout, self.training)
        return x if self.project_in_dim is None else self.project_in_dim(x)


def require_padding(padding: Tensor | None, batch: int, n: int) -> None:
    """Raise FieldError unless the padding, if any, is bool, (batch, n)."""
    if padding is not None and (padding.dtype != torch.bool or padding.shape != (batch, n)):
        raise FieldError(f"`padding` must be bool, ({batch}, {n}), and it is {padding.dtype}, {tuple(padding.shape)}")


def require_shape(position_ids: Tensor, batch: int, n: int) -> None:
    """Raise FieldError unless the positions are numbers, (batch or 1, n)."""
    if position_ids.dtype == torch.bool or position_ids.shape not in ((1, n), (batch, n)):
        raise FieldError(
            f"`position_ids` must be ({batch} or 1, {n}) numbers, and they are {position_ids.dtype}, {tuple(position_ids.shape)}"
        )


def span_of(position_ids: Tensor, batch: int, n: int) -> int | None:
    """The number that whole positions are below: while a program is captured, which cannot read them, the length of the row."""
    require_shape(position_ids, batch, n)
    if position_ids.is_floating_point():
        return None
    if is_captured():
        return n
    least, largest = position_ids.aminmax()
    if least < 0:
        raise FieldError(f"whole `position_ids` begin at 0, and one of them is {least.item()}")
    if largest >= MAX_POSITIONS:
        raise FieldError(f"whole `position_ids` are below {MAX_POSITIONS:,}, and one of them is {largest.item():,}")
    return int(largest) + 1


def tokens_first(padding: Tensor) -> Tensor | None:
    """(B, n): the order in which each row's tokens precede its padding; None if they already do.

    It reads the padding, for which the host waits for a GPU. An encoder with a mask does not call it; an encoder without one
    (fine-tuning in padded batches, inference) and a decoder do.
    """
    if not is_captured() and not (padding[:, :-1] & ~padding[:, 1:]).any():
        return None
    places = torch.arange(padding.shape[1], device=padding.device)
    return torch.where(padding, places + padding.shape[1], places).argsort(dim=1)  # ONNX has no stable sort


def reordered(x: Tensor | None, order: Tensor | None) -> Any:
    """(B or 1, n, …) with each row's entries in its order, (B, n); None stays None, and without an order all stays as it is."""
    if x is None or order is None:
        return x
    rows = torch.arange(order.shape[0], device=order.device)[:, None]  # not len(order), which is a constant in an exported model
    return x.expand(order.shape[0], *x.shape[1:])[rows, order]
