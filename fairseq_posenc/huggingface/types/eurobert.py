"""EuroBERT (Boizard et al. 2025): Llama's layers with attention to all tokens. transformers 4 does not have it."""

from transformers import PretrainedConfig

from ...core.transformer import EncoderConfig
from ...core.transformer.config import TRANSFORMERS
from ...plugin.checkpoint.state_dict import LANGUAGE_MODEL, WORDS
from .base import ATTENTION, FINAL_NORM, GATED, OUTPUT, Head, Keys, ModelType, Options, layers, register, require_equal
from .rotary import Rotary

LLAMA: Keys = (
    (WORDS, "model.embed_tokens.weight"),
    *layers("model.layers.#", ATTENTION | GATED),
    *layers("model.layers.#", {"self_attn_layer_norm": "input_layernorm", "final_layer_norm": "post_attention_layernorm"}),
    (FINAL_NORM, "model.norm."),
)


class LlamaLike(ModelType):
    """A type with Llama's layers: RMSNorm before each block, and gated feed-forward networks."""

    names = {
        **{**TRANSFORMERS, "attention_dropout": "attention_dropout"},
        **{"layer_norm_eps": "rms_norm_eps", "linear_bias": "attention_bias"},
    }
    fixed = {
        **{"gated_ffn": True, "normalize_before": True, "layernorm_embedding": False, "norm": "rms", "norm_bias": False},
        **{"head_bias": False, "dropout": 0.0},
    }

    def fields(self, config: PretrainedConfig) -> Options:
        require_equal(config, "attention_bias", "mlp_bias")
        require_equal(config, "num_key_value_heads", "num_attention_heads")
        return super().fields(config)

    def describe(self, encoder: EncoderConfig, head: Head) -> Options:
        options = {"mlp_bias": encoder.linear_bias, "num_key_value_heads": encoder.heads}
        return options | (super().describe(encoder, head) or {})


@register
class EuroBert(LlamaLike, Rotary):
    """EuroBERT. Its language model's head is the output projection alone; its other heads have another form than fairseq's."""

    name, prefix, title, heads = "eurobert", "EuroBert", "EuroBERT", ("MaskedLM",)
    keys = (*LLAMA, (OUTPUT, "lm_head.weight"), (f"{LANGUAGE_MODEL}bias", "lm_head.bias"))
    fixed = LlamaLike.fixed | {"head_layer": False}

    def fields(self, config: PretrainedConfig) -> Options:
        return super().fields(config) | {"output_bias": config.mlp_bias}
