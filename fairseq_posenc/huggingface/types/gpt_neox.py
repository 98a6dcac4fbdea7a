"""GPT-NeoX (Black et al. 2022): a language model with rotations; and BLOOM (Scao et al. 2022), with ALiBi."""

from typing import Any

from transformers import PretrainedConfig

from ...core.transformer import EncoderConfig
from ...core.transformer.config import TRANSFORMERS
from ...plugin.checkpoint.state_dict import ENCODER, WORDS, StateDict
from .base import CAUSAL, FINAL_NORM, OUTPUT, Head, ModelType, Names, Options, layers, register
from .rotary import Rotary

FUSED = "query_key_value"
LAYER: dict[Names, Names] = {
    **{"fc1": "mlp.dense_h_to_4h", "fc2": "mlp.dense_4h_to_h"},
    **{"self_attn_layer_norm": "input_layernorm", "final_layer_norm": "post_attention_layernorm"},
}


def attention(module: str) -> dict[Names, Names]:
    """Return the names of the projections of attention in Megatron-LM's ``module``."""
    return {tuple(f"self_attn.{part}_proj" for part in "qkv"): f"{module}.{FUSED}", "self_attn.out_proj": f"{module}.dense"}


class MegatronLike(ModelType):
    """A language model whose rows of queries, keys and values stand together for each head."""

    heads = CAUSAL
    names: Any = TRANSFORMERS | {"dropout": "hidden_dropout", "attention_dropout": "attention_dropout"}

    def to_transformers(self, state: StateDict, config: PretrainedConfig) -> tuple[StateDict, list[str]]:
        renamed, others = super().to_transformers(state, config)
        for name, value in renamed.items():
            if FUSED in name:
                by_head = value.unflatten(0, (3, config.num_attention_heads, -1)).transpose(0, 1)
                renamed[name] = by_head.reshape(value.shape)
        return renamed, others


@register
class GptNeoX(MegatronLike, Rotary):
    """GPT-NeoX whose blocks follow each other, and whose heads turn as a whole."""

    name, prefix, title = "gpt_neox", "GPTNeoX", "GPT-NeoX"
    keys = (
        (WORDS, "gpt_neox.embed_in.weight"),
        *layers("gpt_neox.layers.#", attention("attention") | LAYER),
        *((FINAL_NORM, "gpt_neox.final_layer_norm."), (OUTPUT, "lm_head.weight")),
    )
    fixed = {"normalize_before": True, "layernorm_embedding": False}

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        options: Any = super().describe(encoder, head)
        options["rope_parameters"]["partial_rotary_factor"] = 1.0
        of_transformers_4 = {"rotary_pct": 1.0, "rotary_emb_base": options["rope_parameters"]["rope_theta"]}
        return {**options, **of_transformers_4, "use_parallel_residual": False}


@register
class Bloom(MegatronLike):
    """BLOOM, whose feed-forward networks are four times as wide as the model."""

    name, prefix, title = "bloom", "Bloom", "BLOOM"
    keys = (
        (WORDS, "transformer.word_embeddings.weight"),
        (f"{ENCODER}layernorm_embedding.", "transformer.word_embeddings_layernorm."),
        *layers("transformer.h.#", attention("self_attention") | LAYER),
        *((FINAL_NORM, "transformer.ln_f."), (OUTPUT, "lm_head.weight")),
    )
    names = MegatronLike.names | {"layer_norm_eps": "layer_norm_epsilon"}
    fixed = {"normalize_before": True, "activation": "gelu_accurate", "positions": "alibi"}

    def fields(self, config: PretrainedConfig) -> Options:
        return {"ffn_dim": 4 * config.hidden_size}
