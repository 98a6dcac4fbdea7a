"""Masked language modelling: fairseq's ``masked_lm`` with comparable validation losses, and in batches of one shape.

fairseq draws the masks of validation from ``--seed``, as those of training, and masks ``<s>`` as any token. The losses of one
checkpoint with two seeds then differ by more than those of two schemes. Here the masks of validation depend on the index of the
sample alone, and ``<s>``, with which each sample begins, is not predicted. The masks of training are fairseq's.

A batch of ``masked_lm_static`` is filled up to ``--batch-size`` rows of ``--tokens-per-sample`` tokens. It lists the masked
positions, so that the head and the criterion of the same name compute there alone, and has the padding and, with
``--document-mask``, where documents begin: all that a training step would else read from the GPU.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.data import BaseWrapperDataset, Dictionary, FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import BaseFairseqModel
from fairseq.tasks import TASK_REGISTRY, FairseqTask, masked_lm, register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from torch import Tensor
from torch.nn import functional as F

from ..errors import Refused
from ..models.options import ONE_SHAPE
from ..vocabulary import Vocabulary
from .packing import require_encoder

VALIDATION_SEED = 1
WIDTH = 8  # positions; what tensor cores take at once


@contextmanager
def changed_options(task: FairseqTask, **values: Any) -> Iterator[None]:
    """Give a task other values of its options for a while."""
    cfg, task.cfg = task.cfg, copy.deepcopy(task.cfg)
    for name, value in values.items():
        setattr(task.cfg, name, value)
    try:
        yield
    finally:
        task.cfg = cfg


class FirstToken(BaseWrapperDataset):
    """Samples whose first token is replaced by ``token``."""

    def __init__(self, dataset: FairseqDataset, token: int) -> None:
        super().__init__(dataset)
        self._token = token

    def __getitem__(self, index: int) -> Tensor:
        sample = self.dataset[index].clone()  # the data set below keeps it
        sample[0] = self._token
        return sample


class ComparableMaskedLMTask(MaskedLMTask):
    """fairseq's ``masked_lm``, which it replaces, with one set of masks for every split but that of training.

    Raises:
        Refused: another criterion than the one of the task's name. fairseq's default, ``cross_entropy``, takes the mean over all
            tokens and trains a model that repeats its input.
    """

    args = property(lambda self: self.cfg)  # fairseq's --mask-whole-words reads the options there

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        if "data_selector" in kwargs:  # which the trainer gives for its training split alone
            super().load_dataset(split, epoch, combine, **kwargs)
            return
        with changed_options(self, seed=VALIDATION_SEED):
            super().load_dataset(split, epoch, combine, **kwargs)
        columns = self.datasets[split].dataset.defn
        for name, token in (("net_input.src_tokens", self.dictionary.bos()), ("target", self.dictionary.pad())):
            columns[name].dataset = FirstToken(columns[name].dataset, token)

    def valid_step(self, sample: dict[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, Any]:
        # fairseq-validate gives empty batches to processes among which the batches do not divide evenly.
        return super().valid_step(sample, model, criterion) if sample else (0, 0, {})

    def build_criterion(self, cfg: Any, *args: Any, **kwargs: Any) -> FairseqCriterion:
        task, given = self.cfg._name, getattr(cfg, "_name", None)
        if task in CRITERION_REGISTRY and given != task:
            raise Refused(f"--criterion {given} does not measure the predictions of --task {task}: use --criterion {task}")
        return super().build_criterion(cfg, *args, **kwargs)


def _word_beginnings(cfg: MaskedLMConfig, dictionary: Dictionary) -> Tensor:
    """(symbols,) uint8: whether a symbol begins a word, by the tokenizer in the data-bin. Those that are no pieces of text do."""
    tokenizer = Vocabulary(Path(utils.split_paths(cfg.data)[0])).tokenizer
    return torch.ByteTensor(
        [number < dictionary.nspecial or symbol.startswith("madeupword") or tokenizer.begins_word(symbol)
         for number, symbol in enumerate(dictionary.symbols)]
    )  # fmt: skip


masked_lm.get_whole_word_mask = _word_beginnings
masked_lm.MaskedLMTask = TASK_REGISTRY["masked_lm"] = ComparableMaskedLMTask


@dataclass
class StaticMaskedLMConfig(MaskedLMConfig):
    """Options of the task."""

    document_mask: bool = field(
        default=False,
        metadata={"help": "let tokens see those of their own document only, and count positions from its start; a document ends "
                  "with an empty line"},
    )  # fmt: skip


class StaticBatches(BaseWrapperDataset):
    """The samples of ``masked_lm`` in batches of one shape.

    Args:
        dataset: the samples, as :class:`MaskedLMTask` makes them.
        dictionary: the dictionary of their symbols.
        cfg: the options of the task.

    Attributes:
        rows: B, rows per batch; 0 for as many as there are samples.
    """

    rows = 0

    def __init__(self, dataset: FairseqDataset, dictionary: Dictionary, cfg: StaticMaskedLMConfig) -> None:
        super().__init__(dataset)
        self._dictionary, self._tokens, self._documents = dictionary, cfg.tokens_per_sample, cfg.document_mask
        self._masked = int(cfg.mask_prob * self._tokens) + 1  # expected per row at most; the share is rounded by chance

    def collater(self, samples: list[Any]) -> dict[str, Any]:
        """Return a batch with M listed positions, or an empty one without samples.

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
        """Return (b, w) rows as (B, n), filled up with padding."""
        count, width = rows.shape
        return F.pad(rows, (0, self._tokens - width, 0, max(0, self.rows - count)), value=self._dictionary.pad())


def document_starts(tokens: Tensor, bos: int, eos: int) -> Tensor:
    """Return (B, n) int32 for (B, n) tokens: for each position, where its document starts in the row.

    A document ends with an empty line: an end of a line that follows another, or the beginning of the row.
    """
    ends = tokens == eos
    empty = ends[:, 1:] & (ends | (tokens == bos))[:, :-1]
    after = F.pad(empty[:, :-1], (2, 0))
    index = torch.arange(tokens.shape[1], dtype=torch.int32)
    return torch.where(after, index, 0).cummax(1).values


@register_task(ONE_SHAPE, dataclass=StaticMaskedLMConfig)
class StaticMaskedLMTask(ComparableMaskedLMTask):
    """Trains ``masked_lm`` in batches of one shape, to which every batch is filled up.

    Raises:
        Refused: ``--max-tokens``, which makes batches of many shapes, or a model or an option that these batches mean nothing to.
    """

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        if self.cfg.include_target_tokens:
            raise Refused(f"--include-target-tokens is for models that --task {ONE_SHAPE} does not train: leave it out")
        model = super().build_model(cfg, from_checkpoint)
        require_encoder(model, f"--task {ONE_SHAPE}")
        if self.cfg.document_mask:
            require_encoder(model, "--document-mask", restart=True)
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        super().load_dataset(split, epoch, combine, **kwargs)
        self.datasets[split] = StaticBatches(self.datasets[split], self.source_dictionary, self.cfg)

    def get_batch_iterator(self, dataset: StaticBatches, **options: Any) -> EpochBatchIterator:
        if options["max_sentences"] is None or options["max_tokens"] is not None:
            raise Refused(f"--task {ONE_SHAPE} needs --batch-size, and no --max-tokens, whose batches have many shapes")
        most, multiple = options["max_sentences"], options["required_batch_size_multiple"]
        dataset.rows = most - most % multiple or most  # as fairseq makes batches
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
