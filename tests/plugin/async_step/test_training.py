"""Training without waiting for the device is the same training."""

import json
import os
import re
import signal

import pytest
import readme
import torch
from cases import thorough_but
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from torch._dynamo.testing import CompileCounter

from fairseq_posenc.core.transformer import encoder
from fairseq_posenc.plugin.batches.masked_lm_static import StaticMaskedLmLoss
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.plugin.processes.graceful_stop import STOPPED, request
from fairseq_posenc.plugin.run.checks import complete_model
from fairseq_posenc.plugin.run.non_blocking_trainer import NonBlockingTrainer

from .conftest import FAST, OPTIONS, PLAIN

TIMES = {"wps", "ups", "wall", "wait"}
SAME = {"rtol": 1e-5, "atol": 5e-6}  # a few updates of float32


def assert_same(found, expected, **tolerance):
    assert found.curve == expected.curve
    weights, others = found.checkpoint["model"], expected.checkpoint["model"]
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        torch.testing.assert_close(value, others[name], **tolerance, msg=lambda text, name=name: f"{name}: {text}")


CASES = {
    "whole blocks": {},
    "padding": {"task.sample_break_mode": "complete"},
    "micro-batches over two epochs": {
        "task.sample_break_mode": "eos", "optimization.update_freq": [3], "optimization.max_update": 16,
        "optimization.skip_remainder_batch": True,
    },
    "no clipping, rare logging": {"optimization.clip_norm": 0.0, "common.log_interval": 100},
}  # fmt: skip


@pytest.mark.parametrize("case", thorough_but(["padding"], CASES))
def test_same_losses_norms_and_weights(case, train):
    expected = train("plain", "plain", CASES[case])
    assert len(expected.curve) >= 1
    for step in ("fast",) if case != "padding" else ("fast", "static", "non_blocking"):
        assert_same(train(step, step, CASES[case]), expected, **SAME)


def test_goes_on_where_it_was_bit_for_bit(train):
    values = {"common.bf16": True, "task.sample_break_mode": "complete", "checkpoint.save_interval_updates": 3}
    whole = train("fast", "whole", {**values, "optimization.max_update": 7})
    train("fast", "parts", {**values, "optimization.max_update": 3})
    parts = train("fast", "parts", {**values, "optimization.max_update": 7})
    assert parts.curve[-1]["num_updates"] == 7
    for name, value in whole.checkpoint["model"].items():
        assert torch.equal(value, parts.checkpoint["model"][name]), name
    states = [trained.checkpoint["last_optimizer_state"] for trained in (whole, parts)]
    assert torch.equal(*(state["master"] for state in states))
    assert torch.equal(*(state["state"][0]["exp_avg_sq"] for state in states))


def test_statistics_are_whole_in_a_checkpoint_and_at_the_end_of_an_epoch(train):
    values = {"common.log_interval": 100, "optimization.max_epoch": 1, "optimization.max_update": 100}
    values |= {"checkpoint.save_interval_updates": 4, "checkpoint.keep_interval_updates": 10}
    plain, fast = (train(step, step, values) for step in ("plain", "fast"))
    assert fast.curve == plain.curve
    kept = [load_checkpoint(str(t.save_dir / "checkpoint_1_4.pt"))["extra_state"]["metrics"] for t in (plain, fast)]
    for name in ("default", "train", "train_inner"):
        sums = [
            {key: float(meter["sum"]) for _, key, _, meter in all_[name] if key in ("loss", "gnorm", "clip")} for all_ in kept
        ]
        assert sums[1] == pytest.approx(sums[0], rel=1e-5)


@pytest.mark.parametrize("step", ["plain", "fast"])
def test_waiting_for_data_is_logged_as_a_share(step, train):
    rows = train(step, step).rows
    shares = [row["data_wait"] for row in rows["train_inner"]] + [rows["train"][0]["train_data_wait"]]
    assert all(0 <= float(share) < 1 for share in shares)


def test_gradients_that_are_not_finite_end_it_with_the_weights_before(train, monkeypatch, tmp_path):
    seen = []

    def spoil_the_third(self, model, sample, reduce=True):
        loss, *rest = original(self, model, sample, reduce)
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return (loss * float("nan") if len(seen) == 3 else loss), *rest

    original = StaticMaskedLmLoss.forward
    monkeypatch.setattr(StaticMaskedLmLoss, "forward", spoil_the_third)
    with pytest.raises(FloatingPointError, match=r"update 3;.*crash\.pt"):
        train("fast", "diverging", {"common.log_interval": 5, "optimization.max_update": 8})
    crashed = load_checkpoint(str(tmp_path / "diverging" / "crash.pt"))
    assert len(seen) == 5
    assert all(torch.equal(value, seen[2][name]) for name, value in crashed["model"].items())
    assert crashed["optimizer_history"][-1]["num_updates"] == 2
    assert not (tmp_path / "diverging" / "checkpoint_last.pt").exists()


