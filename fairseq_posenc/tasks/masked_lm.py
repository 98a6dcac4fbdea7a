"""Masked language modelling: fairseq's ``masked_lm`` with comparable validation losses, and in batches of one shape.

fairseq draws the masks of validation from ``--seed``, as those of training, and masks ``<s>`` as any token. The losses of one
checkpoint with two seeds then differ by more than those of two schemes. Here the masks of validation depend on the index of the
sample alone, and ``<s>``, with which each sample begins, is not predicted. The masks of training are fairseq's.

A batch of ``masked_lm_static`` is filled up to ``--batch-size`` rows of ``--tokens-per-sample`` tokens. It lists the masked
positions, so that the head and the criterion of the same name compute there alone, and has the padding and, with
``--document-mask``, where documents begin: all that a training step would else read from the GPU. With ``--pack-documents``, its
rows are of whole documents (:mod:`.row_packing`).

A sample of ``masked_lm_sentence_order`` (Lan et al. 2020, section 3.1) is a block of whole sentences of one document, cut in two
between sentences: ``<s> A </s> </s> B </s>``, or with equal chance ``<s> B </s> </s> A </s>``, as a pair of fine-tuning. A
classification head predicts the order from the first token. The cut and the order are drawn again each epoch. A block of a
single sentence stays whole; only its words are predicted.
"""

import copy
import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import metrics, utils
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.data import (
    BaseWrapperDataset,
    Dictionary,
    FairseqDataset,
    ListDataset,
    MaskTokensDataset,
    PrependTokenDataset,
    RawLabelDataset,
)
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import TASK_REGISTRY, FairseqTask, masked_lm, register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from torch import Tensor
from torch.nn import functional as F

from ..errors import InputError, Refused
from ..models.building import ONE_SHAPE
from ..models.roberta import PosencRobertaModel
from ..models.state_dict import SENTENCE_ORDER
from ..vocabulary import Vocabulary
from .row_packing import DocumentsDataset, PackedDocumentsDataset

VALIDATION_SEED = 1
WIDTH = 8  # positions; the size of tensor cores' tiles
IN_ORDER, SWAPPED, WHOLE = 0, 1, -1
GLOBAL_GENERATOR = threading.RLock()
"""Held while fairseq seeds, reads and restores NumPy's global generator, since threads load and read data at the same time."""
logger = logging.getLogger(__name__)


@contextmanager
def changed_options(task: FairseqTask, **values: Any) -> Iterator[None]:
    """In this context, a task's options have other values."""
    cfg, task.cfg = task.cfg, copy.deepcopy(task.cfg)
    for name, value in values.items():
        setattr(task.cfg, name, value)
    try:
        yield
    finally:
        task.cfg = cfg


def require_encoder(model: BaseFairseqModel, flag_name: str) -> None:
    """Check that a model is one of this package's encoders.

    Raises:
        Refused: it is not; the message names the flag.
    """
    if not isinstance(model, PosencRobertaModel):
        raise Refused(f"{flag_name} is for the architectures of fairseq_posenc, such as --arch roberta_tisa")


class FirstTokenDataset(BaseWrapperDataset):
    """Samples whose first token is replaced by ``token``."""

    def __init__(self, dataset: FairseqDataset, token: int) -> None:
        super().__init__(dataset)
        self._token = token

    def __getitem__(self, index: int) -> Tensor:
        sample = self.dataset[index].clone()  # the data set below keeps it
        sample[0] = self._token
        return sample


class LockedMaskTokensDataset(MaskTokensDataset):
    """fairseq's masks, which it draws from NumPy's global generator."""

    def __getitem__(self, index: int) -> Tensor:
        with GLOBAL_GENERATOR:
            return super().__getitem__(index)


