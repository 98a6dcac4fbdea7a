"""Language models that read from left to right: the decoder alone, with any positional encoding that has a causal form."""

from __future__ import annotations

from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqLanguageModel
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig

from ...base.errors import InputError
from ...core.families import TRANSFORMER_LM
from ...core.transformer import DecoderConfig
from ..options.architectures import register_family
from ..options.option_set import LANGUAGE_MODEL_OPTIONS
from .decoding import PosencGenerator, TokenDecoder


@register_family(TRANSFORMER_LM)
class PosencLanguageModel(PosencGenerator, FairseqLanguageModel):
    """A transformer decoder whose positions are ``--positions EXPRESSION``."""

    option_set = LANGUAGE_MODEL_OPTIONS

    @staticmethod
    def build_core(args: Any, dictionary: Dictionary) -> TokenDecoder:
        """Build the decoder."""
        values = LANGUAGE_MODEL_OPTIONS.core_values(args, dictionary)
        config = DecoderConfig(**values, cross_attention=False, share_output=args.share_decoder_input_output_embed)
        return TokenDecoder(config, dictionary)

    @classmethod
    def build_from_options(cls, args: DictConfig, task: FairseqTask) -> tuple[PosencLanguageModel, TokenDecoder]:
        if len(task.target_dictionary) != len(task.source_dictionary):
            raise InputError("--output-dictionary-size is for models with another output than this one's: leave it out")
        model = cls(cls.build_core(args, task.source_dictionary))
        return model, model.decoder
