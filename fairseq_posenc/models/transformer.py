"""Encoder and decoder with any positional encoding that has a causal form."""

from __future__ import annotations

import argparse
import logging
import re
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from ..errors import InputError, Refused, flag_of
from ..families import TRANSFORMER
from ..transformer import DecoderConfig, EncoderConfig
from .architectures import register_family
from .config import TRANSLATION_OPTIONS, naming_flags
from .decoding import TokenDecoder
from .options import UNLIMITED, complete, config_values, encoder_config, max_length, record
from .roberta import SentenceEncoder
from .stock import is_leftover
from .summary import summary

logger = logging.getLogger(__name__)
STOCK_SINUSOIDS = re.compile(r"coder\.(version|embed_positions\._float_tensor)$")


class SourceEncoder(SentenceEncoder, FairseqEncoder):
    """The shared encoder, whose states a decoder attends to."""

    def __init__(self, config: EncoderConfig, dictionary: Dictionary, embed_tokens: nn.Embedding | None = None) -> None:
        super().__init__(config, embed_tokens)
        self.dictionary = dictionary

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """The same for these rows of the batch."""
        batch = {"encoder_padding_mask": 0}  # the dimension; 1 in states
        return {name: [x.index_select(batch.get(name, 1), new_order) for x in found] for name, found in encoder_out.items()}

    def max_positions(self) -> int:
        """The same for all schemes: a sequence that is too long for one is refused, not left out."""
        return UNLIMITED


def decoder_config(args: Any, dictionary: Dictionary) -> DecoderConfig:
    """The decoder's config from a model's complete options."""
    values = {**config_values(args, dictionary, TRANSLATION_OPTIONS), "layers": args.decoder_layers}
    return DecoderConfig(**values, share_output=args.share_decoder_input_output_embed or args.share_all_embeddings)


@register_family(TRANSFORMER, TRANSLATION_OPTIONS.config)
class PosencTransformerModel(FairseqEncoderDecoderModel):
    """The transformer (Vaswani et al. 2017) whose positions are ``--positions EXPRESSION``.

    Self-attention of encoder and decoder has them, each with parameters of its own; attention between the two has none.
    """

    option_set = TRANSLATION_OPTIONS

    @staticmethod
    def build_core(args: Any, dictionary: Dictionary) -> TokenDecoder:
        """The decoder, which cannot have every scheme."""
        return TokenDecoder(decoder_config(args, dictionary), dictionary)

    @classmethod
    def build_model(cls, args: DictConfig | argparse.Namespace, task: FairseqTask) -> PosencTransformerModel:
        """Build from a config in which None, or nothing, means the default.

        Raises:
            InputError: a configuration without meaning; the message names the flag.
        """
        if isinstance(task, LanguageModelingTask):
            raise Refused(
                "--task language_modeling is for a decoder alone, and this model translates: give --task translation, or name a "
                "model of --arch transformer_lm_…"
            )
        source, target = task.source_dictionary, task.target_dictionary
        args = complete(args, task.cfg, TRANSLATION_OPTIONS)
        if args.share_all_embeddings and source != target:
            raise Refused(
                "--share-all-embeddings needs one dictionary for source and target, and these have one each: prepare the data "
                "with fairseq-preprocess --joined-dictionary, or leave the flag out"
            )
        with naming_flags(TRANSLATION_OPTIONS.names):
            encoder = SourceEncoder(encoder_config(args, source, TRANSLATION_OPTIONS), source)
            shared = encoder.embed_tokens if args.share_all_embeddings else None
            model = cls(encoder, TokenDecoder(decoder_config(args, target), target, shared))
        record(args, encoder.positions)
        with open_dict(args):
            OmegaConf.set_struct(args, False)
        model.args = args
        logger.info(summary(model, encoder))
        return model

    def prepare_for_inference_(self, cfg: DictConfig) -> None:
        """As fairseq's, after what fairseq-generate cannot have from this model is refused."""
        for flag in ("print_alignment", "replace_unk"):
            if getattr(cfg.generation, flag, None) is not None:
                raise InputError(f"{flag_of(flag)} needs attention weights, which fused attention does not give: leave it out")
        super().prepare_for_inference_(cfg)

    def max_decoder_positions(self) -> int:
        """Where generation ends at the latest: a table's end, beyond which there is nothing to predict from."""
        return max_length(self.decoder)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Take a checkpoint of fairseq's own transformer, which has copies, and a place for sinusoids, that nothing reads."""
        config = self.encoder.config
        same = config.positions == "sinusoidal" and config.position_options.get("sinusoidal_layout") == "fairseq"
        for key in [key for key in state_dict if is_leftover(key) or (same and STOCK_SINUSOIDS.search(key))]:
            del state_dict[key]
        super().upgrade_state_dict_named(state_dict, name)
