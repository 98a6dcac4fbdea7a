"""ModernBERT's recipe under examples/pretraining: the paper's numbers, and that it starts."""

import os
import subprocess

import pytest
import readme
import yaml

from fairseq_posenc.plugin.batches.batch_warmup import micro_batches
from fairseq_posenc.plugin.processes.group import free_port

FOLDER = readme.ROOT / "examples" / "pretraining"
SMALL = """
    +model.encoder_layers=1 +model.encoder_embed_dim=32 +model.encoder_ffn_embed_dim=32 +model.encoder_attention_heads=2
    common.cpu=true common.bf16=false common.tensorboard_logdir=null common.log_interval=1 common.log_format=json
    dataset.num_workers=0 dataset.batch_size=2 dataset.disable_validation=true task.tokens_per_sample=32
    lr_scheduler.warmup_updates=1 lr_scheduler.decay_updates=1 optimization.max_update=2 checkpoint.no_save=true
""".split()  # noqa: SIM905


def test_the_numbers_are_the_papers():
    """Warner et al. 2024, section 2.2 and table 3: rows of a batch, and tokens over which something happens."""
    recipe = yaml.safe_load((FOLDER / "modernbert_base.yaml").read_text())
    schedule, optimization, saved = recipe["lr_scheduler"], recipe["optimization"], recipe["checkpoint"]
    rows, (frequency,) = recipe["dataset"]["batch_size"] * 8, optimization["update_freq"]
    assert (rows, rows * frequency) == (768, 4608)

    def tokens(updates):
        each = rows * recipe["task"]["tokens_per_sample"]
        return each * sum(micro_batches(frequency, optimization["batch_warmup_updates"], update) for update in range(updates))

    assert tokens(schedule["warmup_updates"]) == pytest.approx(3e9, rel=1e-3)
    assert tokens(optimization["batch_warmup_updates"]) == pytest.approx(50e9, rel=1e-3)
    assert tokens(optimization["max_update"]) == pytest.approx(1.719e12, rel=1e-3)
    assert recipe["optimizer"]["weight_decay"] * optimization["lr"][0] == pytest.approx(1e-5)
    assert optimization["no_decay"] == "norms,biases,positions"  # rope has no parameters
    assert saved["keep_interval_updates_pattern"] % saved["save_interval_updates"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modernbert_base", "modernbert_short"])
def test_it_starts(name, data_bin, run, tmp_path):
    printed = run(
        "fairseq-hydra-train", "--config-dir", FOLDER, "--config-name", name, f"task.data={data_bin}", *SMALL, cwd=tmp_path
    ).stdout
    assert '"num_updates": "2"' in printed
    assert "--pack-documents: " in printed
    assert "'_name': 'modernbert_rope" in printed


@pytest.mark.slow
@pytest.mark.parametrize("config", ["zero0", "zero1"])
def test_modernberts_on_two_nodes(config, data_bin, tmp_path):
    """The line of examples/multi_node/README.md, with two nodes on this host."""
    port, nodes = str(free_port()), []
    flags = ["--config-dir", FOLDER, "--config-name", "modernbert_base", f"task.data={data_bin}", *SMALL]
    for rank in range(2):
        settings = {"NODES": "2", "NODE_RANK": str(rank), "MASTER_ADDR": "localhost", "MASTER_PORT": port, "GPUS": "1"}
        environment = {**os.environ, **settings, "DEEPSPEED_CONFIG": config, "OMP_NUM_THREADS": "1"}
        command = ["bash", readme.ROOT / "examples/multi_node/torchrun.sh", *flags]
        nodes.append(
            subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    printed = [node.communicate(timeout=300)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], printed
    assert '"num_updates": "2"' in printed[0]
    assert "training on the CPU (processes: 2," in printed[0]
