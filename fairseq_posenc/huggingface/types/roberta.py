"""RoBERTa (Liu et al. 2019) and its kin: XLM-R, CamemBERT, and Longformer on sequences of at most half a window and one token."""

from transformers import PretrainedConfig, RobertaConfig

from ...core.transformer import EncoderConfig
from ...plugin.checkpoint.state_dict import StateDict
from .base import CLASSIFIER, Head, Options, language_model, register
from .bert import BertLike, bert_encoder


@register
class Roberta(BertLike):
    """RoBERTa. Its language model's head has GELU for any configured activation."""

    name, prefix, title = "roberta", "Roberta", "RoBERTa"
    also = ("xlm-roberta", "camembert", "longformer")
    keys = (*bert_encoder("roberta"), *language_model("lm_head", "layer_norm", "lm_head.decoder"), *CLASSIFIER)
    counts_from_padding = True

    def prepare(self, config: PretrainedConfig, weights: StateDict) -> tuple[PretrainedConfig, StateDict]:
        if config.model_type != self.name:
            config = RobertaConfig.from_dict({**config.to_dict(), "model_type": self.name})
        return config, {name.replace("longformer.", "roberta.", 1): value for name, value in weights.items()}

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        if encoder.positions != "absolute" or encoder.activation != "gelu" or not head.may_have(encoder.dim, "tanh"):
            return None
        positions = encoder.max_positions + encoder.padding_idx + 1
        return {"max_position_embeddings": positions, "type_vocab_size": 1, "classifier_dropout": head.dropout}
