"""ModernBERT with any positional encoding."""

from ..families import MODERNBERT
from .architectures import register_family
from .roberta import PosencRobertaModel


@register_family(MODERNBERT)
class PosencModernBertModel(PosencRobertaModel):
    """ModernBERT (Warner et al. 2024) whose positions are ``--positions EXPRESSION``.

    RoBERTa's model with gated feed-forward networks, LayerNorm before each block, and without biases. The layers of
    ``modernbert_rope`` are ModernBERT's own; other schemes replace the rotations, and have the same windows.
    """
