"""Language models that read from left to right: the decoder alone, with any positional encoding that has a causal form."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqLanguageModel
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig

from ..errors import Refused
from ..families import TRANSFORMER_LM
from ..transformer import DecoderConfig
from .architectures import register_family
from .config import LANGUAGE_MODEL_OPTIONS, naming_flags
from .decoding import TokenDecoder
from .options import complete, config_values, max_length, record
from .summary import summary

logger = logging.getLogger(__name__)


def build_decoder(args: Any, dictionary: Dictionary) -> TokenDecoder:
    """The decoder that a model's complete options describe."""
    values = config_values(args, dictionary, LANGUAGE_MODEL_OPTIONS)
    config = DecoderConfig(**values, cross_attention=False, share_output=args.share_decoder_input_output_embed)
    return TokenDecoder(config, dictionary)


@register_family(TRANSFORMER_LM, LANGUAGE_MODEL_OPTIONS.config)
class PosencLanguageModel(FairseqLanguageModel):
    """A transformer decoder whose positions are ``--positions EXPRESSION``."""

    option_set = LANGUAGE_MODEL_OPTIONS
    build_core = staticmethod(build_decoder)

    @classmethod
    def build_model(cls, args: DictConfig | argparse.Namespace, task: FairseqTask) -> PosencLanguageModel:
        """Build from a config in which None, or nothing, means the default.

        Raises:
            InputError: a configuration without meaning; the message names the flag.
        """
        if isinstance(task, TranslationTask):
            raise Refused(
                "--task translation is for an encoder and a decoder, and this model is a decoder alone: give --task "
                "language_modeling, or name a model of --arch transformer_…"
            )
        if len(task.target_dictionary) != len(task.source_dictionary):
            raise Refused("--output-dictionary-size is for models with another output than this one's: leave it out")
        args = complete(args, task.args, LANGUAGE_MODEL_OPTIONS)
        with naming_flags(LANGUAGE_MODEL_OPTIONS.names):
            model = cls(build_decoder(args, task.source_dictionary))
        record(args, model.decoder.positions)
        model.args = args
        logger.info(summary(model, model.decoder))
        return model

    def max_decoder_positions(self) -> int:
        """Where generation ends at the latest: a table's end, beyond which there is nothing to predict from."""
        return max_length(self.decoder)
