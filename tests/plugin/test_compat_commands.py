"""fairseq's own commands, as a user types them, with fairseq's own models and with ours."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import environment

from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

TRAINING = ["--cpu", "--optimizer", "adam", "--lr", "1e-3", "--batch-size", "16", "--num-workers", "0", "--no-progress-bar"]
MASKED_LM = [*TRAINING, "--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "32"]
TINY = ["--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16", "--encoder-attention-heads", "2"]
TINY_DECODER = [flag.replace("encoder", "decoder") for flag in TINY]


@pytest.fixture(scope="module")
def trained(data_bin, tmp_path_factory, run):
    """A stock RoBERTa after one epoch: its folder of checkpoints, and what the training printed."""
    folder = tmp_path_factory.mktemp("stock")
    flags = [*MASKED_LM, "--arch", "roberta_base", *TINY, "--sample-break-mode", "eos", "--max-epoch", "1"]
    return folder, run("fairseq-train", data_bin, *flags, "--save-dir", folder)


def test_validate_reads_a_checkpoint(trained, data_bin, run):
    folder, training = trained
    flags = ["--task", "masked_lm", "--path", folder / "checkpoint_best.pt", "--batch-size", "16", "--cpu"]
    validation = run("fairseq-validate", data_bin, *flags)
    (expected,) = re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", training.stdout)
    assert re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", validation.stdout) == [expected]
    assert "wps" not in validation.stdout  # nothing is timed
    assert "training on the CPU" in training.stdout
    assert "GPUs/TPUs" not in training.stdout


@pytest.mark.thorough
def test_training_is_quiet(trained, tmp_path):
    """That of a forked process, and the imports of one that is not."""
    _, training = trained
    command = [Path(sys.executable).parent / "fairseq-train", tmp_path, *MASKED_LM, "--arch", "roberta_base", "--batch-size", "0"]
    imports = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert imports.returncode == 2
    assert imports.stderr.splitlines()[-1].startswith("fairseq-train: --batch-size 0")
    for output in (training.stdout, imports.stdout + imports.stderr):
        assert "Warning" not in output
        assert "tensorboardX" not in output
        assert "Setting accelerator" not in output


def test_translation_and_generation(toy_text, tmp_path, run):
    """Source and target are the same text; generation masks and pads on the path that was broken."""
    for split in ("train", "valid"):
        for language in ("xx", "yy"):
            (tmp_path / f"{split}.{language}").write_text((toy_text / f"{split}.txt").read_text())
    languages = ["-s", "xx", "-t", "yy"]
    texts = ["--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid"]
    run("fairseq-preprocess", *languages, *texts, "--destdir", tmp_path / "bin")
    flags = ["--arch", "transformer", *TINY, *TINY_DECODER, "--max-update", "6", "--bf16", "--save-dir", tmp_path]
    run("fairseq-train", tmp_path / "bin", *languages, *TRAINING, *flags)
    flags = ["--path", tmp_path / "checkpoint_last.pt", "--gen-subset", "valid", "--batch-size", "7", "--beam", "2", "--cpu"]
    generated = run("fairseq-generate", tmp_path / "bin", *flags)
    assert "Translated 40 sentences" in generated.stdout


def test_language_model_and_its_evaluation(data_bin, tmp_path, run):
    flags = ["--task", "language_modeling", "--arch", "transformer_lm", *TINY_DECODER, "--tokens-per-sample", "32"]
    run("fairseq-train", data_bin, *TRAINING, *flags, "--max-update", "3", "--save-dir", tmp_path)
    flags = ["--path", tmp_path / "checkpoint_last.pt", "--gen-subset", "valid", "--tokens-per-sample", "32", "--cpu"]
    evaluated = run("fairseq-eval-lm", data_bin, *flags)
    (perplexity,) = re.findall(r"Perplexity: ([\d.]+)", evaluated.stdout)
    assert 10 < float(perplexity) < 100


OWN_SCHEME = """
from fairseq_posenc import Scheme, Terms, register

@register
class Own(Scheme):
    name, equation, source = "own", "e = q·k / √d", "this test"

    def layer_terms(self, window):
        return [Terms()] * self.settings.layers
