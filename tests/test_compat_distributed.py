"""fairseq's own training by two processes on a CPU, which it starts itself."""

import re

PROGRAM = """
from fairseq.distributed import utils
import torch
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
found = utils.all_gather_list({"rank": rank, "numbers": [1.5] * rank})
assert found == [{"rank": 0, "numbers": []}, {"rank": 1, "numbers": [1.5]}], found
torch.distributed.destroy_process_group()
"""
OPTIONS = """
    --cpu --seed 1 --num-workers 0 --log-format json --log-interval 1 --disable-validation
    --task masked_lm --criterion masked_lm --tokens-per-sample 16 --sample-break-mode none --batch-size 2
    --arch roberta_tisa --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2
    --optimizer adam --lr 1e-3 --lr-scheduler fixed
""".split()  # noqa: SIM905


def test_two_processes_continue_what_one_began(run, data_bin, tmp_path):
    """With PyTorch's data parallelism, fairseq's default, and a checkpoint that the first process sends to the second."""
    saving = ["--save-dir", tmp_path, "--no-epoch-checkpoints"]
    first = run("fairseq-train", data_bin, *OPTIONS, *saving, "--max-update", 2).stdout
    second = run("fairseq-train", data_bin, *OPTIONS, *saving, "--max-update", 4, "--distributed-world-size", 2).stdout
    updates = [re.findall(r'train_inner.*"num_updates": "(\d+)"', output) for output in (first, second)]
    assert updates == [["1", "2"], ["3", "4"]]
    assert "training on 2 devices" in second


def test_objects_are_gathered(run, tmp_path):
    (tmp_path / "gather.py").write_text(PROGRAM)
    run("python", tmp_path / "gather.py", processes=2)