class FastMaskTokensDataset(MaskTokensDataset):
    """Inputs and targets, (2, n), with the masks that fairseq draws, at a fraction of the time.

    fairseq draws the masks of a sample twice, saves and restores the state of NumPy's global generator each time, and adds up the
    probabilities of all words for each replacement. Masks of whole words and of several tokens are left to fairseq.
    """

    _last: tuple[tuple[int, int], Tensor] | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._generator = np.random.RandomState()  # not one for all: threads read training and validation data at the same time

    @classmethod
    def apply_mask(cls, dataset: FairseqDataset, *args: Any, **options: Any) -> tuple[BaseWrapperDataset, BaseWrapperDataset]:
        """Return the data sets of inputs and of targets."""
        multiple = options["mask_whole_words"] is not None or options["mask_multiple_length"] > 1 or options["mask_stdev"] > 0
        if multiple:
            return LockedMaskTokensDataset.apply_mask(dataset, *args, **options)
        pairs = cls(dataset, *args, **options)
        return RowOfPairDataset(pairs, 0), RowOfPairDataset(pairs, 1)

    def __getitem__(self, index: int) -> Tensor:
        last = self._last  # another thread may replace it meanwhile
        if last is None or last[0] != (self.epoch, index):  # each sample is read several times in a row
            self._last = last = (self.epoch, index), self._draw(index)
        return last[1]

    def _draw(self, index: int) -> Tensor:
        item, draw = self.dataset[index].numpy(), self._generator
        if self.mask_idx in item:
            raise InputError(f"sample {index} of the data-bin contains <mask>, which only the task may insert: prepare it again")
        draw.seed(int(hash((self.seed, self.epoch, index)) % 1e6))  # as fairseq's numpy_seed
        n = len(item)
        masked = np.zeros(n, dtype=bool)
        masked[draw.choice(n, int(self.mask_prob * n + draw.rand()), replace=False)] = True
        target = np.where(masked, item, self.pad_idx)
        other = self.random_token_prob + self.leave_unmasked_prob
        replaced = np.zeros(n, dtype=bool)
        if other > 0:
            changed = masked & (draw.rand(n) < other)
            if self.random_token_prob == 0:
                kept = changed
            elif self.leave_unmasked_prob == 0:
                kept, replaced = replaced, changed
            else:
                kept = changed & (draw.rand(n) < self.leave_unmasked_prob / other)
                replaced = changed & ~kept
            masked = masked & ~kept
        inputs = np.where(masked, self.mask_idx, item)
        if count := int(replaced.sum()):
            inputs[replaced] = self._cumulative.searchsorted(draw.random_sample(count), side="right")
        return torch.from_numpy(np.stack([inputs, target]))

    @cached_property
    def _cumulative(self) -> np.ndarray:
        """The distribution function of random words, by which NumPy's ``choice`` selects."""
        cumulative = self.weights.cumsum()
        return cumulative / cumulative[-1]


class RowOfPairDataset(BaseWrapperDataset):
    """Row 0 or 1 of each sample."""

    def __init__(self, dataset: FairseqDataset, row: int) -> None:
        super().__init__(dataset)
        self._row = row

    def __getitem__(self, index: int) -> Tensor:
        return self.dataset[index][self._row]


class ComparableMaskedLMTask(MaskedLMTask):
    """fairseq's ``masked_lm``, which it replaces, with fixed masks for all splits except that of training.

    Raises:
        Refused: the criterion is not the one of the task's name. fairseq's default, ``cross_entropy``, takes the mean over all
            tokens and trains a model that repeats its input.
    """

    args = property(lambda self: self.cfg)  # fairseq's --mask-whole-words reads the options there

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        if "data_selector" in kwargs:  # which the trainer gives for its training split alone
            with GLOBAL_GENERATOR:
                super().load_dataset(split, epoch, combine, **kwargs)
            return
        with GLOBAL_GENERATOR, changed_options(self, seed=VALIDATION_SEED):
            super().load_dataset(split, epoch, combine, **kwargs)
        columns = self.datasets[split].dataset.defn
        for name, token in (("net_input.src_tokens", self.dictionary.bos()), ("target", self.dictionary.pad())):
            columns[name].dataset = FirstTokenDataset(columns[name].dataset, token)

    def build_criterion(self, cfg: Any, *args: Any, **kwargs: Any) -> FairseqCriterion:
        task, given = self.cfg._name, getattr(cfg, "_name", None)
        if task in CRITERION_REGISTRY and given != task:
            raise Refused(f"--criterion {given} does not measure the predictions of --task {task}: use --criterion {task}")
        return super().build_criterion(cfg, *args, **kwargs)


