"""The configuration of the models for transformers. This module is part of every export."""

from dataclasses import MISSING, fields
from typing import Any, ClassVar

import torch
from transformers import PretrainedConfig

from ..base.errors import InputError
from ..core.transformer import DecoderConfig, EncoderConfig, build_positions
from ..core.transformer.config import TRANSFORMERS

FORMAT = 1
"""The version of the options in config.json."""
HEADS = ("MaskedLM", "SequenceClassification", "TokenClassification", "MultipleChoice", "QuestionAnswering")
"""The kinds of heads: the ends of the names of transformers' classes."""
AUTO_MAP = {
    "AutoConfig": "modeling_posenc.PosencConfig",
    "AutoModel": "modeling_posenc.PosencModel",
    **{f"AutoModelFor{head}": f"modeling_posenc.PosencFor{head}" for head in HEADS},
}
"""Where transformers finds the classes in a saved folder, in which this module is modeling_posenc.py."""
CAUSAL_AUTO_MAP = {"AutoConfig": AUTO_MAP["AutoConfig"], "AutoModelForCausalLM": "modeling_posenc.PosencForCausalLM"}
"""The same of a language model that reads from left to right."""
LOADED_BY = {
    False: "an encoder, which reads in both directions: load it by AutoModel or AutoModelForMaskedLM",
    True: "a language model that reads from left to right: load it by AutoModelForCausalLM",
}
"""By ``is_decoder``, what a configuration is of, and the classes for it."""


class PosencConfig(PretrainedConfig):
    """The options of the encoder and of its heads, and those that every configuration of transformers has.

    Args:
        pooler_activation: activation of the classification head.
        pooler_dropout: dropout probability of the classification head.
        pooler_dim: width inside the classification head; the model's by default.
        is_decoder: whether it is of a language model that reads from left to right, which has none of these heads.
        options: fields of :class:`EncoderConfig`, by these names or by transformers' (``hidden_size``, …), and options of
            every config.
    """

    model_type = "fairseq_posenc"
    has_no_defaults_at_init = True  # so that config.json has every value, even if the defaults change
    attribute_map = {theirs: ours for ours, theirs in TRANSFORMERS.items() if theirs != ours}  # noqa: RUF012 - transformers reads it
    write_code: ClassVar[Any] = None
    """A function that writes the code of the models for a positional encoding into a folder; None in an export, whose code
    transformers copies itself."""

    def __init__(
        self,
        pooler_activation: str = "tanh",
        pooler_dropout: float = 0.0,
        pooler_dim: int | None = None,
        initializer_range: float = 0.02,
        tie_word_embeddings: bool = True,
        is_decoder: bool = False,
        **options: Any,
    ) -> None:
        self.format = FORMAT
        self.pooler_activation = pooler_activation
        self.pooler_dropout = pooler_dropout
        self.pooler_dim = pooler_dim
        self.initializer_range = initializer_range
        for field in fields(EncoderConfig):
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            setattr(self, field.name, options.pop(field.name, 0 if default is MISSING else default))
        special = {"bos_token_id": 0, "pad_token_id": self.padding_idx, "eos_token_id": self.separator_idx}
        super().__init__(tie_word_embeddings=tie_word_embeddings, **{"auto_map": AUTO_MAP, **special, **options})
        self.is_decoder = is_decoder  # which transformers 4 has set to False
        if is_decoder:
            self.auto_map, self.use_cache = CAUSAL_AUTO_MAP, False

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Return the configuration that a config.json holds.

        Raises:
            InputError: it has another format, or ``options`` have ``rope_parameters``.
        """
        if config_dict.get("format") != FORMAT:
            raise InputError(f"config.json has the format {config_dict.get('format')}, not {FORMAT}: export the checkpoint again")
        if "rope_parameters" in options:
            raise InputError(
                "rope_parameters is not read: give position_options, such as {'rope_type': 'linear', 'rope_factor': 4}"
            )
        return super().from_dict({name: value for name, value in config_dict.items() if name != "format"}, **options)

    def save_pretrained(self, save_directory: str, *args: Any, **options: Any) -> None:
        """Save the configuration as transformers does, with every position option, and the code; models save theirs by this."""
        self.complete_options()
        if self.write_code is not None:
            self.auto_map = CAUSAL_AUTO_MAP if self.is_decoder else AUTO_MAP  # not the names in a repository on the Hub
        super().save_pretrained(save_directory, *args, **options)
        if self.write_code is not None:
            self.write_code(self.positions, save_directory, causal=self.is_decoder)

    def complete_options(self) -> None:
        """Set the position options that have their scheme's default, which a later release may change."""
        with torch.device("meta"):
            config = self.core_config()
            self.position_options = {**build_positions(config).complete_options, **config.position_options}

    def core_config(self) -> EncoderConfig:
        """Return the core's configuration of the encoder or the decoder; raises InputError for a value that it cannot have."""
        return self.decoder_config() if self.is_decoder else self.encoder_config()

    def encoder_config(self) -> EncoderConfig:
        """Return the core's configuration of the encoder; raises InputError if it is a decoder's, or no encoder has a value."""
        return EncoderConfig(**self._values(is_decoder=False))

    def decoder_config(self) -> DecoderConfig:
        """Return the core's configuration of the decoder; raises InputError if it is an encoder's, or no decoder has a value."""
        return DecoderConfig(**self._values(is_decoder=True), cross_attention=False, share_output=self.tie_word_embeddings)

    def _values(self, is_decoder: bool) -> dict[str, Any]:
        if self.is_decoder != is_decoder:
            raise InputError(f"{self.name_or_path or 'the configuration'} is of {LOADED_BY[self.is_decoder]}")
        return {field.name: getattr(self, field.name) for field in fields(EncoderConfig)}
