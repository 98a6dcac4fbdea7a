"""RoBERTa with any positional encoding: fairseq's model, heads and hub interface around the shared encoder."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import RobertaEncoder, RobertaLMHead
from fairseq.tasks import FairseqTask
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from ..architectures import EXPRESSIONS, SIZES
from ..encoder import Encoder, EncoderConfig
from .config import DEFAULTS, EncoderModelConfig, position_options
from .stock import from_stock, let_stock_load_ours

FIELDS = {field.name for field in dataclasses.fields(EncoderModelConfig)}
UNLIMITED = 10**6  # tokens; what fairseq is told of a model that takes any length


class SentenceEncoder(Encoder):
    """The shared encoder as fairseq calls it."""

    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """(B, n) -> fairseq's dictionary, whose states are (n, B, D)."""
        output = super().forward(src_tokens, embeddings=token_embeddings, with_hidden=return_all_hiddens)
        return {
            "encoder_out": [output.last.transpose(0, 1)],
            "encoder_padding_mask": [src_tokens.eq(self.config.padding_idx)],
            "encoder_states": [state.transpose(0, 1) for state in output.hidden],
        }


class PosencRobertaEncoder(RobertaEncoder):
    """fairseq's RoBERTa encoder and language-model head, with our encoder between them."""

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: nn.Embedding) -> SentenceEncoder:
        return SentenceEncoder(encoder_config(args, dictionary), embed_tokens)

    def build_lm_head(self, embed_dim: int, output_dim: int, activation_fn: str, weight: Tensor | None) -> RobertaLMHead:
        head = super().build_lm_head(embed_dim, output_dim, activation_fn, weight)
        head.layer_norm.eps = self.args.layer_norm_eps
        return head

    def max_positions(self) -> int:
        return reach(self.sentence_encoder)


@register_model("roberta_posenc", dataclass=EncoderModelConfig)
class PosencRobertaModel(RobertaModel):
    """RoBERTa (Liu et al. 2019) whose positions are ``--positions EXPRESSION``."""

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Our flags in place of the stock model's, without defaults: those are the architecture's."""
        gen_parser_from_dataclass(parser, EncoderModelConfig(), delete_default=True)

    @classmethod
    def build_model(cls, args: DictConfig | argparse.Namespace, task: FairseqTask) -> PosencRobertaModel:
        """Build from a config in which None, or nothing, means the default.

        Raises:
            ValueError: a configuration without meaning; the message names the flag.
        """
        args = complete(args, task.cfg)
        with open_dict(args):
            OmegaConf.set_struct(args, False)  # RobertaEncoder adds what our config has no field for
            return cls(args, PosencRobertaEncoder(args, task.source_dictionary))

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        ours = from_stock(state_dict, self.encoder.dictionary.pad())
        state_dict.clear()
        state_dict.update(ours)
        super().upgrade_state_dict_named(state_dict, name)


def reach(encoder: Encoder) -> int:
    """Tokens of the longest sequence that an encoder takes."""
    positions = encoder.positions
    return UNLIMITED if positions.inductive else positions.settings.max_positions


def complete(args: DictConfig | argparse.Namespace, task: Any) -> DictConfig:
    """A model's options with the defaults in the place of what is None or missing.

    Args:
        args: the options; a config is changed in place.
        task: the task's options, which say how long samples are.

    Raises:
        ValueError: an option has a value of another type.
    """
    if isinstance(args, argparse.Namespace):
        args = OmegaConf.structured(EncoderModelConfig(**{f: v for f, v in vars(args).items() if f in FIELDS}))
    with open_dict(args):
        if args.max_positions is None:
            args.max_positions = getattr(task, "tokens_per_sample", None) or DEFAULTS["max_positions"]
        fill(args, DEFAULTS)
        args.layernorm_embedding = not args.no_layernorm_embedding
    return args


def encoder_config(args: Any, dictionary: Any) -> EncoderConfig:
    """The shared encoder's config from a complete fairseq model config."""
    return EncoderConfig(
        vocab_size=len(dictionary),
        padding_idx=dictionary.pad(),
        separator_idx=dictionary.eos(),
        layers=args.encoder_layers,
        dim=args.encoder_embed_dim,
        ffn_dim=args.encoder_ffn_embed_dim,
        heads=args.encoder_attention_heads,
        max_positions=args.max_positions,
        positions=args.positions,
        position_options=position_options(args),
        attention_backend=str(args.attention_backend),
        activation=str(args.activation_fn),
        dropout=args.dropout,
        attention_dropout=args.attention_dropout,
        activation_dropout=args.activation_dropout,
        layerdrop=args.encoder_layerdrop,
        normalize_before=args.encoder_normalize_before,
        layernorm_embedding=args.layernorm_embedding,
        layer_norm_eps=args.layer_norm_eps,
        checkpoint_activations=args.checkpoint_activations,
    )


def fill(args: Any, values: dict[str, Any]) -> None:
    """Set what ``args`` lacks or has as None."""
    for name, value in values.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def _register(name: str, values: dict[str, Any]) -> None:
    """Make an architecture known to ``--arch``, and to Hydra as a choice of ``model``."""
    register_model_architecture("roberta_posenc", name)(lambda args: fill(args, values))
    config = EncoderModelConfig()
    config._name = name
    ConfigStore.instance().store(name=name, group="model", node=config, provider="fairseq_posenc")


for _name, _expression in EXPRESSIONS.items():
    for _suffix, _size in SIZES.items():
        _register(f"roberta_{_name}{_suffix}", {**_size, "positions": _expression})

let_stock_load_ours()