"""
CONFIG = """# @package _group_
common: {{cpu: true, log_format: simple, user_dir: {user_dir}}}
task: {{_name: masked_lm, data: {data}, tokens_per_sample: 32}}
criterion: masked_lm
dataset: {{batch_size: 16, num_workers: 0}}
optimizer: {{_name: adam, adam_betas: "(0.9,0.98)"}}
lr_scheduler: {{_name: polynomial_decay, total_num_update: 10}}
optimization: {{lr: [0.001], max_update: 3}}
model: {{_name: roberta, encoder_layers: 1, encoder_embed_dim: 16, encoder_attention_heads: 2}}
"""


def test_hydra_with_user_dir_beside_the_hook(data_bin, tmp_path, run):
    """A configuration as fairseq's own are, for Hydra 1.0: it warns of nothing, and the job runs in a folder of its own."""
    user_dir = Path(__file__).parents[2] / "fairseq_posenc"
    config = CONFIG.format(user_dir=user_dir, data=data_bin)
    (tmp_path / "small.yaml").write_text(config)
    flags = ["--config-dir", tmp_path, "--config-name", "small"]
    ran = run("fairseq-hydra-train", *flags, "checkpoint.no_epoch_checkpoints=true", cwd=tmp_path)
    assert "Warning" not in ran.stdout
    assert len([*tmp_path.glob("outputs/*/*/checkpoints/checkpoint_last.pt")]) == 1
    refused = run("fairseq-hydra-train", *flags, "dataset.batch_size=0", cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "fairseq-hydra-train: --batch-size 0: at least 1 is needed" in refused.stdout
    assert "Traceback" not in refused.stdout


@pytest.mark.parametrize("where", ["command line", "file"])
def test_hydra_with_the_schemes_of_a_user_dir(where, data_bin, tmp_path, run):
    """In a configuration with a list of defaults, whose model was composed before the package was imported."""
    (tmp_path / "my_schemes").mkdir()
    (tmp_path / "my_schemes" / "__init__.py").write_text(OWN_SCHEME)
    config = (Path(__file__).parents[2] / "examples/pretraining/tiny.yaml").read_text()
    given, user_dir = [], f"{tmp_path}/my_schemes"
    if where == "file":
        config = config.replace("common:\n", f"common:\n  user_dir: {user_dir}\n")
    else:
        given = [f"common.user_dir={user_dir}"]
    (tmp_path / "tiny.yaml").write_text(config)
    options = ["model._name=roberta_posenc_tiny", "model.positions=absolute+own", "optimization.max_update=1", "common.cpu=true"]
    flags = ["--config-dir", tmp_path, "--config-name", "tiny", *given, f"task.data={data_bin}", *options]
    assert "positions absolute+own" in run("fairseq-hydra-train", *flags, cwd=tmp_path).stdout


def updates(checkpoint):
    return checkpoint["optimizer_history"][-1]["num_updates"]


@pytest.fixture(scope="module")
def shards(toy_text, tmp_path_factory, run):
    """The toy text in five data-bins of about seven updates each."""
    out = tmp_path_factory.mktemp("shards") / "data-bin"
    flags = ["--valid", toy_text / "valid.txt", "--document-per-line", "--vocab-size", "44", "--shards", "5"]
    run("fairseq-posenc", "prepare", toy_text / "train.txt", "--out", out, *flags)
    return (out / "shards.txt").read_text().strip()


@pytest.mark.thorough
@pytest.mark.parametrize("data", [pytest.param("data_bin", marks=pytest.mark.slow), "shards"])
def test_killed_training_resumes_to_the_same_parameters(data, request, tmp_path, run):
    """Killed in the middle of an epoch, which is a pass over one shard; on the CPU the end is the same to the last bit."""
    flags = [*MASKED_LM, "--batch-size", "3", "--arch", "roberta_tisa_tiny", "--max-update", "40"]
    saving = ["--save-interval-updates", "5", "--disable-validation", "--save-dir"]
    command = [request.getfixturevalue(data), *flags, *saving]
    whole_run = run("fairseq-train", *command, tmp_path / "whole")

    arguments = [Path(sys.executable).parent / "fairseq-train", *map(str, command), tmp_path / "killed"]
    training = subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in training.stdout:
        if "Saved checkpoint" in line and "@ 10 updates" in line:
            training.kill()
            break
    training.communicate()
    assert training.returncode == -signal.SIGKILL
    interrupted = load_checkpoint(tmp_path / "killed" / "checkpoint_last.pt")
    assert 10 <= updates(interrupted) < 40
    iterator = interrupted["extra_state"]["train_iterator"]
    assert iterator["iterations_in_epoch"] > 0
    if data == "shards":
        assert iterator["epoch"] == 2
        assert [f"/shard-{index:05}/train" in whole_run.stdout for index in range(6)] == [*[True] * 5, False]

    resumed = run("fairseq-train", *command, tmp_path / "killed")
    assert f"@ {updates(interrupted)} updates)" in resumed.stdout
    whole, again = (load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "killed"))
    assert updates(whole) == updates(again) == 40
    assert whole["model"].keys() == again["model"].keys()
    assert all(torch.equal(whole["model"][name], again["model"][name]) for name in whole["model"])
