"""DeBERTa v2 and v3 (He et al. 2021): attention to offsets, by the layers' own projections of one table."""

from typing import Any

import torch
from transformers import PretrainedConfig

from ...base.errors import InputError
from ...core.transformer import EncoderConfig, build_positions
from ...plugin.checkpoint.state_dict import LANGUAGE_MODEL, POSITIONS, WORDS, StateDict
from .base import Head, ModelType, Options, language_model, pooled, register, their_activation
from .bert import BERT_HEAD, bert_encoder

TABLE = f"{POSITIONS}deberta.weight"
FIXED = {  # in transformers
    **{"type_vocab_size": 0, "pos_att_type": ["c2p", "p2c"], "norm_rel_ebd": "layer_norm", "position_biased_input": False},
    **{"relative_attention": True, "share_att_key": True},
    "legacy": False,  # the published head, which scores by the word embeddings
    "tie_word_embeddings": False,  # else transformers 4 ties that head's inner layer, as it has no projection of its own
}


@register
class DebertaV2(ModelType):
    """DeBERTa v2 and v3. The language model's head has two forms, ``lm_predictions`` as published, and transformers' ``cls``."""

    name, prefix, title = "deberta-v2", "DebertaV2", "DeBERTa v2"
    keys = (
        *bert_encoder("deberta", "_proj"),
        (TABLE, "deberta.encoder.rel_embeddings.weight"),
        (f"{POSITIONS}deberta.layer_norm.", "deberta.encoder.LayerNorm."),
        *language_model("lm_predictions.lm_head", "LayerNorm", "lm_predictions.lm_head"),
        *BERT_HEAD,
        *pooled("pooler.dense"),
    )
    fixed = {"positions": "deberta"}

    def prepare(self, config: PretrainedConfig, weights: StateDict) -> tuple[PretrainedConfig, StateDict]:
        """Set which of the two heads the weights have; published configurations lack it."""
        heads = [head for head in ("lm_predictions.", "cls.predictions.") if any(name.startswith(head) for name in weights)]
        if len(heads) == 1:
            config.legacy = heads == ["cls.predictions."]
            config.architectures = config.architectures or ["DebertaV2ForMaskedLM"]
        return config, weights

    def fields(self, config: PretrainedConfig) -> Options:
        for name in ("relative_attention", "share_att_key", "position_biased_input"):
            if (value := getattr(config, name, None)) != FIXED[name]:
                raise InputError(f"{name} {value} cannot be imported, only {FIXED[name]}")
        clip, buckets = config.max_relative_positions, config.position_buckets
        options = {"deberta_projections": "content", "deberta_indexing": "original", "deberta_norm_eps": config.layer_norm_eps}
        options |= {"max_relative_position": clip if clip > 0 else config.max_position_embeddings}
        return {"position_options": options | ({"deberta_buckets": buckets} if buckets > 0 else {})}

    def after_import(self, state: StateDict, config: PretrainedConfig) -> None:
        state[TABLE] = state[TABLE][None, None]  # of all layers and heads
        if f"{LANGUAGE_MODEL}dense.weight" in state:
            state.setdefault(f"{LANGUAGE_MODEL}weight", state[WORDS])

    def before_export(self, state: StateDict, config: PretrainedConfig) -> None:
        state[TABLE] = state[TABLE][0, 0]
        state.pop(f"{LANGUAGE_MODEL}weight", None)

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        if encoder.positions != "deberta" or not head.tied or head.width not in (None, encoder.dim):
            return None
        with torch.device("meta"):
            scheme: Any = build_positions(encoder).deberta
        sizes = {"max_relative_positions": scheme.clip, "position_buckets": scheme.options.buckets or -1}
        dropout = {"pooler_dropout": head.dropout, "cls_dropout": head.dropout}
        return {**FIXED, **sizes, **dropout, "pooler_hidden_act": their_activation(head.activation)}
