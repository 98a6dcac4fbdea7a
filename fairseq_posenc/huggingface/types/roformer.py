"""RoFormer (Su et al. 2021): BERT whose positions are rotations of neighbouring features."""

from transformers import PretrainedConfig

from ...base.errors import InputError
from .base import CLASSIFIER, PROJECTION, ModelType, Options, register
from .bert import BERT_HEAD, bert_encoder


@register
class RoFormer(ModelType):
    """RoFormer, whose classification head has the encoder's options.

    No model is exported to it: its attention is not fused, its sequences are at most as long as its table of sines, and it does
    not keep the documents of one row apart.
    """

    name, prefix = "roformer", "RoFormer"
    keys = (*bert_encoder("roformer"), (PROJECTION, "roformer.embeddings_project."), *BERT_HEAD, *CLASSIFIER)
    fixed = {"positions": "rope"}
    pooler = {"pooler_activation_fn": ("hidden_act",), "pooler_dropout": ("hidden_dropout_prob",)}

    def fields(self, config: PretrainedConfig) -> Options:
        if config.rotary_value:
            raise InputError("rotary_value cannot be imported: rotations of the values have no equivalent here")
        return {}
