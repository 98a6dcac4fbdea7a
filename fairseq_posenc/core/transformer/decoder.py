"""The transformer decoder: causal self-attention over the same terms as an encoder's, and cross-attention without positions."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...base.errors import FieldError
from ..attention import Attend, Mask
from ..attention.transform import transform
from ..schemes import LayerTerms
from ..terms import Terms, Window
from .cache import Cache
from .config import DecoderConfig, config_of
from .layers import Attention, DecoderLayer
from .sampling import EVEN
from .stack import Stack, reordered, tokens_first


class Decoder(Stack):
    """A stack that predicts each token from those before it and, with cross-attention, from an encoder's states.

    Its arguments are those of an :class:`.encoder.Encoder`, with the fields of :class:`.config.DecoderConfig`.

    Raises:
        FieldError: the positions have no causal form, or as an encoder.
    """

    config: DecoderConfig

    def __init__(self, config: DecoderConfig | str, embed_tokens: nn.Embedding | None = None, **options: Any) -> None:
        config = config_of(DecoderConfig, config, options)
        super().__init__(config, DecoderLayer, embed_tokens)
        unsuited = [scheme.name for scheme in self.positions.schemes if not scheme.has_causal_form]
        if unsuited:
            raise FieldError(
                f"`positions` {config.positions} cannot be a decoder's: {' and '.join(unsuited)} is for encoders and has no "
                "causal form; use another scheme"
            )
        if self.sampling is not None and self.sampling.evaluation == EVEN:
            raise FieldError(
                f"`position_sampling` {config.position_sampling} spaces tokens by their number, and a decoder does not know "
                "how many follow: add `position_evaluation` plain"
            )
        self.output_projection = nn.Linear(config.dim, config.vocab_size, bias=False)
        if config.share_output:
            self.output_projection.weight = self.embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, std=config.dim**-0.5)

    def forward(
        self,
        tokens: Tensor,
        memory: Tensor | None = None,
        memory_padding: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The states from which :attr:`output_projection` predicts the next tokens.

        Args:
            tokens: (B, n), all from the first, padded on either side; with a cache, on the right only, and not in rows that are
                continued.
            memory: (B, S, D), the encoder's states, to be given at every step, or None without ``cross_attention``.
            memory_padding: (B, S) bool, True at padding, to be given at every step.
            cache: the keys and values of the first tokens; those of the following tokens are added to it.

        Returns:
            (B, n, D), or (B, Q, D) for the Q tokens that the cache does not have yet.

        Raises:
            FieldError: the memory is missing or not used, or a sequence is too long.
        """
        if self.config.cross_attention != (memory is not None):
            raise FieldError("a decoder with cross-attention needs memory at every step, and one without it takes none")
        done = 0 if cache is None else cache.length
        order = tokens_first(tokens.eq(self.config.padding_idx)) if cache is None else None
        new = reordered(tokens, order)[:, done:]
        # Padding needs no mask: it follows the tokens, and attention is causal.
        words = self.embed_tokens(new)
        if cache is None:
            window, window_of_terms = self.windows(words, Mask(causal=True), None)
            terms = self._whole_terms(window_of_terms)
        else:
            window = Window(tokens.shape[1], new.shape[1], causal=True, device=words.device, dtype=words.dtype)
            terms = cache.terms(window, self.positions.max_length, self._whole_terms)
        x = self.embed(words, window, new)
        across = None if memory is None else self.bind(Terms(), Mask(memory_padding), words, memory.shape[1])
        bound: dict[int, Attend] = {}
        for i, layer in enumerate(self.layers_in_order):
            if self.skips_layer():
                continue
            at_keys = None if cache is None else partial(cache.extend, ("input", i))
            own = terms.of(i, x, layer.normalised, at_keys)
            run = bound.get(id(own)) or self.bind(own, Mask(causal=True), words, window.keys, transformed=True)
            if terms.shared(own):
                bound[id(own)] = run
            attend = partial(_attend, own, run, cache, i)
            cross_attend = None if memory is None or across is None else partial(_cross_attend, memory, across, cache, i)
            if self.checkpoint_activations and self.training:
                x = checkpoint(layer, x, own.inputs, attend, cross_attend, use_reentrant=False)
            else:
                x = layer(x, own.inputs, attend, cross_attend)
        if cache is not None:
            cache.length = window.keys
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return x if order is None else reordered(x, order.argsort(1))

    def _whole_terms(self, window: Window) -> LayerTerms:
        return self.positions.terms(window).projected([layer.self_attn.project for layer in self.layers_in_order])


def _attend(terms: Terms, bound: Attend, cache: Cache | None, layer: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
    """Self-attention of new tokens, whose keys enter the cache after the terms have transformed them, or before they mix them."""
    if cache is not None and terms.mixes_keys:
        k, v = cache.extend(layer, k, v)
    q, k = transform(q, k, terms)
    if cache is not None and not terms.mixes_keys:
        k, v = cache.extend(layer, k, v)
    return bound(q, k, v)[0], None


def _cross_attend(memory: Tensor, attend: Attend, cache: Cache | None, layer: int, attention: Attention, x: Tensor) -> Tensor:
    """Attention to the encoder's states, whose keys and values are the same in every step."""
    compute = partial(attention.keys_and_values, memory)
    return attention.attend(x, compute() if cache is None else cache.memory(layer, compute), attend)[0]
