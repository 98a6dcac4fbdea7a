"""Masked language modelling in batches of one shape, with all that a training step would else read from the GPU.

The samples are those of fairseq's ``masked_lm``, token for token and mask for mask. A batch of them is filled up to
``--batch-size`` rows of ``--tokens-per-sample`` tokens. It lists the masked positions, so that the head and the criterion of the
same name compute there alone, and has the padding and, with ``--document-mask``, where documents begin.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.data import BaseWrapperDataset, Dictionary, FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from torch import Tensor
from torch.nn import functional as F

from ..errors import Refused
from ..models.building import ONE_SHAPE
from ..models.roberta import PosencRobertaModel
from .packing import require_restart

WIDTH = 8  # positions; what tensor cores take at once


@dataclass
class StaticMaskedLMConfig(MaskedLMConfig):
    """Options of the task."""

    document_mask: bool = field(
        default=False,
        metadata={"help": "let tokens see those of their own document only, and count positions from its start; a document ends "
                  "with an empty line"},
    )  # fmt: skip


class StaticBatches(BaseWrapperDataset):
    """``masked_lm``'s samples in batches of one shape.

    Args:
        dataset: the samples, as :class:`MaskedLMTask` makes them.
        dictionary: its symbols.
        tokens: n, tokens per row.
        masked: the most masked tokens that a row is expected to have; the list of positions is longer where a batch has more.
        documents: whether batches have the beginnings of documents.

    Attributes:
        rows: B, rows per batch; 0 for as many as there are samples.
    """

    rows = 0

    def __init__(self, dataset: FairseqDataset, dictionary: Dictionary, tokens: int, masked: int, documents: bool) -> None:
        super().__init__(dataset)
        self._dictionary = dictionary
        self._tokens = tokens
        self._masked = masked
        self._documents = documents

    def collater(self, samples: list[Any]) -> dict[str, Any]:
        """A batch with M listed positions; none of no samples.

        ``net_input`` has ``src_tokens`` (B, n), ``mask`` (see :class:`~fairseq_posenc.transformer.Mask`) and ``read_at``
        (M,), the masked positions in the rows one after another. ``target`` (M,) has the words there, and padding where the list
        is filled up; ``sample_size``, a plain number, is how many there are.
        """
        batch = super().collater(samples)
        if not batch:
            return batch
        pad = self._dictionary.pad()
        tokens, target = (self._filled(x) for x in (batch["net_input"]["src_tokens"], batch["target"]))
        padding = tokens == pad
        mask: dict[str, Tensor] = {}
        if padding.any():
            mask["padding"] = padding
        if self._documents:
            unmasked = torch.where(target == pad, tokens, target)
            mask["documents"] = document_starts(unmasked, self._dictionary.bos(), self._dictionary.eos())
        target = target.flatten()
        places = target.ne(pad).nonzero().flatten()
        unused = -(-max(len(tokens) * self._masked, len(places)) // WIDTH) * WIDTH - len(places)
        read_at = F.pad(places, (0, unused))
        return {
            **batch,
            "net_input": {"src_tokens": tokens, "mask": mask, "read_at": read_at},
            "target": F.pad(target[places], (0, unused), value=pad),
            "sample_size": len(places),
        }

    def _filled(self, rows: Tensor) -> Tensor:
        """(b, w) -> (B, n), filled up with padding."""
        count, width = rows.shape
        return F.pad(rows, (0, self._tokens - width, 0, max(0, self.rows - count)), value=self._dictionary.pad())


def document_starts(tokens: Tensor, bos: int, eos: int) -> Tensor:
    """(B, n) tokens -> (B, n) int32: for each position, where its document starts in the row.

    A document ends with an empty line: an end of a line that follows another, or the beginning of the row.
    """
    ends = tokens == eos
    empty = ends[:, 1:] & (ends | (tokens == bos))[:, :-1]
    after = F.pad(empty[:, :-1], (2, 0))
    index = torch.arange(tokens.shape[1], dtype=torch.int32)
    return torch.where(after, index, 0).cummax(1).values


@register_task(ONE_SHAPE, dataclass=StaticMaskedLMConfig)
class StaticMaskedLMTask(MaskedLMTask):
    """``masked_lm`` in batches of one shape, to which every batch is filled up.

    Raises:
        Refused: ``--max-tokens``, which makes batches of many shapes, or a model or an option that these batches mean nothing to.
    """

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        if self.cfg.include_target_tokens:
            raise Refused(f"--include-target-tokens is for models that --task {ONE_SHAPE} does not train: leave it out")
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, PosencRobertaModel):
            raise Refused(f"--task {ONE_SHAPE} trains the architectures of fairseq_posenc: name one, as in --arch roberta_tisa")
        if self.cfg.document_mask:
            require_restart(model, "--document-mask")
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        super().load_dataset(split, epoch, combine, **kwargs)
        tokens = self.cfg.tokens_per_sample
        masked = int(self.cfg.mask_prob * tokens) + 1  # the share is rounded up or down by chance
        options = (self.source_dictionary, tokens, masked, self.cfg.document_mask)
        self.datasets[split] = StaticBatches(self.datasets[split], *options)

    def get_batch_iterator(self, dataset: StaticBatches, **options: Any) -> EpochBatchIterator:
        if options["max_sentences"] is None or options["max_tokens"] is not None:
            raise Refused(f"--task {ONE_SHAPE} needs --batch-size, and no --max-tokens, whose batches have many shapes")
        most, multiple = options["max_sentences"], options["required_batch_size_multiple"]
        dataset.rows = most - most % multiple or most  # as fairseq makes batches
        return super().get_batch_iterator(dataset, **options)


@register_criterion(ONE_SHAPE, dataclass=MaskedLmConfig)
class StaticMaskedLmLoss(MaskedLmLoss):
    """fairseq's ``masked_lm``, at the positions that the batch lists.

    fairseq's finds them by masks, so that the host waits for the device: once for the features, once for the targets. Can go when
    fairseq's takes positions from the batch.
    """

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        logits = model(**sample["net_input"])[0].float()  # (M, vocabulary)
        loss = F.cross_entropy(logits, sample["target"], ignore_index=self.padding_idx, reduction="sum")
        logged = {name: sample[name] for name in ("ntokens", "nsentences", "sample_size")}
        return loss, sample["sample_size"], {"loss": loss.data, **logged}
