"""RoFormer (Su et al. 2021): BERT whose positions are rotations of neighbouring features."""

from transformers import PretrainedConfig

from ...base.errors import InputError
from ...core.transformer import EncoderConfig
from .base import CLASSIFIER, PROJECTION, Head, ModelType, Options, register
from .bert import BERT_HEAD, bert_encoder


@register
class RoFormer(ModelType):
    """RoFormer, whose sequences are at most as long as its table of sines; its classification head has the encoder's options."""

    name, prefix, title = "roformer", "RoFormer", "RoFormer"
    keys = (*bert_encoder("roformer"), (PROJECTION, "roformer.embeddings_project."), *BERT_HEAD, *CLASSIFIER)
    fixed = {"positions": "rope"}
    pooler = {"pooler_activation_fn": ("hidden_act",), "pooler_dropout": ("hidden_dropout_prob",)}

    def fields(self, config: PretrainedConfig) -> Options:
        if config.rotary_value:
            raise InputError("rotary_value cannot be imported: rotations of the values have no equivalent here")
        return {}

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        same = head.may_have(encoder.dim, encoder.activation) and (head.width is None or head.dropout == encoder.dropout)
        if encoder.positions != "rope" or not same:
            return None
        return {"embedding_size": encoder.embed_dim or encoder.dim, "type_vocab_size": 1}
