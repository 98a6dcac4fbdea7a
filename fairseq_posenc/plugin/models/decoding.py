"""The shared decoder with the interface of fairseq's models and its generator."""

from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from ...core.transformer import Cache, Decoder, DecoderConfig
from ..options.option_set import UNLIMITED, field_errors_as_flags
from .building import AnyLength, PosencModel

CACHE = "cache"  # its name in fairseq's dictionary of incremental states


class TokenDecoder(AnyLength, Decoder, FairseqIncrementalDecoder):
    """The shared decoder, whose cache is part of fairseq's incremental state."""

    def __init__(self, config: DecoderConfig, dictionary: Dictionary, embed_tokens: nn.Embedding | None = None) -> None:
        super().__init__(config, embed_tokens)
        self.dictionary = dictionary
        self.onnx_trace, self.adaptive_softmax = False, None  # which fairseq reads from every decoder

    def forward(  # type: ignore[override]
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        masked_tokens: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """(B, n) -> scores (B, n, V), or states if ``features_only``; with an incremental state, only those of new tokens.

        With ``masked_tokens``, (B, n) bool, they are those at the m places where it is true, (m, V), as of an encoder.
        """
        states, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        states = states if masked_tokens is None else states[masked_tokens]
        return states if features_only else self.output_layer(states), extra

    @field_errors_as_flags()
    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, Any] | None = None,
        **_: Any,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """(B, n) -> (B, n, D)."""
        memory = padding = None
        if encoder_out is not None:
            memory, padding = encoder_out["encoder_out"][0].transpose(0, 1), encoder_out["encoder_padding_mask"][0]
        cache = None if incremental_state is None else incremental_state.setdefault(CACHE, Cache())
        return super().forward(prev_output_tokens, memory, padding, cache), {"attn": [None]}

    def output_layer(self, features: Tensor, **_: Any) -> Tensor:
        """(B, n, D) -> (B, n, V)."""
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Select these rows of the batch."""
        if CACHE in incremental_state:  # rows move only within a sentence, which shares its states, until one ends
            cache = incremental_state[CACHE]
            cache.select(new_order, memory=len(new_order) != cache.rows)


class PosencGenerator(PosencModel):
    """The base class of the models that have a decoder, as ``decoder``."""

    def max_decoder_positions(self) -> int:
        """Return the length at which generation ends at the latest: that of a table of positions."""
        return self.decoder.max_length or UNLIMITED
