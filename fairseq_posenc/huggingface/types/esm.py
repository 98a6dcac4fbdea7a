"""ESM (Lin et al. 2023, ESM-2): a model of proteins, and RoBERTa with LayerNorm before each block and rotations."""

from transformers import PretrainedConfig

from ...core.transformer import EncoderConfig
from ...core.transformer.config import TRANSFORMERS
from ...plugin.checkpoint.state_dict import ENCODER, LANGUAGE_MODEL, WORDS
from .base import FINAL_NORM, ROBERTA_HEADS, Head, Options, RobertaHeads, register
from .bert import bert_encoder


@register
class Esm(RobertaHeads):
    """ESM-2 without its scaling of embeddings by the share of masks; transformers 4 knows one base of the angles."""

    name, prefix, title = "esm", "Esm", "ESM"
    heads = ("MaskedLM", "SequenceClassification")  # transformers has no other
    keys = (
        (WORDS, "esm.embeddings.word_embeddings.weight"),
        (f"{ENCODER}layernorm_embedding.", "esm.embeddings.layer_norm."),
        *bert_encoder("esm", self_attn_layer_norm="attention.LayerNorm", final_layer_norm="LayerNorm"),
        (FINAL_NORM, "esm.encoder.emb_layer_norm_after."),
        (f"{LANGUAGE_MODEL}bias", "lm_head.bias"),
        *ROBERTA_HEADS,
    )
    names = TRANSFORMERS | {"layernorm_embedding": "emb_layer_norm_before"}
    fixed = {"normalize_before": True, "activation": "gelu", "positions": "rope", "position_options": {"rope_layout": "half"}}
    pooler = {"pooler_dropout": ("hidden_dropout_prob",)}

    def fields(self, config: PretrainedConfig) -> Options:
        return {"layernorm_embedding": bool(config.emb_layer_norm_before)}  # None by default

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        options = super().describe(encoder, head)
        if options is None or (head.width is not None and head.dropout != encoder.dropout):
            return None
        return options | {"position_embedding_type": "rotary", "token_dropout": False}
