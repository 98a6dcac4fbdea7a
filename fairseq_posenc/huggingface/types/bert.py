"""BERT (Devlin et al. 2019), and what types like it have in common: embeddings with token types, and absolute positions."""

from torch.nn.functional import pad
from transformers import PretrainedConfig

from ...base.errors import InputError
from ...core.transformer import EncoderConfig
from ...plugin.checkpoint.state_dict import ABSOLUTE, StateDict
from .base import Keys, ModelType, Names, Options, embeddings, language_model, layers, pooled, register


def projections(attention: str, ending: str = "") -> dict[Names, Names]:
    """Return the names of the projections of queries, keys and values in the module ``attention``."""
    return {f"self_attn.{name[0]}_proj": f"{attention}.{name}{ending}" for name in ("query", "key", "value")}


def bert_encoder(model: str, projection: str = "", **others: str) -> Keys:
    """Return the names of the embeddings and layers in the module ``model``.

    Args:
        projection: what the names of the projections of queries, keys and values end in.
        others: names of a layer's parts in place of BERT's: ``q_proj``, ``k_proj``, ``v_proj``, ``out_proj`` and the norms.
    """
    names: dict[Names, Names] = {
        **projections("attention.self", projection),
        "self_attn.out_proj": "attention.output.dense",
        "self_attn_layer_norm": "attention.output.LayerNorm",
        "fc1": "intermediate.dense",
        "fc2": "output.dense",
        "final_layer_norm": "output.LayerNorm",
    }
    names |= {f"self_attn.{part}" if part.endswith("_proj") else part: name for part, name in others.items()}
    return *embeddings(model), *layers(f"{model}.encoder.layer.#", names)


BERT_HEAD = language_model("cls.predictions.transform", "LayerNorm", "cls.predictions.decoder")


class BertLike(ModelType):
    """A type with learned absolute positions. Its others, which transformers 5 computes as absolute ones, are refused."""

    def _unused(self, config: PretrainedConfig) -> int:
        """Return the number of rows at the beginning of the position table that no token uses."""
        return config.pad_token_id + 1 if self.counts_from_padding else 0

    def fields(self, config: PretrainedConfig) -> Options:
        if (kind := getattr(config, "position_embedding_type", None) or "absolute") != "absolute":
            raise InputError(f"position_embedding_type {kind!r} cannot be imported, only absolute: transformers 5 ignores others")
        return {"max_positions": config.max_position_embeddings - self._unused(config)}

    def new_config(self, encoder: EncoderConfig, options: Options) -> PretrainedConfig:
        length = encoder.max_positions + (encoder.padding_idx + 1 if self.counts_from_padding else 0)
        return super().new_config(encoder, {"max_position_embeddings": length, **options})

    def after_import(self, state: StateDict, config: PretrainedConfig) -> None:
        state[ABSOLUTE] = state[ABSOLUTE][self._unused(config) :]

    def before_export(self, state: StateDict, config: PretrainedConfig) -> None:
        state[ABSOLUTE] = pad(state[ABSOLUTE], (0, 0, self._unused(config), 0))


@register
class Bert(BertLike):
    """BERT; models are exported to RoBERTa, which is the same function."""

    name, prefix = "bert", "Bert"
    keys = (*bert_encoder("bert"), *BERT_HEAD, *pooled("bert.pooler.dense"))
