"""The same training as fairseq's, however it is started and whatever is added; the plain runs are in test_checkpoints.py."""

import json

import pytest
import torch
from training_runs import UPDATES, Training, assert_same_curve, call, deepspeed_launcher, launcher, needs_deepspeed, torchrun

from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.plugin.optim import WHOLE_TENSORS

pytestmark = needs_deepspeed


@pytest.mark.slow
def test_stage_0_is_fairseqs_own(fairseq_run, train):
    assert_same_curve(train("--deepspeed-config", "zero0", "--no-save", launch=launcher()), fairseq_run)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["zero2-offload", "zero3-offload"])
def test_offloading_changes_nothing(fairseq_run, train, preset):
    assert_same_curve(train("--deepspeed-config", preset, "--no-save", launch=launcher()), fairseq_run)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bf16_is_fairseqs_within_its_precision(train, stage):
    expected = train("--bf16", "--no-save")
    found = train("--bf16", "--no-save", "--deepspeed-config", f"zero{stage}", launch=launcher())
    assert_same_curve(found, expected, rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize(("arch", "config"), [("roberta_liere", "zero2"), ("roberta_liere", "zero0"), ("roberta_tisa", "zero2")])
def test_what_would_keep_float32_is_said_to_be_rounded(train, arch, config):
    flags = ("--arch", arch, "--bf16", "--no-save", "--max-update", 1, "--deepspeed-config", config)
    assert ("rounds the parameters of liere" in train(*flags, launch=launcher(1)).output) == (
        (arch, config) == ("roberta_liere", "zero2")
    )


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(torchrun(), id="torchrun", marks=pytest.mark.slow),
        pytest.param(deepspeed_launcher(), id="deepspeed", marks=pytest.mark.slow),
        pytest.param(("-m", "fairseq_posenc.train", "--distributed-world-size", "2"), id="python", marks=pytest.mark.slow),
    ],
)
def test_every_launcher_starts_the_same_training(fairseq_run, train, launch):
    assert_same_curve(train("--deepspeed-config", "zero3", "--no-save", launch=launch), fairseq_run)


@pytest.mark.slow
def test_activation_checkpointing_and_ema(fairseq_run, train):
    run = train("--deepspeed-config", "zero2", "--checkpoint-activations", "--store-ema", "--no-save", launch=launcher())
    assert_same_curve(run, fairseq_run)
    assert '"ema_decay"' in run.output


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_batches_grow_as_without_zero(train, stage):
    flags = ("--update-freq", 3, "--batch-warmup-updates", 30, "--no-save")
    expected = train(*flags, launch=launcher())
    assert len({values["wpb"] for values in expected.curve.values()}) >= 3
    assert_same_curve(train(*flags, "--deepspeed-config", f"zero{stage}", launch=launcher()), expected)


@pytest.mark.parametrize("stages", [(1, 1), *(pytest.param(pair, marks=pytest.mark.slow) for pair in ((2, 3), (3, 1)))], ids=str)
def test_what_does_not_decay_also_after_a_resume(train, stages):
    """Gradients of 1e-30 are none to Adam, so that weights only decay."""
    flags = ("--lr", 0.5, "--end-learning-rate", 0.5, "--warmup-updates", 0, "--clip-norm", 1e-30, "--adam-eps", 1e-6)
    weights, save_dir = [], None
    for updates, (stage, decay) in enumerate(zip(stages, (0, 0.5), strict=True), start=1):
        config = ("--no-decay", "norms,biases,positions", "--deepspeed-config", f"zero{stage}", "--weight-decay", decay)
        save_dir = train(*flags, *config, updates=updates, save_dir=save_dir, launch=launcher()).save_dir
        weights.append(torch.load(save_dir / "consolidated.pt", weights_only=True)["model"])
    for name, p in weights[0].items():
        exempt = any(word in name for word in ("norm", "bias", ".positions."))
        torch.testing.assert_close(weights[1][name], p if exempt else p * 0.75, rtol=1e-6, atol=1e-25)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE_TENSORS)
def test_whole_tensors_are_updated_as_without_zero(train, name):
    flags = ("--optimizer", name, "--bf16", "--no-decay", "norms,biases", "--deepspeed-config")
    whole = train(*flags, "zero0", updates=4, launch=launcher())
    parts = train(*flags, "zero1", updates=2, launch=launcher())
    parts = train(*flags, "zero1", updates=4, launch=launcher(), save_dir=parts.save_dir)
    expected, found = (load_checkpoint(str(run.save_dir / "checkpoint_last.pt")) for run in (whole, parts))
    assert all(torch.equal(p, found["model"][key]) for key, p in expected["model"].items())
    states = [saved["last_optimizer_state"] for saved in (expected, found)]
    assert all(map(torch.equal, *(state["master"] for state in states)))
    assert states[0]["param_groups"] == states[1]["param_groups"]
    for before, now in zip(*(state["state"].values() for state in states), strict=True):
        assert before.keys() == now.keys()
        assert all(torch.equal(torch.as_tensor(before[key]), torch.as_tensor(now[key])) for key in before)
    assert "no consolidated.pt" not in parts.output


@pytest.mark.slow
def test_the_form_of_fairseq_hydra_train(fairseq_run, train, english_data_bin, tmp_path):
    (tmp_path / "tiny.yaml").write_text(HYDRA.format(data=json.dumps(str(english_data_bin)), updates=UPDATES))
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    command = [*launcher(), "--deepspeed-config", "ds.json", "--config-dir", tmp_path, "--config-name", "tiny"]
    done = call(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert_same_curve(Training(done.stdout, tmp_path), fairseq_run)


HYDRA = """
common: {{cpu: true, seed: 1, log_format: json, log_interval: 1}}
checkpoint: {{no_save: true}}
task: {{_name: masked_lm, data: {data}, sample_break_mode: none, tokens_per_sample: 32}}
criterion: masked_lm
dataset: {{batch_size: 4, num_workers: 0, disable_validation: true}}
optimizer: {{_name: adam, adam_betas: "(0.9,0.98)", weight_decay: 0.01}}
lr_scheduler: {{_name: polynomial_decay, warmup_updates: 10, total_num_update: 100}}
optimization: {{lr: [0.002], max_update: {updates}, clip_norm: 1.6}}
model:
  _name: roberta_posenc
  positions: tisa
  encoder_layers: 2
  encoder_embed_dim: 32
  encoder_ffn_embed_dim: 64
  encoder_attention_heads: 2
  max_positions: 32
  dropout: 0.0
  attention_dropout: 0.0
"""