def _word_beginnings(cfg: MaskedLMConfig, dictionary: Dictionary) -> Tensor:
    """Return (symbols,) uint8: whether a symbol begins a word, by the tokenizer in the data-bin, or is no piece of text."""
    tokenizer = Vocabulary(Path(utils.split_paths(cfg.data)[0])).tokenizer
    return torch.ByteTensor(
        [number < dictionary.nspecial or symbol.startswith("madeupword") or tokenizer.begins_word(symbol)
         for number, symbol in enumerate(dictionary.symbols)]
    )  # fmt: skip


masked_lm.get_whole_word_mask = _word_beginnings
masked_lm.MaskTokensDataset = FastMaskTokensDataset
masked_lm.MaskedLMTask = TASK_REGISTRY["masked_lm"] = ComparableMaskedLMTask


@dataclass
class StaticMaskedLMConfig(MaskedLMConfig):
    """Options of the task."""

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

    Attributes:
        rows: B, rows per batch; 0 for as many as there are samples.
    """

    rows = 0

    def __init__(self, dataset: FairseqDataset, dictionary: Dictionary, cfg: StaticMaskedLMConfig) -> None:
        super().__init__(dataset)
        self._dictionary, self._tokens, self._packed = dictionary, cfg.tokens_per_sample, cfg.pack_documents
        self._documents = cfg.document_mask or cfg.pack_documents
        self._masked = int(cfg.mask_prob * self._tokens) + 1  # expected per row at most; the share is rounded by chance

    def collater(self, samples: list[Any]) -> dict[str, Any]:
        """Return a batch with M listed positions, or an empty one without samples.

        ``net_input`` has ``src_tokens`` (B, n), ``mask`` (see :class:`~fairseq_posenc.transformer.Mask`) and ``read_at``
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
        bos, eos = self._dictionary.bos(), self._dictionary.eos()
        unmasked = torch.where(target == pad, tokens, target)
        if self._documents:
            mask["documents"] = places_of(unmasked == bos) if self._packed else document_starts(unmasked, bos, eos)
        if self._packed:  # <s> is not predicted: it would be a larger share of shorter documents
            tokens, target = tokens.where(unmasked != bos, bos), target.where(unmasked != bos, pad)
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
    """Return (B, n) int32 for (B, n) tokens: for each position, where its document starts in the row.

    A document ends with an empty line: an end of a line that follows another, or the beginning of the row. So a row that was cut
    just before the end of a line (``--sample-break-mode none``) begins with a document of ``<s>`` and that end.
    """
    ends = tokens == eos
    empty = ends[:, 1:] & (ends | (tokens == bos))[:, :-1]
    return places_of(F.pad(empty[:, :-1], (2, 0)))


def places_of(begins: Tensor) -> Tensor:
    """Return (B, n) int32: for each position, the last place up to it where ``begins`` (B, n) is true; 0 if there is none."""
    index = torch.arange(begins.shape[1], dtype=torch.int32)
    return torch.where(begins, index, 0).cummax(1).values


