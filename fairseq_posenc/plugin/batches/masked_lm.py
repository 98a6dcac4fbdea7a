"""Masked language modelling: fairseq's ``masked_lm`` with comparable validation losses.

fairseq draws the masks of validation from ``--seed``, as those of training, and masks ``<s>`` as any token. The losses of one
checkpoint with two seeds then differ by more than those of two schemes. Here the masks of validation depend on the index of the
sample alone, and ``<s>``, with which each sample begins, is not predicted. The masks of training are fairseq's.

``--valid-subset valid,permuted`` validates twice: on the validation text, and on the same samples with their visible words in
another order. A model that uses no word order has the same loss on both.
"""

import copy
import logging
import threading
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import BaseWrapperDataset, Dictionary, FairseqDataset, MaskTokensDataset
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from torch import Tensor

from ...base.errors import InputError
from ...base.patching import replaced
from ...text.vocabulary import Vocabulary, words
from .mask_schedule import share, thinned

Starts = Callable[[Tensor], Tensor]
VALIDATION_SEED = 1
VALID, PERMUTED = "valid", "permuted"
CORRECT = "correct"
"""In logging outputs, the masked tokens that were predicted."""
GLOBAL_GENERATOR = threading.RLock()
"""Held while fairseq seeds, reads and restores NumPy's global generator, since threads load and read data at the same time."""


COUNTED = 200
"""Samples in which words are counted, from all of a split."""
MAX_BYTES = 4  # of a character
FEW = 0.1
"""A smaller share of samples with what an option needs is warned of; so is a larger one without it."""
logger = logging.getLogger(__name__)


def report_found(text: str, warn: bool, advice: str) -> None:
    """Log how much of what an option needs is in the data, as a warning with advice where that is little."""
    level, more = (logging.WARNING, f": little of this is trained. {advice}") if warn else (logging.INFO, "")
    logger.log(level, text + more)


def correct(logits: Tensor, targets: Tensor, padding: int) -> Tensor:
    """Return how many of the targets are the likeliest tokens of (…, vocabulary) logits."""
    return ((logits.argmax(-1) == targets) & targets.ne(padding)).sum()


def changed_options(task: FairseqTask, **values: Any) -> AbstractContextManager[None]:
    """In this context, a task's options have other values."""
    cfg = copy.deepcopy(task.cfg)
    for name, value in values.items():
        setattr(cfg, name, value)
    return replaced(vars(task), cfg=cfg)


class FirstTokenDataset(BaseWrapperDataset):
    """Samples whose first token is replaced by ``token``."""

    def __init__(self, dataset: FairseqDataset, token: int) -> None:
        super().__init__(dataset)
        self._token = token

    def __getitem__(self, index: int) -> Tensor:
        sample = self.dataset[index].clone()  # the data set below keeps it
        sample[0] = self._token
        return sample


