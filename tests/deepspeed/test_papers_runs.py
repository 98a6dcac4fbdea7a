"""The papers' runs under examples/pretraining: batches and lengths are the papers', and each starts."""

import sys
from pathlib import Path

import pytest
import yaml
from training_runs import call, needs_deepspeed

FOLDER = Path(__file__).parents[2] / "examples" / "pretraining"
GPUS_PER_NODE = 8
RUNS = {  # name: architecture, nodes, batch, updates
    "huang2021_base": ("roberta_m4m", 1, 96, 500_000),
    "huang2021_base_from_roberta": ("roberta_m4m", 4, 480, 500_000),
    "huang2021_large": ("roberta_m4m_large", 4, 192, 500_000),
    "tupe_base": ("roberta_tupe_r", 1, 256, 1_000_000),
}
SMALL = """
    common.cpu=true common.bf16=false common.tensorboard_logdir=null checkpoint.no_save=true
    dataset.batch_size=2 dataset.disable_validation=true optimization.max_update=2 common.log_interval=1
    model.encoder_layers=1 model.encoder_embed_dim=32 model.encoder_ffn_embed_dim=32 model.encoder_attention_heads=2
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", RUNS)
def test_batches_and_steps_are_the_papers(name):
    architecture, nodes, batch, updates = RUNS[name]
    contents = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    update_freq = contents["optimization"].get("update_freq", [1])[0]
    assert contents["defaults"] == [{"model": architecture}]
    assert "model" not in contents  # Hydra 1.0 would overwrite it with the defaults
    assert contents["dataset"]["batch_size"] * update_freq * nodes * GPUS_PER_NODE == batch
    assert contents["optimization"]["max_update"] == contents["lr_scheduler"]["total_num_update"] == updates
    assert contents["optimization"]["lr"] == [1e-4]
    assert contents["task"]["tokens_per_sample"] == 512


@needs_deepspeed
@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_run_starts(name, english_data_bin, tmp_path):
    command = [sys.executable, "-m", "fairseq_posenc.train", "--deepspeed-config", "zero1", "--config-dir", FOLDER]
    weights = ["checkpoint.finetune_from_model=null"] if "from_roberta" in name else []
    done = call(*command, "--config-name", name, f"task.data={english_data_bin}", *SMALL, *weights, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert '"num_updates": "2"' in done.stdout
    assert f"'_name': '{RUNS[name][0]}'" in done.stdout
    assert ("m4m" if "huang" in name else "reset") in done.stdout.partition("(positions)")[2]