@register_task(ONE_SHAPE, dataclass=StaticMaskedLMConfig)
class StaticMaskedLMTask(ComparableMaskedLMTask):
    """Trains ``masked_lm`` in batches of one shape, to which every batch is filled up.

    Raises:
        Refused: ``--max-tokens``, which makes batches of many shapes, or a model or an option that cannot use these batches.
    """

    def _load_dataset_split(self, split: str, epoch: int, combine: bool) -> FairseqDataset:
        if not self.cfg.pack_documents:
            return super()._load_dataset_split(split, epoch, combine)
        if (mode := str(self.cfg.sample_break_mode)) != "none":
            raise Refused(f"--sample-break-mode {mode} and --pack-documents exclude each other: leave one of them out")
        lines, symbols = super()._load_dataset_split(split, epoch, combine).dataset.dataset, self.dictionary
        tokens = self.cfg.tokens_per_sample
        documents = DocumentsDataset(lines, lines.sizes, tokens - 1, pad=symbols.pad(), eos=symbols.eos())
        if not len(documents):
            raise Refused(f"--pack-documents: {split} has no documents, only empty lines")
        rows = PackedDocumentsDataset(PrependTokenDataset(documents, symbols.bos()), tokens)
        share = rows.sizes.sum() / (len(rows) * tokens)
        logger.info(f"--pack-documents: {len(documents):,} documents fill {share:.2%} of {len(rows):,} rows of {split}")
        return rows

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        if self.cfg.include_target_tokens:
            raise Refused(f"--include-target-tokens is for models that --task {ONE_SHAPE} does not train: leave it out")
        model = super().build_model(cfg, from_checkpoint)
        require_encoder(model, f"--task {ONE_SHAPE}")
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        super().load_dataset(split, epoch, combine, **kwargs)
        self.datasets[split] = FixedShapeDataset(self.datasets[split], self.source_dictionary, self.cfg)

    def get_batch_iterator(self, dataset: FixedShapeDataset, **options: Any) -> EpochBatchIterator:
        if options["max_sentences"] is None or options["max_tokens"] is not None:
            raise Refused(f"--task {ONE_SHAPE} needs --batch-size, and no --max-tokens, whose batches have many shapes")
        rows, multiple = options["max_sentences"], options["required_batch_size_multiple"]
        dataset.rows = rows - rows % multiple or rows  # as fairseq makes batches
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
        return loss, sample["sample_size"], {"loss": loss.data, **logged}


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


@register_task("masked_lm_sentence_order", dataclass=MaskedLMConfig)
class MaskedLMSentenceOrder(ComparableMaskedLMTask):
    """Trains a model on the masked words and on the order of the halves, with the criterion of the same name."""

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load one split.

        Raises:
            InputError: the samples are not of one document each.
        """
        if str(self.cfg.sample_break_mode) != "complete_doc":
            raise InputError(
                f"--task masked_lm_sentence_order with --sample-break-mode {self.cfg.sample_break_mode}: both halves of a sample "
                "must be whole sentences of one document, so give --sample-break-mode complete_doc"
            )
        super().load_dataset(split, epoch, combine, **kwargs)
        # The batch reads it after the tokens, which draw the order.
        self.datasets[split].dataset.defn["order"] = RawLabelDataset(self._halves.orders)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model, with a head for the order.

        Raises:
            InputError: it is not one of this package's encoders, or predicts words from other states than its last layer's.
        """
        model = super().build_model(cfg, from_checkpoint)
        require_encoder(model, "--task masked_lm_sentence_order")
        if model.args.mask_decoder_steps:
            raise InputError("--task masked_lm_sentence_order reads the last layer, so leave out --mask-decoder-steps")
        model.register_classification_head(SENTENCE_ORDER, num_classes=2)
        return model

    def _load_dataset_split(self, split: str, epoch: int, combine: bool) -> SentenceOrderDataset:
        # The separator between the halves takes one token.
        with changed_options(self, tokens_per_sample=self.cfg.tokens_per_sample - 1):
            blocks = super()._load_dataset_split(split, epoch, combine)
        self._halves = SentenceOrderDataset(blocks, self.dictionary.eos(), self.cfg.seed)
        return self._halves


@register_criterion("masked_lm_sentence_order", dataclass=FairseqDataclass)
class MaskedLMSentenceOrderCriterion(FairseqCriterion):
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
        order_loss, correct, pairs = (sum(log.get(name, 0) for log in logging_outputs) for name in names)
        pairs = max(pairs, 1)
        metrics.log_scalar("order_loss", order_loss / pairs / math.log(2), pairs, round=3)
        metrics.log_scalar("order_accuracy", 100.0 * correct / pairs, pairs, round=1)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