class PermutedDataset(BaseWrapperDataset):
    """Inputs whose visible words, those that are not predicted, change places at random; ``<s>`` stays.

    Args:
        dataset: the inputs.
        targets: which have padding where nothing is predicted.
        symbols: the vocabulary.
        starts: returns where the documents of rows (B, n) begin, which words then do not leave, and whose ``</s>`` stay; or None.
    """

    def __init__(self, dataset: FairseqDataset, targets: FairseqDataset, symbols: Dictionary, starts: Starts | None) -> None:
        super().__init__(dataset)
        self._targets, self._symbols, self._starts = targets, symbols, starts

    def __getitem__(self, index: int) -> Tensor:
        inputs, targets = self.dataset[index].clone(), self._targets[index]
        hidden = targets != self._symbols.pad()
        visible = (~hidden).nonzero().flatten()[1:]
        documents = None
        if self._starts is not None:
            fixed = (inputs == self._symbols.bos()) | (inputs == self._symbols.eos())
            visible = visible[~fixed[visible]]
            documents = self._starts(torch.where(hidden, targets, inputs)[None])[0, visible]
        shuffled = np.random.RandomState(index).permutation(len(visible))
        order = shuffled if documents is None else np.lexsort((shuffled, documents))
        inputs[visible] = inputs[visible[order]]
        return inputs


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
        if options["mask_whole_words"] is not None or options["mask_multiple_length"] > 1 or options["mask_stdev"] > 0:
            return LockedMaskTokensDataset.apply_mask(dataset, *args, **options)
        pairs = cls(dataset, *args, **options)
        return RowOfPairDataset(pairs, 0), RowOfPairDataset(pairs, 1)

    def __getitem__(self, index: int) -> Tensor:
        last = self._last  # another thread may replace it meanwhile
        if last is None or last[0] != (self.epoch, index):  # each sample is read several times in a row
            self._last = last = (self.epoch, index), self._draw(index)
        return last[1]

    def _draw(self, index: int) -> Tensor:
        with GLOBAL_GENERATOR:  # which --shorten-method random_crop seeds
            item, draw = self.dataset[index].numpy(), self._generator
        if self.mask_idx in item:
            raise InputError(f"sample {index} of the data-bin contains <mask>, which only the task may insert: prepare it again")
        draw.seed(int(hash((self.seed, self.epoch, index)) % 1e6))  # as fairseq's numpy_seed
        n = len(item)
        masked = np.zeros(n, dtype=bool)
        masked[draw.choice(n, int(self.mask_prob * n + draw.rand()), replace=False)] = True
        target = np.where(masked, item, self.pad_idx)
        other, unmasked = self.random_token_prob + self.leave_unmasked_prob, self.leave_unmasked_prob
        changed = masked & (draw.rand(n) < other)  # fairseq draws no more than it needs; nothing follows what it does not draw
        kept = changed & (draw.rand(n) < unmasked / other) if unmasked > 0 else np.zeros(n, dtype=bool)
        random = changed & ~kept
        inputs = np.where(masked & ~kept, self.mask_idx, item)
        if count := int(random.sum()):
            inputs[random] = self._cumulative.searchsorted(draw.random_sample(count), side="right")
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
    """fairseq's ``masked_lm``, which it replaces, with fixed masks for all splits except that of training."""

    args = property(lambda self: self.cfg)  # fairseq's --mask-whole-words reads the options there
    predicts_next = False  # whether the model has --masked-next-token
    document_starts: Starts | None = None  # (B, n) -> (B, n), of a task whose tokens attend within documents
    _thinned = (-1, 0)  # the last update whose batches have lost masks, and how many of them

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model, after which data sets are loaded for it."""
        self.predicts_next = bool(getattr(cfg, "masked_next_token", False))
        return super().build_model(cfg, from_checkpoint)

    def train_step(
        self, sample: dict[str, Any], model: Any, criterion: Any, optimizer: Any, update_num: int, ignore_grad: bool = False
    ) -> Any:
        """As fairseq, with the share of the masks that ``--mask-prob-end`` leaves."""
        if getattr(self.cfg, "mask_prob_end", None) is not None and len(sample):
            update, batches = self._thinned
            self._thinned = update_num, batches + 1 if update == update_num else 0
            seed = zlib.crc32(repr((self.cfg.seed, *self._thinned)).encode())
            sample = thinned(sample, share(self.cfg, update_num), self.dictionary.pad(), seed)
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        trains = "data_selector" in kwargs  # which the trainer gives for its training split alone
        with GLOBAL_GENERATOR, changed_options(self, **{} if trains else {"seed": VALIDATION_SEED}):
            super().load_dataset(split, epoch, combine, **kwargs)
        self._report_words(split)
        if trains and not self.predicts_next:
            return
        columns = self.datasets[split].dataset.defn
        for name, token in (("net_input.src_tokens", self.dictionary.bos()), ("target", self.dictionary.pad())):
            columns[name].dataset = FirstTokenDataset(columns[name].dataset, token)
        if split == PERMUTED:
            inputs, targets = columns["net_input.src_tokens"], columns["target"]
            inputs.dataset = PermutedDataset(inputs.dataset, targets.dataset, self.dictionary, self.document_starts)

    def _load_dataset_split(self, split: str, epoch: int, combine: bool) -> FairseqDataset:
        counts = self.dictionary.count
        if self.cfg.freq_weighted_replacement and sum(counts[self.dictionary.nspecial :]) == counts[self.mask_idx]:
            raise InputError(f"--freq-weighted-replacement: all counts in dict.txt of {self.cfg.data} are 0: leave the flag out")
        return super()._load_dataset_split(VALID if split == PERMUTED else split, epoch, combine)

    def _report_words(self, split: str) -> None:
        """Log how many words ``--mask-whole-words`` finds in a sample, and in how many samples it masks none."""
        rows = self.datasets[split].dataset.defn["target"].dataset
        while not isinstance(rows, MaskTokensDataset):
            rows = rows.dataset
        if (beginnings := rows.mask_whole_words) is None:
            return
        rows = rows.dataset
        some = np.unique(np.linspace(0, len(rows) - 1, COUNTED).astype(int))
        if rows.supports_prefetch:
            rows.prefetch(some)
        counts = np.array([int(beginnings.gather(0, rows[i]).sum()) for i in some])
        without = (1 - self.cfg.mask_prob * counts).clip(0).mean()  # the number of masks is rounded by chance
        report_found(
            f"--mask-whole-words: samples of {split} have {counts.mean():.1f} words on average, and {without:.0%} have no mask",
            without > FEW,
            "Words are parted by spaces, but for scripts without them. Leave it out, or raise --tokens-per-sample.",
        )


class WordBeginnings:
    """Where words begin, by the tokenizer in the data-bin, with the interface of the table that fairseq reads it from."""

    def __init__(self, cfg: MaskedLMConfig, dictionary: Dictionary) -> None:
        tokenizer = Vocabulary(Path(utils.split_paths(cfg.data)[0])).tokenizer
        spellings = [
            " " if number < dictionary.nspecial or symbol.startswith("madeupword") else tokenizer.spelling(symbol)
            for number, symbol in enumerate(dictionary.symbols)
        ]
        tests = (words.begins_word, words.ends_word, words.is_continued, words.is_rest)
        self._tables = [torch.ByteTensor([test(text) for text in spellings]) for test in tests]
        self._tables[1][: dictionary.nspecial] = 1  # some vocabularies write no space at the beginning of a line

    def gather(self, dim: int, row: Tensor) -> Tensor:
        """Return (n,) uint8 for the tokens of a row (n,): whether one begins a word, or is no piece of text."""
        begins, ends, continued, rest = (table[row] for table in self._tables)
        for _ in range(MAX_BYTES - 1):
            ends[1:] |= rest[1:] & ends[:-1]
        begins[1:] |= ends[:-1] & (1 - continued[1:])
        return begins
