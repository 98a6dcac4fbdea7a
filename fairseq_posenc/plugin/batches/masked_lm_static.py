"""Masked language modelling in batches of one shape.

A batch of ``masked_lm_static`` is filled up to ``--batch-size`` rows of ``--tokens-per-sample`` tokens. It lists the masked
positions, so that the head and the criterion of the same name compute there alone, and has the padding and, with
``--document-mask``, where documents begin: all that a training step would else read from the GPU. With ``--pack-documents``, its
rows are of whole documents (:mod:`.row_packing`).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.data import BaseWrapperDataset, Dictionary, FairseqDataset, PrependTokenDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks import register_task
from torch import Tensor
from torch.nn import functional as F

from ...base.errors import InputError
from ...core.terms import starts_of
from ..models.building import ONE_SHAPE
from .mask_schedule import ScheduledMaskedLMConfig
from .masked_lm import CORRECT, FEW, ComparableMaskedLMTask, Starts, correct, report_found
from .row_packing import DocumentsDataset, PackedDocumentsDataset

WIDTH = 8  # positions; the size of tensor cores' tiles


@dataclass
class StaticMaskedLMConfig(ScheduledMaskedLMConfig):
    """Options of the task ``masked_lm_static``: those of ``masked_lm``, and what documents mean to attention and to rows."""

    document_mask: bool = field(
        default=False,
        metadata={"help": "attend within documents, and count positions from their start; a document ends with an empty line"},
    )
    pack_documents: bool = field(
        default=False,
        metadata={
            "help": "fill rows with whole documents by best fit, each after its own <s>, and attend within documents; a document "
            "that is too long for a row is cut"
        },
    )


class FixedShapeDataset(BaseWrapperDataset):
    """The samples of ``masked_lm`` in batches of one shape.

    Args:
        dataset: the samples, as :class:`MaskedLMTask` makes them.
        predicts_next: whether the model has ``--masked-next-token``, and the first token of a document is not predicted.
        starts: returns where documents begin, (B, n) of tokens (B, n); None where tokens attend to the whole row.

    Attributes:
        rows: B, rows per batch; 0 for as many as there are samples.
    """

    rows = 0

    def __init__(
        self,
        dataset: FairseqDataset,
        dictionary: Dictionary,
        cfg: StaticMaskedLMConfig,
        predicts_next: bool,
        starts: Starts | None,
    ) -> None:
        super().__init__(dataset)
        self._dictionary, self._tokens, self._starts = dictionary, cfg.tokens_per_sample, starts
        self._from_second = cfg.pack_documents or (cfg.document_mask and predicts_next)
        self._masked = int(cfg.mask_prob * self._tokens) + 1  # expected per row at most; the share is rounded by chance

    def collater(self, samples: list[Any]) -> dict[str, Any]:
        """Return a batch with M listed positions, or an empty one without samples.

        ``net_input`` has ``src_tokens`` (B, n), ``mask`` (see :class:`~fairseq_posenc.core.transformer.Mask`) and ``read_at``
        (M,), the masked positions in the rows one after another. ``target`` (M,) has the words there, and padding where the list
        is filled up; ``sample_size``, a plain number, is their number.
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
        unmasked = torch.where(target == pad, tokens, target)
        if self._starts is not None:
            mask["documents"] = self._starts(unmasked)
        if self._from_second:  # <s>, as the first token of a packed document, would be a larger share of shorter documents
            first = mask["documents"] == torch.arange(self._tokens)
            tokens, target = torch.where(first, unmasked, tokens), target.masked_fill(first, pad)
        target = target.flatten()
        masked = target.ne(pad).nonzero().flatten()
        unused = -(-max(len(tokens) * self._masked, len(masked)) // WIDTH) * WIDTH - len(masked)
        read_at = F.pad(masked, (0, unused))
        return {
            **batch,
            "net_input": {"src_tokens": tokens, "mask": mask, "read_at": read_at},
            "target": F.pad(target[masked], (0, unused), value=pad),
            "sample_size": len(masked),
        }

    def _filled(self, rows: Tensor) -> Tensor:
        """Return (b, w) rows as (B, n), filled up with padding."""
        count, width = rows.shape
        return F.pad(rows, (0, self._tokens - width, 0, max(0, self.rows - count)), value=self._dictionary.pad())


def document_starts(tokens: Tensor, bos: int, eos: int) -> Tensor:
    """Return (B, n) for (B, n) tokens: for each position, where its document starts in the row.

    A document ends with an empty line: an end of a line that follows another, or the beginning of the row. So a row that was cut
    just before the end of a line (``--sample-break-mode none``) begins with a document of ``<s>`` and that end.
    """
    ends = tokens == eos
    empty = ends[:, 1:] & (ends | (tokens == bos))[:, :-1]
    return starts_of(F.pad(empty[:, :-1], (2, 0)))


def packed_starts(tokens: Tensor, bos: int) -> Tensor:
    """Return the same where each document begins with ``<s>``."""
    return starts_of(tokens == bos)


@register_task(ONE_SHAPE, dataclass=StaticMaskedLMConfig)
class StaticMaskedLMTask(ComparableMaskedLMTask):
    """Trains ``masked_lm`` in batches of one shape, to which every batch is filled up."""

    @property
    def document_starts(self) -> Starts | None:  # type: ignore[override]
        """What returns the starts of documents in rows, (B, n) of tokens (B, n), where tokens attend within documents."""
        bos, eos = self.source_dictionary.bos(), self.source_dictionary.eos()
        if self.cfg.pack_documents:
            return partial(packed_starts, bos=bos)
        return partial(document_starts, bos=bos, eos=eos) if self.cfg.document_mask else None

    def _load_dataset_split(self, split: str, epoch: int, combine: bool) -> FairseqDataset:
        packed, symbols, tokens = self.cfg.pack_documents, self.dictionary, self.cfg.tokens_per_sample
        rows = super()._load_dataset_split(split, epoch, combine)
        if not (packed or self.cfg.document_mask):
            return rows
        lines, pieces = rows.dataset.dataset, ""
        if packed:
            documents = DocumentsDataset(lines, lines.sizes, tokens - 1, pad=symbols.pad(), eos=symbols.eos())
            if not len(documents):
                raise InputError(f"--pack-documents: {split} has no documents, only empty lines")
            rows = PackedDocumentsDataset(PrependTokenDataset(documents, symbols.bos()), tokens)
            pieces = f", whose {len(documents):,} pieces fill {rows.sizes.sum() / (len(rows) * tokens):.2%} of the rows"
        count = len(np.flatnonzero(np.diff(np.asarray(lines.sizes) > 1, prepend=False, append=False))) // 2
        flag = "--pack-documents" if packed else "--document-mask"
        report_found(
            f"{flag}: {len(rows):,} samples of {split} hold {count:,} documents{pieces}",
            count < max(2, FEW * len(rows)),
            "Documents end at empty lines, which the text has to have when it is prepared.",
        )
        return rows

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        super().load_dataset(split, epoch, combine, **kwargs)
        options = self.cfg, self.predicts_next, self.document_starts
        self.datasets[split] = FixedShapeDataset(self.datasets[split], self.source_dictionary, *options)

    def get_batch_iterator(self, dataset: FixedShapeDataset, **options: Any) -> EpochBatchIterator:
        rows, multiple = options["max_sentences"] or 0, options["required_batch_size_multiple"]
        dataset.rows = rows and (rows - rows % multiple or rows)  # as fairseq makes batches
        return super().get_batch_iterator(dataset, **options)


@register_criterion(ONE_SHAPE, dataclass=MaskedLmConfig)
class StaticMaskedLmLoss(MaskedLmLoss):
    """The loss of fairseq's ``masked_lm``, at the positions that the batch lists.

    fairseq's criterion finds them by masks, so that the host waits for the device: once for the features, once for the targets.
    This one can be removed when fairseq's takes positions from the batch.
    """

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        logits = model(**sample["net_input"])[0].float()  # (M, vocabulary)
        loss = F.cross_entropy(logits, sample["target"], ignore_index=self.padding_idx, reduction="sum")
        logged = {name: sample[name] for name in ("ntokens", "nsentences", "sample_size")}
        right = correct(logits, sample["target"], self.padding_idx)
        return loss, sample["sample_size"], {"loss": loss.data, CORRECT: right, **logged}
