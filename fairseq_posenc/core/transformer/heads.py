"""The head of masked language models, which training and exports share."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .config import ACTIVATIONS, EncoderConfig
from .layers import new_norm


class LanguageModelHead(nn.Module):
    """The head of masked language models: the scores ``norm(f(x W + c)) Uᵀ + b`` of every symbol (Devlin et al. 2019).

    The inner layer is E wide, as the word embeddings are, and of the encoder's activation f and normalization; without
    ``head_layer`` there is none. Subclasses have the output projection U (V, E) and b (V,), each under its library's names.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.width = config.embed_dim or config.dim
        self.dense = nn.Linear(config.dim, self.width, config.head_bias) if config.head_layer else nn.Identity()
        self.activation = ACTIVATIONS[config.activation] if config.head_layer else nn.Identity()
        self.layer_norm = new_norm(config, self.width) if config.head_layer else nn.Identity()

    def scores(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(…, D) -> (…, V), with the output projection's weight (V, E) and bias (V,)."""
        scores = F.linear(self.layer_norm(self.activation(self.dense(x))), weight)
        return scores if bias is None else scores + bias
