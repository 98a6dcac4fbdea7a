"""What fairseq's ``masked_lm`` lacks, and this package's masked-LM tasks inherit from it.

fairseq draws the masks of validation from ``--seed``, as those of training, and masks ``<s>`` as any token. The losses of one
checkpoint with two seeds then differ by more than those of two schemes. Here the masks of validation depend on the index of the
sample alone, and ``<s>``, with which each sample begins, is not predicted. The masks of training are fairseq's.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion
from fairseq.data import BaseWrapperDataset, Dictionary, FairseqDataset
from fairseq.tasks import masked_lm
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from torch import Tensor

from ..errors import Refused
from ..vocabulary import Vocabulary

VALIDATION_SEED = 1


class FirstToken(BaseWrapperDataset):
    """Samples that begin with ``token``, whatever they began with."""

    def __init__(self, dataset: FairseqDataset, token: int) -> None:
        super().__init__(dataset)
        self._token = token

    def __getitem__(self, index: int) -> Tensor:
        sample = self.dataset[index].clone()  # the data set below keeps it
        sample[0] = self._token
        return sample


def fix_validation_masks() -> None:
    """Let ``masked_lm`` load every split but that of training with one set of masks."""
    load_dataset = MaskedLMTask.load_dataset

    @functools.wraps(load_dataset)
    def load_with_fixed_masks(self: MaskedLMTask, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        if "data_selector" in kwargs:  # which the trainer gives for its training split alone
            return load_dataset(self, split, epoch, combine, **kwargs)
        cfg, self.cfg = self.cfg, copy.deepcopy(self.cfg)
        self.cfg.seed = VALIDATION_SEED
        try:
            load_dataset(self, split, epoch, combine, **kwargs)
        finally:
            self.cfg = cfg
        columns = self.datasets[split].dataset.defn
        for name, token in (("net_input.src_tokens", self.dictionary.bos()), ("target", self.dictionary.pad())):
            columns[name].dataset = FirstToken(columns[name].dataset, token)
        return None

    MaskedLMTask.load_dataset = load_with_fixed_masks


def accept_empty_batches() -> None:
    """Let ``fairseq-validate`` run in processes among which the batches do not divide evenly.

    Those that are one short get an empty one, with which fairseq's criterions fail.
    """
    valid_step = MaskedLMTask.valid_step

    @functools.wraps(valid_step)
    def valid_step_unless_empty(self: MaskedLMTask, sample: dict[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, Any]:
        return valid_step(self, sample, model, criterion) if sample else (0, 0, {})

    MaskedLMTask.valid_step = valid_step_unless_empty


def mask_whole_words() -> None:
    """Let ``--mask-whole-words`` find out from the tokenizer in the data-bin which symbols begin a word.

    fairseq asks for ``self.args``, which its tasks do not have since they have configurations.
    """
    MaskedLMTask.args = property(lambda self: self.cfg)
    masked_lm.get_whole_word_mask = _word_beginnings


def _word_beginnings(cfg: MaskedLMConfig, dictionary: Dictionary) -> Tensor:
    """(symbols,) uint8: whether a symbol begins a word. Those that are no pieces of text do."""
    tokenizer = Vocabulary(Path(utils.split_paths(cfg.data)[0])).tokenizer
    return torch.ByteTensor(
        [number < dictionary.nspecial or symbol.startswith("madeupword") or tokenizer.begins_word(symbol)
         for number, symbol in enumerate(dictionary.symbols)]
    )  # fmt: skip


def require_own_criterion() -> None:
    """Refuse other criterions than the one of the task's name.

    fairseq's default, ``cross_entropy``, takes the mean over all tokens and trains a model that repeats what it reads.
    """
    build_criterion = MaskedLMTask.build_criterion

    @functools.wraps(build_criterion)
    def build_own_criterion(self: MaskedLMTask, cfg: Any, *args: Any, **kwargs: Any) -> FairseqCriterion:
        task, given = self.cfg._name, getattr(cfg, "_name", None)
        if task in CRITERION_REGISTRY and given != task:
            raise Refused(f"--criterion {given} does not measure the predictions of --task {task}: use --criterion {task}")
        return build_criterion(self, cfg, *args, **kwargs)

    MaskedLMTask.build_criterion = build_own_criterion


fix_validation_masks()
accept_empty_batches()
mask_whole_words()
require_own_criterion()
