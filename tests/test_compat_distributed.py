"""fairseq's collectives on a CPU; training by two processes is in test_compat_runs.py."""

PROGRAM = """
from fairseq.distributed import utils
import torch
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
found = utils.all_gather_list({"rank": rank, "numbers": [1.5] * rank})
assert found == [{"rank": 0, "numbers": []}, {"rank": 1, "numbers": [1.5]}], found
torch.distributed.destroy_process_group()
"""


def test_objects_are_gathered(run, tmp_path):
    (tmp_path / "gather.py").write_text(PROGRAM)
    run("python", tmp_path / "gather.py", processes=2)
