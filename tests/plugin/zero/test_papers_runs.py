"""The papers' runs under examples/pretraining: batches and lengths are the papers', and each starts."""

from pathlib import Path

import pytest
import yaml
from training_runs import call, needs_deepspeed

FOLDER = Path(__file__).parents[3] / "examples" / "pretraining"
GPUS_PER_NODE = 8
RUNS = {  # name: architecture, nodes, batch, updates
    "huang2021_base": ("roberta_m4m", 1, 96, 500_000),
    "huang2021_base_from_roberta": ("roberta_m4m", 4, 480, 500_000),
    "huang2021_large": ("roberta_m4m_large", 4, 192, 500_000),
    "tupe_base": ("roberta_tupe_r", 1, 256, 1_000_000),
}
CONTINUED = ("huang2021_base_from_roberta", "huang2021_large")  # from weights that are there
SMALL = """
    common.cpu=true common.bf16=false common.tensorboard_logdir=null
    dataset.batch_size=2 dataset.disable_validation=true common.log_interval=1
    model.encoder_layers=1 model.encoder_embed_dim=32 model.encoder_ffn_embed_dim=32 model.encoder_attention_heads=2
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", RUNS)
def test_batches_and_steps_are_the_papers(name):
    architecture, nodes, batch, updates = RUNS[name]
    contents = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    update_freq = contents["optimization"].get("update_freq", [1])[0]
    assert contents["defaults"] == [{"model": architecture}, "_self_"]
    assert contents["dataset"]["batch_size"] * update_freq * nodes * GPUS_PER_NODE == batch
    assert contents["optimization"]["max_update"] == contents["lr_scheduler"]["total_num_update"] == updates
    assert contents["optimization"]["lr"] == [1e-4]
    assert contents["task"]["tokens_per_sample"] == 512


@pytest.mark.parametrize("name", RUNS)
def test_what_is_continued_asks_for_weights(name):
    contents = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert contents["checkpoint"].get("finetune_from_model") == ("???" if name in CONTINUED else None)


def test_tupe_keeps_the_checkpoints_that_the_paper_compares():
    saved = yaml.safe_load((FOLDER / "tupe_base.yaml").read_text())["checkpoint"]
    for updates in (100_000, 300_000, 600_000):
        assert updates % saved["save_interval_updates"] == updates % saved["keep_interval_updates_pattern"] == 0


def start(name, data_bin, folder, updates, *overrides):
    """Some updates of one of the runs with a small model; what it printed."""
    command = ["-m", "fairseq_posenc.train", "--deepspeed-config", "zero1", "--config-dir", FOLDER]
    given = [f"task.data={data_bin}", *SMALL, f"optimization.max_update={updates}", *overrides]
    done = call(*command, "--config-name", name, *given, cwd=folder)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def weights(english_data_bin, tmp_path_factory):
    """A small model's, to go on from."""
    folder = tmp_path_factory.mktemp("weights")
    start("huang2021_base", english_data_bin, folder, 1)
    return folder / "checkpoints" / "checkpoint_last.pt"


@needs_deepspeed
@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_run_starts(name, english_data_bin, weights, tmp_path):
    source = [f"checkpoint.finetune_from_model={weights}"] if name in CONTINUED else []
    printed = start(name, english_data_bin, tmp_path, 2, "checkpoint.no_save=true", *source)
    assert '"num_updates": "2"' in printed
    assert f"'_name': '{RUNS[name][0]}'" in printed
    assert ("m4m" if "huang" in name else "reset") in printed.partition("(positions)")[2]
    assert (f"loading pretrained model from {weights}" in printed) == (name in CONTINUED)


@needs_deepspeed
@pytest.mark.slow
def test_what_tupe_keeps(english_data_bin, tmp_path):
    """The same with smaller numbers: every third update's, and the latest two of the others, each with its shards."""
    numbers = ["checkpoint.save_interval_updates=1", "checkpoint.keep_interval_updates_pattern=3"]
    start("tupe_base", english_data_bin, tmp_path, 7, *numbers)
    kept = [int(path.stem.split("_")[2]) for path in (tmp_path / "checkpoints").glob("checkpoint_*_*.pt")]
    assert sorted(kept) == [3, 5, 6, 7]
    shards = [int(path.name[len("update") :].split("-")[0]) for path in (tmp_path / "checkpoints" / "shards").iterdir()]
    assert {*kept} <= {*shards}
