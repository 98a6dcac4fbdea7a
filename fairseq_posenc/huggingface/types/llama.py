"""Llama (Touvron et al. 2023): a language model with RMSNorm, gated feed-forward networks and rotations."""

from .base import CAUSAL, OUTPUT, register
from .eurobert import LLAMA, LlamaLike
from .rotary import Rotary


@register
class Llama(LlamaLike, Rotary):
    """Llama, whose every head has keys and values of its own."""

    name, prefix, title, heads = "llama", "Llama", "Llama", CAUSAL
    keys = (*LLAMA, (OUTPUT, "lm_head.weight"))
    fixed = LlamaLike.fixed | {"head_bias": True}  # of a head that language models have not
