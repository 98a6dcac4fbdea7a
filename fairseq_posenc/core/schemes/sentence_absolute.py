"""Absolute positions that restart at every sentence of a packed sample (Huang et al. 2021, section 5.2)."""

from torch import Tensor
from torch.nn import functional as F

from ...base.errors import InputError
from ..terms import Window, first_tokens, starts_of
from .absolute import Absolute
from .base import option, register


def within_sentences(tokens: Tensor, window: Window, separator: int, first: int) -> Tensor:
    """(B, n) tokens, whose positions in the document are the window's -> (B, n) positions in their sentences.

    Positions restart with every document and after every separator, which ends its sentence: at ``first``, or at 0 where a
    document begins with the symbol that the row begins with, ``<s>``.
    """
    begins_document = first_tokens(window.first, window.keys, tokens.device)
    begins = (tokens.roll(1, dims=1) == separator) | begins_document  # a row begins with a document
    starts = starts_of(begins)
    positions = window.positions.expand_as(tokens)
    from_zero = begins_document & (tokens == tokens[:, :1])
    return positions - positions.gather(1, starts) + first * ~from_zero.gather(1, starts)


@register
class SentenceAbsolute(Absolute):
    """``x_i = w_i + p_t`` where t is the position within the sentence. ``weight`` is (n, D).

    The first word of every sentence is at 1: in the first sentence of a sample, or of an example in a row of several, ``<s>`` is
    at 0. Where given positions are not in order, those before the sentence's first are taken as 0.
    """

    name = "sentence_absolute"
    equation = "x_i = w_i + p_{position in sentence}"
    source = "Huang et al. 2021, §5.2"
    family, advice = "added to word embeddings", "begins again in each sentence, for samples of several"
    has_causal_form = False

    class Options:
        first: int = option("position of the word after a separator", 1, minimum=0, maximum=1)

    def embed(self, window: Window, tokens: Tensor | None) -> Tensor:
        if tokens is None or self.settings.separator is None:
            raise InputError("sentence_absolute finds sentences by their separator token, so it needs tokens, not embeddings")
        self.require_rows(window)
        position_ids = within_sentences(tokens, window, self.settings.separator, self.options.first)
        return F.embedding(position_ids.clamp(0, len(self.weight) - 1), self.weight)