def test_what_only_some_updates_log_is_logged(train, monkeypatch):
    """With --log-interval 2, one of two updates or of two micro-batches."""
    original, calls, logged = StaticMaskedLmLoss.forward, [], []

    def log_every_second(self, model, sample, reduce=True):
        loss, size, output = original(self, model, sample, reduce)
        calls.append(None)
        return loss, size, output if len(calls) % 2 else {**output, "second": 1.0}

    def log(self, outputs, *_):
        logged.append(float(outputs[0].get("second", 0)))

    monkeypatch.setattr(StaticMaskedLmLoss, "forward", log_every_second)
    monkeypatch.setattr(NonBlockingTrainer, "_reduce_and_log_stats", log)
    train("fast", "updates", {"optimization.max_update": 4})
    assert logged == [0, 1, 0, 1]
    train("fast", "micro-batches", {"optimization.max_update": 2, "optimization.update_freq": [3]})
    assert logged[4:] == [1, 2]


def test_leaves_off_when_it_is_asked_to(train, monkeypatch, tmp_path):
    original = NonBlockingTrainer.train_step

    def ask_in_the_third(self, samples, raise_oom=False):
        if self.get_num_updates() == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(self, samples, raise_oom)

    monkeypatch.setattr(NonBlockingTrainer, "train_step", ask_in_the_third)
    with pytest.raises(SystemExit) as left:
        train("fast", "asked", {"optimization.max_update": 8})
    assert left.value.code == STOPPED
    assert load_checkpoint(str(tmp_path / "asked" / "checkpoint_last.pt"))["optimizer_history"][-1]["num_updates"] == 3
    assert request.everywhere == 1  # which is what other processes would have been told


@pytest.mark.thorough
def test_layers_are_compiled_once_for_each_shape(train, monkeypatch):
    """With padding and without it; validation is left as it is."""
    counter = CompileCounter()
    monkeypatch.setattr(encoder, "COMPILER", counter)
    encoder._compiled.cache_clear()
    torch._dynamo.reset()
    values = {"task.sample_break_mode": "complete", "optimization.max_epoch": 2, "optimization.max_update": 100}
    compiled = train("fast", "compiled", {**values, "model.compile": True, "dataset.disable_validation": False})
    encoder._compiled.cache_clear()
    assert counter.frame_count == 2
    assert_same(compiled, train("fast", "fast", values), **SAME)


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", "--ddp-backend legacy_ddp --update-freq 2"])
def test_two_processes_do_as_fairseqs(flags, lines, run, tmp_path):
    curves = []
    for step in (PLAIN, FAST):
        options = [*OPTIONS, *step.split(), *flags.split(), "--distributed-world-size", 2, "--sample-break-mode", "complete"]
        save = ["--max-update", 9, "--save-dir", tmp_path / step.split()[1]]
        output = run("fairseq-train", lines, *options, *save).stdout
        rows = [json.loads(found) for found in re.findall(r"\| train(?:_inner)? \| (\{.*\})", output)]
        curves.append([{name: value for name, value in row.items() if not TIMES & set(name.split("_"))} for row in rows])
    assert len(curves[0]) >= 4
    assert curves[1] == curves[0]


def test_the_recipe_is_all_of_it():
    GlobalHydra.instance().clear()
    ConfigStore.instance().store("fast", FairseqConfig)  # as fairseq-hydra-train
    with initialize_config_dir(str(readme.ROOT / "examples" / "pretraining"), version_base="1.3"):
        cfg = compose("fast", overrides=["task.data=here", "model._name=roberta_t5"])
    OmegaConf.set_struct(cfg, False)
    add_defaults(cfg)
    complete_model(cfg)
    assert (cfg.model._name, cfg.model.compile, cfg.common.bf16) == ("roberta_t5", True, True)
    assert (cfg.task._name, cfg.criterion._name, cfg.optimizer._name) == ("masked_lm_static", "masked_lm_static", "fused_adam")
