"""BERT (Devlin et al. 2019), and what types like it have in common: embeddings with token types, and positions by offset."""

import torch
from transformers import PretrainedConfig, PreTrainedModel

from ...plugin.checkpoint.state_dict import ABSOLUTE, StateDict
from . import relative_keys
from .base import Keys, ModelType, Names, Options, embeddings, language_model, layers, pooled, register


def projections(attention: str, ending: str = "") -> dict[Names, Names]:
    """Return the names of the projections of queries, keys and values and the table of offsets in the module ``attention``."""
    names: dict[Names, Names] = {f"self_attn.{name[0]}_proj": f"{attention}.{name}{ending}" for name in ("query", "key", "value")}
    return {**names, "offsets": f"{attention}.distance_embedding"}


def bert_encoder(model: str, projection: str = "") -> Keys:
    """Return the names of the embeddings and layers in the module ``model``, whose projections end in ``projection``."""
    names: dict[Names, Names] = {
        **projections("attention.self", projection),
        "self_attn.out_proj": "attention.output.dense",
        "self_attn_layer_norm": "attention.output.LayerNorm",
        "fc1": "intermediate.dense",
        "fc2": "output.dense",
        "final_layer_norm": "output.LayerNorm",
    }
    return *embeddings(model), *layers(f"{model}.encoder.layer.#", names)


BERT_HEAD = language_model("cls.predictions.transform", "LayerNorm", "cls.predictions.decoder")


class BertLike(ModelType):
    """A type with learned absolute positions or, with ``position_embedding_type``, those by offset of :mod:`.relative_keys`."""

    scales_offsets = True
    """Whether the products with tables of offsets are divided by √d."""

    def _unused(self, config: PretrainedConfig) -> int:
        """Return the number of rows at the beginning of the position table that no token uses."""
        return config.pad_token_id + 1 if self.counts_from_padding else 0

    def complete(self, model: PreTrainedModel, weights: StateDict) -> None:
        if relative_keys.fields(model.config):
            relative_keys.restore(model, weights, self.scales_offsets)

    def fields(self, config: PretrainedConfig) -> Options:
        values = {"max_positions": config.max_position_embeddings - self._unused(config)}
        return values | relative_keys.fields(config)

    def after_import(self, state: StateDict, config: PretrainedConfig) -> None:
        unused = self._unused(config)
        state[ABSOLUTE] = state[ABSOLUTE][unused:]
        relative_keys.to_scheme(state, config, unused)

    def before_export(self, state: StateDict, config: PretrainedConfig) -> None:
        table = state[ABSOLUTE]
        state[ABSOLUTE] = torch.cat([table.new_zeros(self._unused(config), table.shape[1]), table])


@register
class Bert(BertLike):
    """BERT; models are exported to RoBERTa, which is the same function."""

    name, prefix = "bert", "Bert"
    keys = (*bert_encoder("bert"), *BERT_HEAD, *pooled("bert.pooler.dense"))
