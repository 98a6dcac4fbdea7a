"""ALBERT (Lan et al. 2020): narrow word embeddings, and layers that share their weights."""

from transformers import PretrainedConfig

from ...core.transformer import EncoderConfig
from .base import PROJECTION, Head, Names, Options, embeddings, language_model, layers, pooled, register
from .bert import BertLike, projections

LAYER: dict[Names, Names] = {
    **projections("attention"),
    "self_attn.out_proj": "attention.dense",
    "self_attn_layer_norm": "attention.LayerNorm",
    "fc1": "ffn",
    "fc2": "ffn_output",
    "final_layer_norm": "full_layer_layer_norm",
}


@register
class Albert(BertLike):
    """ALBERT. Its prediction of the order of sentences is left out."""

    name, prefix, title = "albert", "Albert", "ALBERT"
    keys = (
        *embeddings("albert"),
        *layers("albert.encoder.albert_layer_groups.#.albert_layers.0", LAYER),
        (PROJECTION, "albert.encoder.embedding_hidden_mapping_in."),
        *language_model("predictions", "LayerNorm", "predictions.decoder"),
        *pooled("albert.pooler"),
    )

    def fields(self, config: PretrainedConfig) -> Options:
        return super().fields(config) | {"embed_dim": config.embedding_size, "layer_groups": config.num_hidden_groups}

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        width, groups = encoder.embed_dim, encoder.layer_groups
        if not (width and groups and head.may_have(encoder.dim, "tanh")):
            return None
        sizes = {"embedding_size": width, "num_hidden_groups": groups, "type_vocab_size": 1}
        return sizes | {"classifier_dropout_prob": head.dropout}
