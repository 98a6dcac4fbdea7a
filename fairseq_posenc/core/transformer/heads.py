"""The heads of encoders. That of classification is fairseq's own in training."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import ACTIVATIONS, EncoderConfig
from .layers import init_as_bert, init_weights, new_norm


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


class RobertaHead(LanguageModelHead):
    """The language model's head under the names of fairseq's checkpoints: ``weight`` and ``bias`` are the output projection's.

    Args:
        config: of the encoder.
        weight: (V, E), the word embeddings' parameter, which the head shares; None for one of its own.
    """

    def __init__(self, config: EncoderConfig, weight: nn.Parameter | None) -> None:
        super().__init__(config)
        self.weight = nn.Linear(self.width, config.vocab_size, bias=False).weight if weight is None else weight
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        init_weights(self, config)

    def forward(self, features: Tensor, masked_tokens: Tensor | None = None) -> Tensor:
        """(B, n, D) -> (B, n, V), or (m, V) at the m ``masked_tokens``, (B, n) bool."""
        inner = self.inner(features if masked_tokens is None else features[masked_tokens])
        return F.linear(inner, self.weight) + (0.0 if self.bias is None else self.bias)


class ClassificationHead(nn.Module):
    """fairseq's head of sentence classification: a layer and scores of every class, from the first token.

    Args:
        dim: D, the encoder's width.
        width: that of the layer.
        classes: C, their number.
        activation: the layer's.
        dropout: the probability.
    """

    def __init__(self, dim: int, width: int, classes: int, activation: str = "tanh", dropout: float = 0.0) -> None:
        super().__init__()
        self.p, self.activation = dropout, ACTIVATIONS[activation]
        self.dense = nn.Linear(dim, width)
        self.out_proj = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D), the states of first tokens -> (B, C), with dropout in training."""
        x = F.dropout(x, self.p, self.training)
        x = F.dropout(self.activation(self.dense(x)), self.p, self.training)
        return self.out_proj(x)


class SpanHead(nn.Module):
    """Scores of each token as the first and as the last of the answer: one linear layer (Devlin et al. 2019, section 4.2).

    It replaces the language model's head, so that the model's forward pass returns its scores.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.span = nn.Linear(dim, 2)
        init_as_bert(self.span)

    def forward(self, features: Tensor, masked_tokens: Tensor | None = None) -> Tensor:
        """(B, n, D) -> (B, n, 2)."""
        return self.span(features)
