"""What is divergence, and what an error like any other."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from torch import nn
from torch.multiprocessing import ProcessRaisedException

from fairseq_posenc.study.engine.grid import Diverged
from fairseq_posenc.study.finetune.fairseq_run import infer, train

INCONSISTENT = "Fatal error: gradients are inconsistent between workers.\nrank   0 = {}\nrank   1 = {}\n"
in_another_process = functools.partial(ProcessRaisedException, error_index=0, error_pid=1)


def training(error, tmp_path, monkeypatch):
    """A run whose training ends in ``error``."""

    def call_main(cfg, main):
        (tmp_path / "crash.pt").write_text("model")
        raise error

    monkeypatch.setattr(distributed_utils, "call_main", call_main)
    cfg = SimpleNamespace(
        checkpoint=SimpleNamespace(save_dir=str(tmp_path)),
        optimization=SimpleNamespace(max_epoch=1),
        distributed_training=SimpleNamespace(distributed_world_size=1),
    )
    train(cfg, lambda text, share=None: None)


@pytest.mark.parametrize(
    "error",
    [
        FloatingPointError("gradients are Nan/Inf"),
        FloatingPointError("Minimum loss scale reached (0.0001). Your loss is probably exploding."),
        FloatingPointError(INCONSISTENT.format("nan", "nan")),
        in_another_process("Traceback …\nFloatingPointError: gradients are Nan/Inf\n"),
    ],
)
def test_gradients_that_are_not_finite(error, tmp_path, monkeypatch):
    with pytest.raises(Diverged, match=r"(Nan|Minimum|nan).*; see train\.log"):
        training(error, tmp_path, monkeypatch)
    assert not (tmp_path / "crash.pt").exists()


@pytest.mark.parametrize(
    "error",
    [
        FloatingPointError(INCONSISTENT.format("1.25", "1.5")),
        in_another_process("Traceback …\nFileNotFoundError: train.tsv\n"),
        FileNotFoundError("train.tsv"),
        RuntimeError("CUDA out of memory"),
    ],
)
def test_other_errors_are_themselves(error, tmp_path, monkeypatch):
    with pytest.raises(type(error)):
        training(error, tmp_path, monkeypatch)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scores_that_are_not_finite(value):
    sequences = [np.array([0, 5, 2]), np.array([0, 2])]

    def forward(tokens):
        scores = torch.ones(*tokens.shape, 2)
        scores[1, 2:] = value  # padding has no score
        return scores

    assert [scores.shape for scores in infer(nn.Identity(), sequences, forward, pad=1)] == [(3, 2), (2, 2)]
    with pytest.raises(Diverged, match="not finite"):
        infer(nn.Identity(), sequences, lambda tokens: torch.full((len(tokens), 2), value), pad=1)
