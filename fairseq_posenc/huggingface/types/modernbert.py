"""ModernBERT (Warner et al. 2024): gated layers with LayerNorm before each block, rotations, and windows in most layers."""

from transformers import PretrainedConfig

from ...core.schemes import same
from ...core.schemes.positions import read_sum, sums_of
from ...core.transformer import EncoderConfig
from ...core.transformer.config import LAYER_TYPES, TRANSFORMERS
from ...plugin.checkpoint.state_dict import ENCODER, WORDS
from .base import FINAL_NORM, Head, ModelType, Names, Options, language_model, layers, register, require_equal, their_activation
from .rotary import alternating, base, bases

LAYER: dict[Names, Names] = {
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"): "attn.Wqkv",
    "self_attn.out_proj": "attn.Wo",
    "self_attn_layer_norm": "attn_norm",
    "fc1": "mlp.Wi",
    "fc2": "mlp.Wo",
    "final_layer_norm": "mlp_norm",
}


@register
class ModernBert(ModelType):
    """ModernBERT. Its other heads have another form than fairseq's."""

    name, prefix, title, heads = "modernbert", "ModernBert", "ModernBERT", ("MaskedLM",)
    keys = (
        (WORDS, "model.embeddings.tok_embeddings.weight"),
        (f"{ENCODER}layernorm_embedding.", "model.embeddings.norm."),
        *layers("model.layers.#", LAYER),
        (FINAL_NORM, "model.final_norm."),
        *language_model("head", "norm", "decoder"),
    )
    names = {
        **{**TRANSFORMERS, "activation": "hidden_activation", "activation_dropout": "mlp_dropout", "norm_bias": "norm_bias"},
        **{"attention_dropout": "attention_dropout", "layer_norm_eps": "norm_eps", "linear_bias": "attention_bias"},
        **{"dropout": "embedding_dropout", "head_bias": "classifier_bias", "output_bias": "decoder_bias"},
    }
    fixed = {"gated_ffn": True, "normalize_before": True, "first_norm": False, "initialization": "megatron"}

    def fields(self, config: PretrainedConfig) -> Options:
        require_equal(config, "attention_bias", "mlp_bias")
        require_equal(config, "hidden_activation", "classifier_activation")
        kinds, count = getattr(config, "layer_types", None), config.num_hidden_layers
        if kinds is None:  # transformers 4
            kinds = [LAYER_TYPES[number % config.global_attn_every_n_layers > 0] for number in range(count)]
            local = config.local_rope_theta
            bases = [config.global_rope_theta, config.global_rope_theta if local is None else local]
        else:
            bases = [base(config.rope_parameters[kind]) for kind in LAYER_TYPES]
        expression = alternating(kinds, dict(zip(LAYER_TYPES, bases, strict=True)), config.local_attention // 2)
        return {"positions": "modernbert" if same(expression, "modernbert", count) else expression}

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        first, *_, last = [*(turns := bases(encoder)), turns[-1]]
        window = read_sum(sums_of(encoder.positions)[-1]).window or 0
        options: Options = {"global_rope_theta": first, "local_rope_theta": last, "local_attention": 2 * window}
        options |= {"global_attn_every_n_layers": len(turns), "classifier_activation": their_activation(encoder.activation)}
        return options | {"mlp_bias": encoder.linear_bias, "cls_token_id": 0, "sep_token_id": encoder.separator_idx}
