"""The models that checkpoints hold, in plain PyTorch, whose parameters have the names of fairseq's models."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ...core.transformer import Decoder, DecoderConfig, Encoder, EncoderConfig
from ...core.transformer.heads import ClassificationHead, RobertaHead, SpanHead


class EncoderModel(nn.Module):
    """An encoder, the head of the language model or of question answering, and those of classification.

    Args:
        config: of the encoder.
        spans: whether it has question answering's head in place of the language model's.
        tied: whether the language model's output projection is the word embeddings.
        classes: the width of the inner layer and the number of classes of each classification head, by its name.
        activation: of the classification heads.
    """

    encoder: Any  # with the modules ``sentence_encoder`` and ``lm_head``

    def __init__(
        self, config: EncoderConfig, spans: bool, tied: bool, classes: Mapping[str, tuple[int, int]], activation: str
    ) -> None:
        super().__init__()
        self.encoder = nn.Module()
        encoder = self.encoder.sentence_encoder = Encoder(config)
        weight: Any = encoder.embed_tokens.weight if tied else None
        self.encoder.lm_head = SpanHead(config.dim) if spans else RobertaHead(config, weight)
        heads = {name: ClassificationHead(config.dim, *sizes, activation) for name, sizes in classes.items()}
        self.classification_heads = nn.ModuleDict(heads)

    def forward(self, tokens: Tensor, masked_tokens: Tensor | None = None, head: str | None = None) -> Tensor:
        """Return the scores of a head.

        Args:
            tokens: (B, n).
            masked_tokens: (B, n) bool, the m places at which symbols are scored; by default all.
            head: the name of a classification head.

        Returns:
            (B, n, V) or (m, V), (B, n, 2) of question answering, or (B, C) of a classification head.
        """
        predicts = head is None and isinstance(self.encoder.lm_head, RobertaHead)
        states = self.encoder.sentence_encoder(tokens, decode_masks=predicts).last_hidden_state
        return self.encoder.lm_head(states, masked_tokens) if head is None else self.classification_heads[head](states[:, 0])


class LanguageModel(nn.Module):
    """A decoder alone, which predicts each token from those before it."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.decoder = Decoder(config)

    def forward(self, tokens: Tensor, masked_tokens: Tensor | None = None) -> Tensor:
        """(B, n) -> (B, n, V), or (m, V) at the m ``masked_tokens``, (B, n) bool."""
        states = self.decoder(tokens)
        return self.decoder.output_projection(states if masked_tokens is None else states[masked_tokens])


class TranslationModel(nn.Module):
    """An encoder, and a decoder that attends to its states, with one table of word embeddings for both if they are shared."""

    def __init__(self, config: EncoderConfig, decoder: DecoderConfig, shared: bool) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = Decoder(decoder, self.encoder.embed_tokens if shared else None)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        """(B, S) source and (B, n) of the target, which begins with ``</s>`` -> (B, n, V), scores of the tokens that follow."""
        memory = self.encoder(tokens).last_hidden_state
        return self.decoder.output_projection(self.decoder(target, memory, tokens.eq(self.encoder.config.padding_idx)))
