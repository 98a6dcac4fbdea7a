"""The architectures: which expression and which sizes each name stands for."""

from __future__ import annotations

EXPRESSIONS = {
    "absolute": "absolute",
    "sinusoidal": "sinusoidal",
    "sentence_absolute": "sentence_absolute",
    "none": "none",
    "shaw": "shaw",
    "raffel": "raffel",
    "t5": "t5",
    "m1": "m1",
    "m2": "m2",
    "m4": "m4",
    "m4m": "m4m",
    "m4_reset": "m4+reset",
    "absolute_m4m": "absolute+m4m",
    "deberta": "deberta",
    "tupe_a": "untied+reset",
    "tupe_r": "untied+t5+reset",
    "tupe_a_tie_cls": "untied",
    "tupe_r_tie_cls": "untied+t5",
    "bert_r": "absolute+t5",
    "bert_ad": "absolute_untied_projection",
    "tisa": "tisa",
    "absolute_tisa": "absolute+tisa",
    "rope": "rope",
    "floater": "floater",
    "synthesizer_random": "synthesizer_random",
    "synthesizer_dense": "synthesizer_dense",
    "synthesizer_factorized_random": "synthesizer_factorized_random",
    "synthesizer_factorized_dense": "synthesizer_factorized_dense",
    "transformer_xl": "transformer_xl",
    "alibi": "alibi",
    "kerple": "kerple",
    "fire": "fire",
}

# By suffix of the name; the plain name is the base size.
SIZES = {
    "": dict(encoder_layers=12, encoder_embed_dim=768, encoder_ffn_embed_dim=3072, encoder_attention_heads=12),
    "_large": dict(encoder_layers=24, encoder_embed_dim=1024, encoder_ffn_embed_dim=4096, encoder_attention_heads=16),
    "_tiny": dict(encoder_layers=2, encoder_embed_dim=128, encoder_ffn_embed_dim=512, encoder_attention_heads=4),
}
