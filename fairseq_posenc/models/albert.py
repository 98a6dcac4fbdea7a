"""ALBERT with any positional encoding."""

from ..families import ALBERT
from .architectures import register_family
from .roberta import PosencRobertaModel


@register_family(ALBERT)
class PosencAlbertModel(PosencRobertaModel):
    """ALBERT (Lan et al. 2020) whose positions are ``--positions EXPRESSION``.

    RoBERTa's model with factorised embeddings (``--embedding-size``, through which the language model's head goes too) and one
    layer's weights for all layers (``--encoder-layer-groups``). Each layer has positional parameters of its own.
    """
