"""Each patch mends what it says, and only within fairseq and Hydra."""

import argparse
import contextlib
import dataclasses
import math
import shutil
import sys
import threading

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary, ListDataset, TokenBlockDataset, data_utils
from fairseq.data.iterators import BackgroundConsumer, EpochBatchIterator
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks.masked_lm import MaskedLMConfig
from fairseq.trainer import NanDetector, Trainer
from omegaconf import OmegaConf

from fairseq_posenc.plugin.processes.exits import REFUSED


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 accepts unhashable defaults")
def test_other_packages_dataclasses_stay_unhashable():
    from fairseq_posenc.plugin.patches.imports import dataclasses_as_defaults

    with dataclasses_as_defaults():

        @dataclasses.dataclass
        class Ours:
            x: int = 0

        @dataclasses.dataclass()
        class Fairseqs:
            __module__ = "fairseq.somewhere"
            x: int = 0

    assert Ours.__hash__ is None
    assert hash(Fairseqs()) != hash(Fairseqs())


class Encoder(torch.nn.Module):
    """Returns a dictionary without a tensor, as the encoders of RoBERTa do of their states."""

    def forward(self, x):
        return {"states": [x * float("nan")]}


def test_a_batch_with_nan_is_looked_through():
    """fairseq's hooks, by which it logs where the first NaN is, run on any model rather than end in StopIteration."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Encoder())
    with NanDetector(model) as detector:
        model(torch.ones(1, 2))
    assert detector.has_printed_f


def parse(*flags):
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, ["data-bin", "--arch", "roberta_base", *flags])


@pytest.mark.parametrize(("flags", "tpu"), [(["--bf16"], False), (["--memory-efficient-bf16"], False), (["--tpu"], True)])
def test_bf16_does_not_mean_tpu(flags, tpu):
    args = parse(*flags)
    assert args.tpu == tpu
    assert args.bf16 == (not tpu)


def test_options_without_defaults_still_parse():
    """As fairseq-validate does for --model-overrides."""
    flags = ["data-bin", "--task", "masked_lm", "--path", "checkpoint.pt"]
    args = options.parse_args_and_arch(options.get_validation_parser(), flags, suppress_defaults=True)
    assert args.path == "checkpoint.pt"
    assert not hasattr(args, "tpu")


def test_missing_dictionary_is_explained(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no dictionary \S*dict.txt.*fairseq-posenc prepare"):
        Dictionary.load(str(tmp_path / "dict.txt"))


def test_dictionary_loads(tmp_path):
    (tmp_path / "dict.txt").write_text("word 3\n")
    assert "word" in Dictionary.load(str(tmp_path / "dict.txt")).indices


def test_sentences_as_samples():
    """``--sample-break-mode eos`` without padding tokens reads ``np.compat.long``."""
    sentences = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
    blocks = TokenBlockDataset(sentences, [3, 2], block_size=8, pad=1, eos=2, break_mode="eos")
    assert [block.tolist() for block in blocks] == [[5, 6, 2], [7, 2]]


def test_span_masks():
    """``no_overlap`` reads ``np.int``."""
    with data_utils.numpy_seed(1):
        mask = data_utils.compute_mask_indices((2, 40), None, 0.3, 3, no_overlap=True, min_masks=1)
    assert mask.dtype == np.bool_
    assert mask.any()


def read_ahead(number_of_workers: int = 0):
    """The first of forty batches, of which two are read ahead and the others wait for room."""
    batches = EpochBatchIterator(
        ListDataset(list(torch.arange(40))),
        torch.stack,
        [[number] for number in range(40)],
        num_workers=number_of_workers,
        buffer_size=2,
    )
    iterator = batches.next_epoch_itr(shuffle=False)
    assert next(iterator) == 0
    return iterator


def readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if isinstance(thread, BackgroundConsumer)}


def configuration():
    """A training's, with nothing but defaults."""
    config = OmegaConf.structured(FairseqConfig())
    config.common.cpu = True
    return config


