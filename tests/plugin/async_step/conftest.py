"""Trainings of a tiny model in this process, as fairseq's command runs them."""

import copy
import functools
import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from fairseq.data import iterators
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train as cli
from lines import write_databin
from omegaconf import OmegaConf

from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

LENGTHS = [7, 3, 1, 9, 5, 1, 1, 14, 6, 40, 1, 4, 8]  # of lines; one of 1 is empty and ends a document
OPTIONS = shlex.split("""
    --cpu --seed 1 --num-workers 0 --log-format json --log-interval 2 --tokens-per-sample 16 --batch-size 4
    --arch roberta_absolute_tisa --encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16
    --encoder-attention-heads 2 --dropout 0 --attention-dropout 0 --adam-betas (0.9,0.98) --weight-decay 0.01 --adam-eps 1e-4
    --clip-norm 0.5 --lr 1e-2 --lr-scheduler polynomial_decay --total-num-update 50 --max-update 4 --disable-validation
""")
INTERVAL = 4  # updates between two log lines, where something watches those between
PLAIN = "--task masked_lm --criterion masked_lm --optimizer adam"
FAST = "--task masked_lm_static --criterion masked_lm_static --optimizer fused_adam"
STEPS = {"plain": (PLAIN, PLAIN), "static": (FAST, PLAIN), "non_blocking": (PLAIN, FAST), "fast": (FAST, FAST)}
"""From whose configurations the task and the criterion are, and the optimizer."""


@dataclass
class Trained:
    """What a training logged, between and at the end of epochs, and where it saved."""

    rows: dict[str, list[dict[str, str]]]
    save_dir: Path

    @property
    def curve(self) -> list[dict[str, float]]:
        """What was logged, but for times."""
        kept = ("num_updates", "loss", "ppl", "gnorm", "clip", "wpb", "bsz", "lr")
        rows = [(row, "") for row in self.rows["train_inner"]] + [(row, "train_") for row in self.rows["train"]]
        return [{name: float(row[prefix + name]) for name in kept if prefix + name in row} for row, prefix in rows]

    @property
    def checkpoint(self) -> dict[str, Any]:
        return load_checkpoint(str(self.save_dir / "checkpoint_last.pt"))


@pytest.fixture(scope="session")
def lines(tmp_path_factory) -> Path:
    """A data-bin of short documents."""
    return write_databin(tmp_path_factory.mktemp("documents") / "bin", train=LENGTHS * 5, valid=LENGTHS)


@pytest.fixture(scope="session")
def configure(lines) -> Callable:
    """``configure(step, values by path)``: one of STEPS, and what differs from its configuration."""

    @functools.cache
    def convert(flags):  # takes Hydra the better part of a second
        parser = options.get_training_parser()
        return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(lines), *OPTIONS, *flags.split()]))

    def configure(step, values):
        task, optimizer = STEPS[step]
        cfg = copy.deepcopy(convert(task))
        OmegaConf.update(cfg, "optimizer", copy.deepcopy(convert(optimizer).optimizer), merge=False)
        for path, value in values.items():
            OmegaConf.update(cfg, path, value, merge=False)
        return cfg

    return configure


@pytest.fixture
def train(configure, tmp_path, caplog) -> Callable:
    """``train(step, save_dir, values by path)``"""

    def train(step, save_dir, values=()):
        caplog.clear()
        cfg = configure(step, {"checkpoint.save_dir": str(tmp_path / save_dir), **dict(values)})
        with caplog.at_level("INFO"):
            distributed_utils.call_main(cfg, cli.main)
        rows = {tag: [json.loads(r.message) for r in caplog.records if r.name == tag] for tag in ("train_inner", "train")}
        return Trained(rows, tmp_path / save_dir)

    return train


@pytest.fixture
def watched(monkeypatch) -> Iterator[Callable]:
    """``watched(begin, end)``, called from when a batch is there until the next is asked for, but in updates that fairseq logs.

    Returns what trainings are to be configured with.
    """
    ends = []

    def watched(begin, end):
        fetch = iterators.GroupedIterator.__next__

        def fetch_and_watch(self):
            while ends:
                ends.pop()()
            batches = fetch(self)
            if self.n % INTERVAL and self.n not in (1, self.total):
                begin()
                ends.append(end)
            return batches

        monkeypatch.setattr(iterators.GroupedIterator, "__next__", fetch_and_watch)
        return {"common.log_interval": INTERVAL, "optimization.max_update": 100, "optimization.max_epoch": 1}

    yield watched
    while ends:
        ends.pop()()
