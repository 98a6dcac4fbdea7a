"""Files of shards that belong elsewhere, or do not hold what a process writes; made here, without a training."""

import re

import pytest
import torch
from training_runs import needs_deepspeed
from untrained import flip_a_bit

from fairseq_posenc import cli
from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.zero import consolidate
from fairseq_posenc.plugin.zero.sharded_checkpoint import Shards

pytestmark = needs_deepspeed
MINE = Shards("update00000002-0123abcd", processes=2, optimizer="adam")


def part(rank, shards=MINE):
    """A parameter of four elements, of which each process has two."""
    weights = torch.arange(2.0) + 2 * rank
    made = {
        "parameters": {"wide": {"start": 2 * rank, "master": weights, "exp_avg": weights / 10, "step": 2}},
        "groups": [{"lr": 0.1, "betas": (0.9, 0.98)}],
        "scaler": {"cur_scale": 8.0, "cur_iter": 3},
        "shared": {"tied": "wide"},
    }
    return made | {"shard": shards.label(rank)}


def write(save_dir, shards, parts):
    """A checkpoint of these files; returns the plain one."""
    files = shards.files(save_dir)
    files[0].parent.mkdir(parents=True, exist_ok=True)
    for file, each in zip(files, parts, strict=True):
        torch.save(each, file)
    plain = save_dir / "checkpoint_last.pt"
    model = {name: torch.arange(4.0) for name in ("wide", "tied")}
    torch.save({"model": model, "last_optimizer_state": shards.as_optimizer_state()}, plain)
    return plain


def read(plain, out):
    consolidate.write(plain, out, overwrite=True)
    return torch.load(out)["model"]["tied"].tolist()


OTHERS = {
    "update": Shards("update00000001-89abcdef", 2, "adam"),
    "run": Shards("update00000002-89abcdef", 2, "adam"),
    "processes": Shards(MINE.folder, 3, "adam"),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("exchanged", [[0], [1], [0, 1]], ids=str)
def test_files_of_another_checkpoint_are_noticed(tmp_path, other, exchanged):
    parts = [part(rank, OTHERS[other] if rank in exchanged else MINE) for rank in range(2)]
    plain = write(tmp_path, MINE, parts)
    with pytest.raises(RuntimeError, match=f"process0000{exchanged[0]}.pt is a file of another checkpoint"):
        read(plain, tmp_path / "out.pt")
    assert not (tmp_path / "out.pt").exists()


def test_files_that_have_changed_places_are_noticed(tmp_path):
    with pytest.raises(RuntimeError, match=r"process00000\.pt is a file of another checkpoint"):
        read(write(tmp_path, MINE, [part(1), part(0)]), tmp_path / "out.pt")


def test_files_without_a_label_are_noticed(tmp_path):
    parts = [part(0), part(1)]
    del parts[1]["shard"]
    with pytest.raises(RuntimeError, match=r"process00001\.pt is a file of another checkpoint"):
        read(write(tmp_path, MINE, parts), tmp_path / "out.pt")


def test_a_flipped_bit_is_noticed(tmp_path):
    plain = write(tmp_path, MINE, [part(0), part(1)])
    flip_a_bit(MINE.files(tmp_path)[1], torch.arange(2.0) + 2)
    with pytest.raises(RuntimeError, match=r"process00001\.pt.*checksum"):
        read(plain, tmp_path / "out.pt")


def test_a_record_that_nests_without_end_is_refused_at_once():
    nested = [1]
    for _ in range(50):
        nested = [nested, nested]
    with pytest.raises(InputError, match="names shards"):
        Shards.of({"shards": nested})


def of(key, value):
    """A change of something of the parameter."""
    return lambda part: part["parameters"]["wide"].__setitem__(key, value)


STRANGE = {
    "no part": (lambda part: part.clear(), "does not hold what a process writes"),
    "weights": (of("master", [0.0, 1.0]), "update00000002-0123abcd is damaged"),
    "no storage": (of("master", torch.zeros(1).expand(2**40)), "process00000.pt|is damaged"),
    "name": (lambda part: part["parameters"].update({1: part["parameters"]["wide"]}), "update00000002-0123abcd is damaged"),
    "shared": (lambda part: part.update(shared=[1]), "update00000002-0123abcd is damaged"),
    "label": (lambda part: part.update(shard=torch.ones(2)), "process00000.pt is a file of another checkpoint"),
    "unknown": (lambda part: part["parameters"].update(other=part["parameters"]["wide"]), "the parameter other, which the model"),
    "shared with nothing": (lambda part: part["shared"].update(tied="nothing"), "the parameter nothing, which the model"),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_strange_contents_are_one_sentence(tmp_path, strange, capsys):
    change, message = STRANGE[strange]
    parts = [part(0), part(1)]
    for each in parts:
        change(each)
    plain = write(tmp_path, MINE, parts)
    assert cli.main(["consolidate", str(plain), "--out", str(tmp_path / "out.pt")]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert re.search(message, said)
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize("state", [[1], {}, {"model": 1}, {"model": {"wide": 1}}], ids=str)
def test_a_plain_file_without_a_model_is_one_sentence(tmp_path, state, capsys):
    torch.save(state, tmp_path / "checkpoint_last.pt")
    assert cli.main(["consolidate", str(tmp_path), "--out", str(tmp_path / "out.pt")]) == 2
    assert "checkpoint_last.pt is not a checkpoint of fairseq's trainer" in capsys.readouterr().err


def test_one_process_that_cannot_read_its_shards_ends_all_alike(tmp_path, monkeypatch):
    """The file may be damaged on one host only, and the others would wait for the process that finds it."""
    from types import SimpleNamespace

    from fairseq_posenc.plugin.zero import trainer

    run = SimpleNamespace(cfg=SimpleNamespace(optimizer=SimpleNamespace(_name="adam")), _engine=None, _restored_from=tmp_path)
    monkeypatch.setattr(trainer.sharded_checkpoint, "load", lambda *args: None)
    monkeypatch.setattr(trainer, "gather", lambda value: [value, "damaged"])
    with pytest.raises(ValueError, match="damaged"):
        trainer.DeepSpeedTrainer._load_shards(run, MINE.as_optimizer_state())


def test_frozen_parameters_are_in_float32_too(tmp_path):
    plain = write(tmp_path, MINE, [part(0), part(1)])
    state = torch.load(plain)
    state["model"] |= {"frozen": torch.ones(2, dtype=torch.bfloat16), "count": torch.ones(2, dtype=torch.int64)}
    torch.save(state, plain)
    consolidate.write(plain, tmp_path / "out.pt")
    dtypes = {name: tensor.dtype for name, tensor in torch.load(tmp_path / "out.pt")["model"].items()}
    assert dtypes == {**dict.fromkeys(("wide", "tied", "frozen"), torch.float32), "count": torch.int64}