@pytest.fixture
def refused(capsys, as_program):
    """``refused(config)`` is the one line that ends a start, before anything has started."""

    def refused(config):
        with pytest.raises(SystemExit) as ended:
            distributed_utils.call_main(config, lambda cfg: pytest.fail("training has started"))
        assert ended.value.code == REFUSED
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    return refused


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize(
    "name",
    ["dataset.batch_size", "dataset.batch_size_valid", "dataset.max_tokens", "dataset.max_tokens_valid",
     "dataset.required_batch_size_multiple", "optimization.update_freq", "task.tokens_per_sample"],
)  # fmt: skip
def test_sizes_below_one_are_refused(name, size, refused):
    config = configuration()
    config.task = MaskedLMConfig(data="data-bin")
    OmegaConf.update(config, name, [4, size] if name.endswith("freq") else size, merge=True)
    flag = "--" + name.partition(".")[2].replace("_", "-")
    assert refused(config).endswith(f": {flag} {size}: at least 1 is needed\n")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("optimization.lr", math.nan, "--lr nan: at least 0 is needed, and finite"),
        ("optimization.lr", -0.1, "--lr -0.1: at least 0"),
        ("optimization.lr", math.inf, "--lr inf: at least 0"),
        ("optimization.clip_norm", math.nan, "--clip-norm nan: a number is needed"),
        ("optimization.stop_time_hours", math.nan, "--stop-time-hours nan"),
        ("common.seed", -1, "--seed -1: a number from 0 to 2^32 - 1"),
        ("common.seed", 1 << 32, "--seed 4294967296"),
        ("common.log_interval", 0, "--log-interval 0: at least 1"),
        ("common.min_loss_scale", math.nan, "--min-loss-scale nan"),
        ("checkpoint.save_interval", 0, "--save-interval 0: at least 1"),
        ("dataset.validate_interval", 0, "--validate-interval 0: at least 1"),
        ("dataset.num_workers", -1, "--num-workers -1: at least 0"),
        ("distributed_training.distributed_world_size", 0, "--distributed-world-size 0: at least 1"),
        ("task.mask_prob", 0.0, "--mask-prob 0.0: a number between 0 and 1"),
        ("task.random_token_prob", -0.1, "--random-token-prob -0.1: a number from 0 to 1"),
        ("task.leave_unmasked_prob", math.nan, "--leave-unmasked-prob nan"),
        ("model.pooler_dropout", math.nan, "--pooler-dropout nan: a number from 0 to 1"),
        ("model.dropout", 2.0, "--dropout 2.0: a number from 0 to 1"),
        ("optimizer.weight_decay", math.nan, "--weight-decay nan"),
        ("lr_scheduler.total_num_update", 0.0, "--total-num-update 0.0: at least 1"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(name, value, message, refused):
    config = configuration()
    config.task = MaskedLMConfig(data="data-bin")
    section, _, option = name.partition(".")
    if section in ("model", "optimizer", "lr_scheduler"):
        config[section] = OmegaConf.create({option: value})
    OmegaConf.update(config, name, [0.1, value] if option == "lr" else value, merge=True)
    assert f": {message}" in refused(config)


def test_no_limit_is_a_number_too():
    config, started = configuration(), []
    config.optimization.clip_norm = config.optimization.stop_min_lr = math.inf
    distributed_utils.call_main(config, started.append)
    assert started == [config]


@pytest.mark.parametrize(
    ("error", "workers"), [(None, 0), pytest.param(None, 1, marks=pytest.mark.thorough), (KeyboardInterrupt, 0)]
)
def test_no_thread_reads_on_when_training_has_ended(error, workers):
    """However it ended; and an iterator of somebody else is not touched."""
    left, others = [], read_ahead()
    before = readers()

    def main(cfg):
        left.extend(read_ahead(workers) for _ in range(2))
        assert len(readers() - before) == 2
        if error:
            raise error

    with pytest.raises(error) if error else contextlib.nullcontext():
        distributed_utils.call_main(configuration(), main)
    assert readers() == before
    assert [int(batch) for batch in others] == list(range(1, 40))


ENDING = """
import torch
from fairseq.data import ListDataset
from fairseq.data.iterators import EpochBatchIterator
def collate(samples):
    for _ in range(100): torch.ones(200_000).cumsum(0)
    return samples
batches = EpochBatchIterator(ListDataset([0] * 99), collate, [[n] for n in range(99)], buffer_size=9)
next(batches.next_epoch_itr())
"""


def test_the_interpreter_does_not_end_under_a_reading_thread(run, tmp_path):
    """Where no training was called, but an iterator used."""
    (tmp_path / "ending.py").write_text(ENDING)
    assert run("python", tmp_path / "ending.py").stdout == ""


@pytest.fixture
def files(tmp_path):
    source, target = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new" * 1000)
    target.write_bytes(b"old")
    return str(source), str(target)


def test_copy(files):
    source, target = files
    assert PathManager.copy(source, target, overwrite=True)
    with open(source, "rb") as new, open(target, "rb") as copied:
        assert new.read() == copied.read()


def test_interrupted_copy_leaves_the_old_file(files, monkeypatch):
    source, target = files

    def killed(source, stream):
        stream.write(b"n")
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfileobj", killed)
    with pytest.raises(KeyboardInterrupt):
        PathManager.copy(source, target, overwrite=True)
    with open(target, "rb") as file:
        assert file.read() == b"old"


def trainer(tmp_path, rank=0):
    """What ``Trainer.load_checkpoint`` reads before it opens the file."""
    stub = argparse.Namespace(data_parallel_rank=rank, data_parallel_world_size=1, checkpoint_suffix="", _optim_history=None)
    stub.cfg = argparse.Namespace(checkpoint=argparse.Namespace(save_dir=str(tmp_path)))
    return stub


def test_missing_restore_file_is_an_error(tmp_path):
    named = str(tmp_path / "checkpoint7.pt")
    with pytest.raises(FileNotFoundError, match=r"--restore-file \S*checkpoint7.pt is no file"):
        Trainer.load_checkpoint(trainer(tmp_path), named)


def test_missing_default_restore_file_starts_from_scratch(tmp_path):
    assert Trainer.load_checkpoint(trainer(tmp_path), str(tmp_path / "checkpoint_last.pt")) is None


def test_stock_layers_take_the_ordinary_path():
    from fairseq.models.transformer import TransformerConfig

    layer = TransformerEncoderLayerBase(TransformerConfig())
    assert layer.activation_relu_or_gelu, "the layer no longer qualifies for the fused path at all"
    assert layer.can_use_fastpath is False
