"""RoBERTa (Liu et al. 2019) and its kin: XLM-R, CamemBERT, and Longformer on sequences of at most half a window and one token."""

from transformers import PretrainedConfig, RobertaConfig

from ...plugin.checkpoint.state_dict import StateDict
from .base import ROBERTA_HEADS, RobertaHeads, register
from .bert import BertLike, bert_encoder


@register
class Roberta(RobertaHeads, BertLike):
    """RoBERTa. Its language model's head has GELU for any configured activation."""

    name, prefix, title = "roberta", "Roberta", "RoBERTa"
    also = ("xlm-roberta", "camembert", "longformer")
    keys = (*bert_encoder("roberta"), *ROBERTA_HEADS)
    counts_from_padding = True

    def prepare(self, config: PretrainedConfig, weights: StateDict) -> tuple[PretrainedConfig, StateDict]:
        if config.model_type != self.name:
            config = RobertaConfig.from_dict({**config.to_dict(), "model_type": self.name})
        return config, {name.replace("longformer.", "roberta.", 1): value for name, value in weights.items()}
