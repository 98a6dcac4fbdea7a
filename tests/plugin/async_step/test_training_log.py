"""What the log of a training has beside fairseq's, and --profile-steps."""

import json
import time

import pytest
import torch
from cases import thorough_but
from fairseq import metrics, trainer
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq_cli import train as cli
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fairseq_posenc.core.transformer import Encoder
from fairseq_posenc.plugin.batches.masked_lm import CORRECT, correct
from fairseq_posenc.plugin.run import training_log
from fairseq_posenc.plugin.run.training_log import flops_per_token

WAIT = 1.0


@pytest.mark.parametrize("step", thorough_but(["fast"], ["plain", "fast"]))
def test_the_speed_is_that_of_training_and_tells_the_time_left(step, train, monkeypatch):
    monkeypatch.setattr(cli, "validate", lambda *args: time.sleep(WAIT) or [None])
    values = {"dataset.disable_validation": False, "dataset.validate_interval_updates": 2, "optimization.max_update": 4}
    trained = train(step, "log", values)
    middle, end = trained.rows["train_inner"]
    assert 2 * float(end["wpb"]) / float(end["wps"]) < WAIT
    (whole,) = trained.rows["train"]
    assert 4 * float(whole["train_wpb"]) / float(whole["train_wps"]) < WAIT
    assert float(middle["seconds_left"]) == pytest.approx(2 * float(middle["wpb"]) / float(middle["wps"]), abs=0.51)
    assert end["seconds_left"] == "0"
    assert all(0 <= float(row["accuracy"]) <= 100 for row in (middle, end))


@pytest.mark.parametrize("groups", [3, 1])
def test_the_utilization_counts_matrix_products(groups):
    """As PyTorch counts those of the forward and backward pass; without biases and norms, which are no products."""
    sizes = {"dim": 16, "ffn_dim": 32, "heads": 2, "layers": 3, "layer_groups": groups, "vocab_size": 8}
    encoder = Encoder("rope", **sizes, attention_backend="eager")
    tokens = torch.randint(4, 8, (2, 12))
    with FlopCounterMode(display=False) as counted:
        encoder(tokens).last_hidden_state.sum().backward()
    others = 6 * sum(p.numel() for layer in encoder.layers_in_order for p in layer.parameters() if p.dim() == 1)
    assert flops_per_token(nn.Sequential(encoder), 12) - others == counted.get_total_flops() / tokens.numel()


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
    ],
)
def test_the_peak_is_that_of_a_whole_gpu(name, peak, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert training_log.peak_of(torch.device("cuda:0")) == peak


def test_the_utilization_is_that_of_the_speed(train, monkeypatch):
    monkeypatch.setattr(training_log, "peak_of", lambda device: 1e6)
    rows = train("plain", "utilization", {"common.bf16": True}).rows["train_inner"]
    shares = [float(row["mfu"]) / float(row["wps"]) for row in rows]
    assert shares[0] > 0
    assert shares == pytest.approx([shares[0]] * len(rows), rel=0.01)


def test_the_accuracy_counts_no_padding():
    logits = torch.eye(4)[[0, 1, 2, 1]]
    assert correct(logits, torch.tensor([0, 1, 3, 1]), padding=1) == 1


def test_the_accuracy_of_processes_without_a_last_batch():
    """As fairseq-validate has where batches do not divide evenly among the processes."""
    logged = {"loss": 3.0, "ntokens": 4, "nsentences": 1, "sample_size": 4, CORRECT: 1}
    with metrics.aggregate() as found:
        MaskedLmLoss.reduce_metrics([logged, {}, {**logged, CORRECT: 2}])
    assert found.get_smoothed_values()["accuracy"] == 37.5


@pytest.mark.parametrize(("steps", "done", "found"), [("2-3", "2-3", 2), ("4-9", "4-4", 1)])
def test_a_trace_of_some_updates(steps, done, found, train):
    trained = train("plain", "trace", {"common.profile_steps": steps})
    events = json.loads((trained.save_dir / f"trace_{done}.json").read_text())["traceEvents"]
    names = [event.get("name", "") for event in events]
    assert len({name for name in names if name.startswith("Optimizer.step#")}) == 1
    assert sum(name.startswith("Optimizer.step#") for name in names) == found


def test_parameters_that_are_left_out_are_not_shared():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.Linear(2, 2), nn.LayerNorm(2, bias=False))
    model[2].weight = model[0].weight
    assert trainer._catalog_shared_params(model) == [["0.weight", "2.weight"]]
