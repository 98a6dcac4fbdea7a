"""Encoder and decoder with any positional encoding that has a causal form."""

from __future__ import annotations

import re
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig
from torch import Tensor

from ...base.errors import InputError, flag_of
from ...core.families import TRANSFORMER
from ...core.transformer import EncoderConfig
from ..checkpoint.stock import is_leftover
from ..options.architectures import register_family
from ..options.option_set import TRANSLATION_OPTIONS, decoder_config
from .building import encoder_config
from .decoding import PosencGenerator, TokenDecoder
from .roberta import SentenceEncoder

STOCK_SINUSOIDS = re.compile(r"coder\.(version|embed_positions\._float_tensor)$")


class SourceEncoder(SentenceEncoder, FairseqEncoder):
    """The shared encoder, whose states a decoder attends to."""

    def __init__(self, config: EncoderConfig, dictionary: Dictionary) -> None:
        super().__init__(config)
        self.dictionary = dictionary

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """Select these rows of the batch."""
        batch = {"encoder_padding_mask": 0}  # the dimension; 1 in states
        return {name: [x.index_select(batch.get(name, 1), new_order) for x in parts] for name, parts in encoder_out.items()}


@register_family(TRANSFORMER)
class PosencTransformerModel(PosencGenerator, FairseqEncoderDecoderModel):
    """The transformer (Vaswani et al. 2017) whose positions are ``--positions EXPRESSION``.

    The self-attention of encoder and decoder has them, each with its own parameters; attention between the two has none.
    """

    option_set = TRANSLATION_OPTIONS

    @staticmethod
    def build_core(args: Any, dictionary: Dictionary) -> TokenDecoder:
        """Build the decoder, which does not support every scheme."""
        return TokenDecoder(decoder_config(args, dictionary), dictionary)

    @classmethod
    def build_from_options(cls, args: DictConfig, task: FairseqTask) -> tuple[PosencTransformerModel, SourceEncoder]:
        source, target = task.source_dictionary, task.target_dictionary
        if args.share_all_embeddings and source != target:
            raise InputError(
                "--share-all-embeddings needs one dictionary for source and target, and these have one each: prepare the data "
                "with fairseq-preprocess --joined-dictionary, or leave the flag out"
            )
        encoder = SourceEncoder(encoder_config(args, source, TRANSLATION_OPTIONS), source)
        shared = encoder.embed_tokens if args.share_all_embeddings else None
        return cls(encoder, TokenDecoder(decoder_config(args, target), target, shared)), encoder

    def prepare_for_inference_(self, cfg: DictConfig) -> None:
        """As fairseq's, after rejecting flags of fairseq-generate that this model does not support."""
        for flag in ("print_alignment", "replace_unk"):
            if getattr(cfg.generation, flag, None) is not None:
                raise InputError(f"{flag_of(flag)} needs attention weights, which fused attention does not give: leave it out")
        if getattr(cfg.generation, "retain_dropout", False):
            raise InputError("--retain-dropout finds no dropout in these models: leave it out")
        super().prepare_for_inference_(cfg)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Convert a checkpoint of fairseq's own transformer, which has copies, and entries for sinusoids, that are not used."""
        config = self.encoder.config
        same = config.positions == "sinusoidal" and config.position_options.get("sinusoidal_layout") == "fairseq"
        for key in [key for key in state_dict if is_leftover(key) or (same and STOCK_SINUSOIDS.search(key))]:
            del state_dict[key]
        super().upgrade_state_dict_named(state_dict, name)
