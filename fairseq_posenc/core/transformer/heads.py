"""The head of masked language models, which training and exports share."""

from __future__ import annotations

from torch import Tensor, nn

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

    def inner(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, E), of which the output projection makes the scores."""
        return self.layer_norm(self.activation(self.dense(x)))
