"""Masked language modelling with the prediction of the order of sentences (Lan et al. 2020, section 3.1).

A sample of ``masked_lm_sentence_order`` is a block of whole sentences of one document, cut in two between sentences:
``<s> A </s> </s> B </s>``, or with equal chance ``<s> B </s> </s> A </s>``, as a pair of fine-tuning. A classification head
predicts the order from the first token. The cut and the order are drawn again each epoch. A block of a single sentence stays
whole; only its words are predicted.
"""

import math
from typing import Any

import numpy as np
import torch
from fairseq import metrics
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.data import FairseqDataset, ListDataset, RawLabelDataset
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from torch import Tensor
from torch.nn import functional as F

from ...base.errors import InputError
from ..checkpoint.state_dict import SENTENCE_ORDER
from .mask_schedule import ScheduledMaskedLMConfig
from .masked_lm import CORRECT, FEW, ComparableMaskedLMTask, changed_options, correct, report_found

IN_ORDER, SWAPPED, WHOLE = 0, 1, -1


class SentenceOrderDataset(ListDataset):
    """Blocks ``<s> … </s>`` as two halves in either order; ``orders`` holds the order of each item when it was last read.

    Args:
        separator: the token that ends a sentence.
        seed: draws the cuts and orders, together with the epoch and the index.
    """

    def __init__(self, blocks: FairseqDataset, separator: int, seed: int) -> None:
        super().__init__(blocks, np.asarray(blocks.sizes) + 1)  # at most; a block that stays whole has one token less
        self._separator, self._seed, self._epoch = separator, seed, 1
        self.orders = np.full(len(blocks), WHOLE)

    def __getitem__(self, index: int) -> Tensor:
        block = self.dataset[index]
        ends = (block[1:-1] == self._separator).nonzero()[:, 0] + 2  # where a second half may begin
        if not len(ends) or block[-1] != self._separator:
            self.orders[index] = WHOLE
            return block
        generator = np.random.default_rng((self._seed, self._epoch, index))
        cut = int(ends[generator.integers(len(ends))])
        self.orders[index] = order = int(generator.integers(2))
        halves = (block[1:cut], block[cut:])
        first, second = halves if order == IN_ORDER else halves[::-1]
        return torch.cat([block[:1], first, block.new_tensor([self._separator]), second])

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch


@register_task("masked_lm_sentence_order", dataclass=ScheduledMaskedLMConfig)
class MaskedLMSentenceOrder(ComparableMaskedLMTask):
    """Trains a model on the masked words and on the order of the halves, with the criterion of the same name."""

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load one split, or raise InputError if no sample of training has two sentences."""
        super().load_dataset(split, epoch, combine, **kwargs)
        index = self._halves.dataset.dataset.block_to_dataset_index  # of each block, the first line, a place there, the last line
        pairs, advice = int((index[:, 2] > index[:, 0]).sum()), "Prepare the text with a line for each sentence."
        found = f"--task masked_lm_sentence_order: {pairs:,} of {len(index):,} samples of {split} have two sentences"
        if not pairs and "data_selector" in kwargs:  # which the trainer gives for its training split alone
            raise InputError(f"{found}: there is no order to learn. {advice}")
        report_found(found, pairs < FEW * len(index), advice)
        # The batch reads it after the tokens, which draw the order.
        self.datasets[split].dataset.defn["order"] = RawLabelDataset(self._halves.orders)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model, with a head for the order."""
        model = super().build_model(cfg, from_checkpoint)
        model.register_classification_head(SENTENCE_ORDER, num_classes=2)
        return model

    def _load_dataset_split(self, split: str, epoch: int, combine: bool) -> SentenceOrderDataset:
        # The separator between the halves takes one token.
        with changed_options(self, tokens_per_sample=self.cfg.tokens_per_sample - 1):
            blocks = super()._load_dataset_split(split, epoch, combine)
        self._halves = SentenceOrderDataset(blocks, self.dictionary.eos(), self.cfg.seed)
        return self._halves


@register_criterion("masked_lm_sentence_order", dataclass=MaskedLmConfig)
class MaskedLMSentenceOrderCriterion(MaskedLmLoss):
    """The mean cross-entropy of the masked words and that of the order, added up (Lan et al. 2020).

    ``loss`` and ``ppl`` are logged of the words alone, as by ``masked_lm``; ``order_loss`` is in bits per pair.
    """

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, Any, dict[str, Any]]:
        """Return the loss, a sum over the masked words to which the loss of the order is scaled."""
        masked = sample["target"].ne(self.padding_idx)
        words, order = masked.sum(), sample["order"]
        logits, extra = model(**sample["net_input"], masked_tokens=masked, also_classify=SENTENCE_ORDER)
        scores, pairs = extra["classes"].float(), order.ne(WHOLE).sum()
        word_loss = F.cross_entropy(logits.float(), sample["target"][masked], reduction="sum")
        order_loss = F.cross_entropy(scores, order, reduction="sum", ignore_index=WHOLE)
        logged = {
            "loss": word_loss.data,
            CORRECT: correct(logits, sample["target"][masked], self.padding_idx),
            "order_loss": order_loss.data,
            "ncorrect": (scores.argmax(1) == order).sum(),
            "npairs": pairs,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": words,
        }
        return word_loss + order_loss * words / pairs.clamp(min=1), words, logged

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        MaskedLmLoss.reduce_metrics(logging_outputs)
        names = ("order_loss", "ncorrect", "npairs")
        order_loss, correct, pairs = (torch.as_tensor(sum(log.get(name, 0) for log in logging_outputs)) for name in names)
        # Without pairs, these are not a number, and weigh nothing in an average.
        metrics.log_scalar("order_loss", order_loss / pairs / math.log(2), pairs, round=3)
        metrics.log_scalar("order_accuracy", 100.0 * correct / pairs, pairs, round=1)
