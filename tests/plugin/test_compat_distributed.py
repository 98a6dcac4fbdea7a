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


DIFFERENT = """
import contextlib, os, sys
from pathlib import Path
from types import SimpleNamespace
import torch
from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.run.session import require_one_data

torch.distributed.init_process_group("gloo")
rank = os.environ["RANK"]
dataset = SimpleNamespace(train_subset="train", valid_subset="valid", disable_validation=False)
run = lambda data: SimpleNamespace(cfg=SimpleNamespace(task=SimpleNamespace(data=data), dataset=dataset))
for name in sys.argv[2:]:
    here = Path(sys.argv[1], name, rank)
    for data in (f"{here}", f"{Path(sys.argv[1], 'same', rank)}:{here}"):
        try:
            with require_one_data(run(data)):
                found = ""
        except InputError as error:
            found = str(error)
        expected = name if name != "same" else ""
        assert bool(found) == bool(expected), (name, found)
        assert expected in found and ("process 1" in found or not expected), found
torch.distributed.barrier()
"""


def test_processes_with_different_data_are_refused(tmp_path, run):
    """Other words or samples than the first process has, in any file that training reads; and all of them are refused."""
    files = {"dict.txt": b"a 1\n", "train.idx": b"12", "valid.idx": b"3", "input0/dict.txt": b"a 1\n", "label/train.idx": b"4"}
    names = ["same", *files]
    for name in names:
        for rank in "01":
            folder = tmp_path / name.replace("/", "-") / rank
            for file, content in {**files, "test.idx": rank.encode(), "notes.txt": rank.encode()}.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                if not (file == name == "valid.idx" and rank == "1"):
                    (folder / file).write_bytes(content + rank.encode() * (file == name))
    (tmp_path / "different.py").write_text(
        DIFFERENT.replace("sys.argv[1], name, rank", "sys.argv[1], name.replace('/', '-'), rank")
    )
    run("python", tmp_path / "different.py", tmp_path, *names, processes=2)
