"""Sharded checkpoints: complete or absent, continued by any number of processes, merged into plain ones."""

import shutil
import time
from types import SimpleNamespace

import pytest
import torch
from cases import thorough_but
from commands import status_of
from training_runs import (
    OPTIONS,
    RANKS,
    UPDATES,
    assert_same_curve,
    call,
    launcher,
    needs_deepspeed,
    running,
    workers,
)

from fairseq_posenc.base import ownership
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.plugin.zero import consolidate, sharded_checkpoint
from fairseq_posenc.plugin.zero.sharded_checkpoint import Shards
from fairseq_posenc.plugin.zero.zero_config import ZeroConfig

pytestmark = needs_deepspeed

SPAWNED = ("-m", "fairseq_posenc.train", "--distributed-world-size", 2)
HALFWAY = f"checkpoint_1_{UPDATES // 2}.pt"
NAME, UNNAMED = "update00000001-0123abcd", "update00000002-0123abcd"


@pytest.mark.thorough
@pytest.mark.parametrize("stage", thorough_but([3], [2, 3], ()))  # 1 does so below, in a run with other saves
def test_sharding_gives_the_curve_of_fairseqs_own_data_parallelism(fairseq_run, sharded_run, stage):
    assert_same_curve(sharded_run(stage), fairseq_run)


def test_the_curve_is_that_of_learning(fairseq_run):
    """Otherwise equal curves would say little: the loss falls, and clipping acts on some updates and not on others."""
    curve = fairseq_run.curve
    assert curve[UPDATES]["loss"] < curve[1]["loss"] - 1
    assert {row["gnorm"] > 1.6 for row in curve.values()} == {True, False}


@pytest.mark.thorough
def test_a_save_that_writes_no_file_takes_no_process_away(fairseq_run, train):
    """At the end of an epoch; only the first process finds out that nothing is due. The curve is that of stage 1."""
    flags = ("--no-last-checkpoints", "--no-epoch-checkpoints", "--save-interval-updates", 40, "--distributed-timeout", 60)
    run = train("--deepspeed-config", "zero1", *flags, launch=launcher())
    assert_same_curve(run, fairseq_run)
    assert [path.name for path in run.save_dir.glob("*.pt")] == ["checkpoint_2_40.pt"]
    assert not list(run.save_dir.glob(".shared*"))
    assert run.output.count("no consolidated.pt: ") == 1


@pytest.mark.slow
def test_one_process_with_twice_the_update_frequency_continues_what_two_began(fairseq_run, sharded_run, train):
    alone = ("-m", "fairseq_posenc.train")
    halfway = sharded_run(2).save_dir / HALFWAY
    flags = ("--deepspeed-config", "zero2", "--update-freq", "2", "--restore-file", halfway, "--no-save")
    assert_same_curve(train(*flags, launch=alone), fairseq_run, start=UPDATES // 2)


@pytest.mark.slow
def test_a_run_continues_as_if_it_had_not_stopped(fairseq_run, sharded_run, train):
    flags = ("--deepspeed-config", "zero2", "--restore-file", sharded_run(2).save_dir / HALFWAY, "--no-save")
    assert_same_curve(train(*flags, launch=launcher()), fairseq_run, start=UPDATES // 2)


@pytest.mark.slow
def test_another_stage_and_number_of_processes_continue_at_the_same_samples(fairseq_run, sharded_run, train):
    """Stage 3 by two processes, continued at stage 1 by one that does the work of both."""
    halfway = sharded_run(3).save_dir / HALFWAY
    flags = ("--deepspeed-config", "zero1", "--restore-file", halfway, "--update-freq", "2", "--no-save")
    assert_same_curve(train(*flags, launch=launcher(processes=1)), fairseq_run, start=UPDATES // 2)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("now", [1, 2, 3])
@pytest.mark.parametrize("before", [1, 2, 3])
def test_any_stage_continues_any_other_with_any_number_of_processes(sharded_run, train, before, now, processes):
    """The whole batch is four times --batch-size 2, so that four processes can share it as two and one do."""
    whole = sharded_run(before, "--batch-size", 2, "--update-freq", 2)
    flags = ("--restore-file", whole.save_dir / HALFWAY, "--batch-size", 2, "--update-freq", 4 // processes, "--no-save")
    continued = train("--deepspeed-config", f"zero{now}", *flags, launch=launcher(processes))
    assert_same_curve(continued, whole, start=UPDATES // 2)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_master_weights_go_on_beside_16_bits(sharded_run, train, stage):
    """Weights that were only read from the plain file, in bfloat16, would give another curve."""
    whole = sharded_run(stage, "--bf16")
    flags = ("--bf16", "--deepspeed-config", f"zero{stage}", "--restore-file", whole.save_dir / HALFWAY, "--no-save")
    curve = train(*flags, launch=launcher()).curve
    assert curve == {update: row for update, row in whole.curve.items() if update > UPDATES // 2}


@pytest.mark.thorough
@pytest.mark.parametrize("stage", thorough_but([3], [2, 3]))
def test_the_end_of_training_writes_a_plain_checkpoint(sharded_run, stage):
    folder = sharded_run(stage).save_dir
    last, plain = load_checkpoint(str(folder / "checkpoint_last.pt")), load_checkpoint(str(folder / "consolidated.pt"))
    assert "last_optimizer_state" not in plain
    assert plain["model"].keys() == last["model"].keys()
    for name, tensor in plain["model"].items():
        torch.testing.assert_close(tensor, last["model"][name], rtol=0, atol=0)  # in float32, both are the master weights


@pytest.mark.thorough
def test_fairseq_reads_the_plain_checkpoint(sharded_run, english_data_bin, run):
    flags = ["--task", "masked_lm", "--tokens-per-sample", "32", "--max-sentences", "8", "--cpu"]
    done = run("fairseq-validate", english_data_bin, "--path", sharded_run(3).save_dir / "consolidated.pt", *flags)
    assert "valid on 'valid' subset | loss" in done.stdout


def test_the_command_consolidates_any_checkpoint(sharded_run, tmp_path):
    folder = sharded_run(3).save_dir
    assert status_of("consolidate", folder / HALFWAY, "--out", tmp_path / "halfway.pt") == 0
    halfway, end = load_checkpoint(str(tmp_path / "halfway.pt")), load_checkpoint(str(folder / "consolidated.pt"))
    assert halfway["optimizer_history"][-1]["num_updates"] == UPDATES // 2
    assert not torch.equal(
        halfway["model"]["encoder.sentence_encoder.embed_tokens.weight"],
        end["model"]["encoder.sentence_encoder.embed_tokens.weight"],
    )


def test_consolidating_overwrites_no_sharded_checkpoint(sharded_run, capsys):
    last = sharded_run(3).save_dir / "checkpoint_last.pt"
    before = last.read_bytes()
    assert status_of("consolidate", last.parent, "--out", last) == 2
    assert f"--out {last} is itself a sharded checkpoint" in capsys.readouterr().err
    assert last.read_bytes() == before


def test_consolidating_overwrites_only_what_it_is_told_to(sharded_run, capsys, tmp_path):
    folder, out = sharded_run(3).save_dir, tmp_path / "out.pt"
    out.write_text("mine")
    assert status_of("consolidate", folder, "--out", out) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert out.read_text() == "mine"
    shard = next(shards_of(folder / "checkpoint_last.pt").glob("*.pt"))
    before = shard.read_bytes()
    assert status_of("consolidate", folder, "--out", shard, "--overwrite") == 2
    assert "lies in the folder of shards" in capsys.readouterr().err
    assert shard.read_bytes() == before
    assert status_of("consolidate", folder, "--out", out, "--overwrite") == 0
    assert consolidate.made(out)


@pytest.mark.parametrize(
    ("there", "flags", "replaced"),
    [
        (None, {}, True),
        ({"made_by": "consolidate", "model": {}}, {}, True),
        ({"optimizer_history": []}, {}, False),
        ([1], {}, False),
        ({"made_by": "consolidate", "model": {}}, {"restore_file": "consolidated.pt"}, False),
        ({"made_by": "consolidate", "model": {}}, {"finetune_from_model": "link.pt"}, False),
    ],
)
def test_the_end_of_training_replaces_its_own_file_only(tmp_path, monkeypatch, caplog, there, flags, replaced):
    """Not a file that somebody else has called consolidated.pt, nor what the run started from."""
    from fairseq_posenc.train import DeepSpeedOptions

    written = []
    monkeypatch.setattr(consolidate, "write", lambda source, out, overwrite: written.append(out) or 1)
    (tmp_path / "checkpoint_last.pt").touch()
    (tmp_path / "link.pt").symlink_to("consolidated.pt")
    out = tmp_path / "consolidated.pt"
    if there is not None:
        torch.save(there, out)
    names = {"restore_file": None, "finetune_from_model": None, **{flag: tmp_path / name for flag, name in flags.items()}}
    flags = dict.fromkeys(("no_save", "no_save_optimizer_state", "no_last_checkpoints"), False)
    saving = SimpleNamespace(save_dir=tmp_path, **flags, **names)
    cfg = SimpleNamespace(checkpoint=saving, distributed_training=SimpleNamespace(distributed_rank=0))
    DeepSpeedOptions(ZeroConfig(stage=2), 600.0, consolidates=True).consolidate(SimpleNamespace(cfg=cfg))
    assert written == ([out] if replaced else [])
    assert (f"{out} is left as it is" in caplog.text) != replaced


def test_consolidating_names_a_missing_folder(sharded_run, capsys, tmp_path):
    assert status_of("consolidate", sharded_run(3).save_dir, "--out", tmp_path / "missing" / "out.pt") == 2
    assert f"there is no folder {tmp_path / 'missing'}" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_file_and_shards_of_two_models_are_not_put_together(sharded_run, capsys, tmp_path):
    shutil.copytree(sharded_run(2).save_dir, tmp_path / "copy")
    last = tmp_path / "copy" / "checkpoint_last.pt"
    state = load_checkpoint(str(last))
    state["model"]["encoder.sentence_encoder.embed_tokens.weight"] = torch.zeros(3, 2)
    torch.save(state, last)
    assert status_of("consolidate", last, "--out", tmp_path / "out.pt") == 2
    assert "encoder.sentence_encoder.embed_tokens.weight has 6 numbers" in capsys.readouterr().err
    state = load_checkpoint(str(sharded_run(2).save_dir / "checkpoint_last.pt"))
    state["model"]["encoder.sentence_encoder.embed_tokens.weight"] += 0.1
    torch.save(state, last)
    assert status_of("consolidate", last, "--out", tmp_path / "out.pt") == 2
    assert "and others in the shards" in capsys.readouterr().err


@pytest.mark.slow
def test_a_consolidated_checkpoint_can_be_fine_tuned_and_a_sharded_one_too(sharded_run, train):
    folder = sharded_run(2).save_dir
    from_plain = train("--finetune-from-model", folder / "consolidated.pt", "--no-save", updates=3)
    from_sharded = train("--finetune-from-model", folder / "checkpoint_last.pt", "--no-save", "--deepspeed-config", "zero3",
                         launch=launcher(), updates=3)  # fmt: skip
    assert from_plain.curve == from_sharded.curve
    assert from_plain.curve[1]["loss"] < sharded_run(2).curve[10]["loss"]


@pytest.mark.thorough
def test_best_last_and_pruning_are_fairseqs(train):
    options = [option for option in OPTIONS if option != "--disable-validation"]
    flags = ("--deepspeed-config", "zero2", "--save-interval-updates", 5, "--keep-interval-updates", 2, "--no-consolidate",
             "--no-epoch-checkpoints")  # fmt: skip
    folder = train(*flags, launch=launcher(), options=options, updates=25).save_dir
    assert {path.name for path in folder.glob("*.pt")} == {
        "checkpoint_best.pt",
        "checkpoint_last.pt",
        "checkpoint_1_20.pt",
        "checkpoint_1_25.pt",
    }
    named = {shards_of(path) for path in folder.glob("*.pt")}
    kept = {path for path in (folder / "shards").iterdir() if path.is_dir()}
    assert named <= kept
    assert len(kept - named) <= 1  # what pruning released goes before the next is written
    assert not list(folder.rglob("*.partial"))


@pytest.mark.thorough
@pytest.mark.parametrize("stage", [2, 3])
def test_shards_hold_every_parameter_once(sharded_run, stage):
    """Three float32 numbers per parameter, weight and Adam's moments, over both processes, and little else."""
    last = sharded_run(stage).save_dir / "checkpoint_last.pt"
    parameters = sum(
        tensor.numel() for name, tensor in load_checkpoint(str(last))["model"].items() if "lm_head.weight" not in name
    )
    assert ownership.made_by(shards_of(last)) == sharded_checkpoint.MAKER
    sizes = [file.stat().st_size for file in shards_of(last).glob("*.pt")]
    assert len(sizes) == 2
    assert sum(sizes) == pytest.approx(12 * parameters, rel=0.5)
    assert sum(sizes) >= 12 * parameters


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file, shards: shutil.rmtree(shards), "does not exist"),
        (lambda file, shards: truncate(next(shards.glob("*.pt"))), "truncated, damaged"),
        (lambda file, shards: next(shards.glob("*.pt")).unlink(), "is incomplete"),
        (lambda file, shards: truncate(file), "truncated, damaged"),
    ],
    ids=["folder gone", "shard truncated", "shard gone", "file truncated"],
)
def test_damage_is_named(sharded_run, capsys, tmp_path, damage, message):
    shutil.copytree(sharded_run(2).save_dir, tmp_path / "copy")
    last = tmp_path / "copy" / "checkpoint_last.pt"
    damage(last, shards_of(last))
    assert status_of("consolidate", tmp_path / "copy", "--out", tmp_path / "out.pt") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.pt").exists()


def shards_of(file):
    return file.parent / "shards" / load_checkpoint(str(file))["last_optimizer_state"]["shards"]["folder"]


def truncate(path):
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize("state", [{"state": {}}, None], ids=["unsharded", "none"])
def test_no_optimizer_starts_from_scratch_silently(monkeypatch, tmp_path, state):
    """A plain checkpoint, of fairseq's own training or a consolidated one."""
    from fairseq_posenc.plugin.zero.trainer import DeepSpeedTrainer

    monkeypatch.setattr(DeepSpeedTrainer, "data_parallel_rank", 0)
    torch.save({"model": {}, "last_optimizer_state": state}, tmp_path / "checkpoint_last.pt")
    with pytest.raises(ValueError, match="--deepspeed-config zero0") as refused:
        DeepSpeedTrainer.load_checkpoint(object.__new__(DeepSpeedTrainer), str(tmp_path / "checkpoint_last.pt"))
    assert "--reset-optimizer" in str(refused.value)


def test_another_optimizer_does_not_take_over_silently():
    from fairseq_posenc.plugin.zero.trainer import DeepSpeedTrainer

    run = SimpleNamespace(cfg=SimpleNamespace(optimizer=SimpleNamespace(_name="sgd")))
    state = Shards(NAME, processes=2, optimizer="adam").as_optimizer_state()
    with pytest.raises(ValueError, match=r"--optimizer sgd .*adam"):
        DeepSpeedTrainer._load_shards(run, state)


@pytest.mark.thorough
def test_fairseq_itself_says_who_continues_a_sharded_optimizer(sharded_run, train):
    run = train("--restore-file", sharded_run(2).save_dir / HALFWAY, "--no-save", "--distributed-world-size", 1, status=2)
    assert "--deepspeed-config zero1, zero2 or zero3" in run.output


@pytest.mark.parametrize("launch", [launcher(), pytest.param(SPAWNED, marks=pytest.mark.slow)], ids=["launched", "spawned"])
def test_a_refusal_of_the_trainer_is_one_line(sharded_run, train, launch):
    flags = ("--deepspeed-config", "zero2", "--restore-file", sharded_run(2).save_dir / "consolidated.pt", "--no-save")
    output = train(*flags, launch=launch, status=2).output
    assert "consolidated.pt has no sharded optimizer state" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    "change",
    [{"folder": "../elsewhere"}, {"folder": "/elsewhere"}, {"processes": 10**12}, {"processes": "2"}, {"format": 2}, {"more": 1}],
    ids=str,
)
def test_shards_that_nobody_has_written_are_not_looked_for(change):
    state = Shards(NAME, processes=2, optimizer="adam").as_optimizer_state()
    assert Shards.of(state) == Shards(NAME, processes=2, optimizer="adam")
    with pytest.raises(ValueError, match="names shards that this version has not written"):
        Shards.of({"shards": {**state["shards"], **change}})


KILLED = """
import os, signal, sys
from fairseq.trainer import Trainer
from fairseq_posenc import train
if os.environ["RANK"] == "1":
    step = Trainer.train_step
    def step_until_killed(self, *arguments, **options):
        if self.get_num_updates() == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments, **options)
    Trainer.train_step = step_until_killed
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a launcher's, which may come before process 0 notices
sys.exit(train.main())
"""


@pytest.mark.thorough
def test_a_killed_process_ends_the_others_and_a_rerun_continues(english_data_bin, train, tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    save_dir = tmp_path / "checkpoints"
    flags = ("--deepspeed-config", "zero2", "--save-interval-updates", 5, "--no-consolidate")
    killed = call(
        RANKS, 2, tmp_path / "killed.py", english_data_bin, *OPTIONS, "--max-update", 100, "--save-dir", save_dir, *flags
    )
    assert killed.returncode != 0
    output = killed.stdout
    assert "Process 0 has lost another process" in output
    assert f"continues from the last checkpoint in {save_dir}" in output
    again = train(*flags, launch=launcher(), save_dir=save_dir, updates=8)
    assert list(again.curve) == [6, 7, 8]


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.03, 0.07, 0.11, 0.17])
def test_a_kill_at_any_moment_leaves_a_checkpoint_that_continues(english_data_bin, train, tmp_path, delay):
    """All processes die at once, in a run that saves at every update; moments differ by the delay."""
    save_dir = tmp_path / "checkpoints"
    with running(english_data_bin, save_dir, "--save-interval-updates", 1) as process:
        time.sleep(1 + delay)
        for each in workers(process):
            each.kill()
        process.wait(timeout=300)
    saved = load_checkpoint(str(save_dir / "checkpoint_last.pt"))["optimizer_history"][-1]["num_updates"]
    flags = ("--deepspeed-config", "zero2", "--save-interval-updates", 1)
    again = train(*flags, save_dir=save_dir, launch=launcher(), updates=saved + 2)
    assert list(again.curve) == [saved + 1, saved + 2]
    partial = [path for path in map(str, save_dir.rglob("*")) if ".partial" in path]
    assert not [path for path in partial if ".pt" in path]  # what a kill before the record of a folder leaves is empty


def shards_in(save_dir, *names, made_by=sharded_checkpoint.MAKER):
    """Folders of shards as :func:`sharded_checkpoint.save` leaves them."""
    for name in names:
        folder = save_dir / sharded_checkpoint.FOLDER / name
        ownership.claim(folder, made_by)
        (folder / "process00000.pt").touch()


def test_folders_that_no_checkpoint_names_are_removed(tmp_path):
    """Whatever the checkpoint's name; files of other kinds, and a link, are passed over."""
    shards_in(tmp_path, NAME, UNNAMED, "update00000003-0123abcd.partial")
    shards = Shards(NAME, processes=2, optimizer="adam")
    torch.save({"last_optimizer_state": shards.as_optimizer_state()}, tmp_path / "ours.pt")
    torch.save([1], tmp_path / "list.pt")
    torch.save({"last_optimizer_state": None}, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "text.pt").write_text("nothing")
    (tmp_path / sharded_checkpoint.FOLDER / "link").symlink_to(tmp_path)
    sharded_checkpoint.remove_unnamed(tmp_path)
    assert {path.name for path in (tmp_path / sharded_checkpoint.FOLDER).iterdir()} == {NAME, "link"}
    assert (tmp_path / "ours.pt").exists()


def test_nothing_is_removed_beside_a_checkpoint_that_cannot_be_read(tmp_path):
    shards_in(tmp_path, UNNAMED)
    (tmp_path / "checkpoint_last.pt").write_bytes(b"PK")
    sharded_checkpoint.remove_unnamed(tmp_path)
    assert (tmp_path / sharded_checkpoint.FOLDER / UNNAMED).is_dir()


def test_folders_that_training_has_not_made_are_not_removed(tmp_path):
    """Data that the run reads from ``shards``, shards without a record, folders of others, and more in ours."""
    root = tmp_path / sharded_checkpoint.FOLDER
    (root / "shard-00000").mkdir(parents=True)
    (root / "shard-00000" / "train.bin").write_text("data")
    (root / UNNAMED).mkdir()
    (root / UNNAMED / "process00000.pt").write_text("of somebody's")
    shards_in(tmp_path, "update00000003-0123abcd", made_by="export-hf")
    shards_in(tmp_path, "update00000004-0123abcd", "mine")
    (root / "update00000004-0123abcd" / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ownership.RECORD}
    del before[root / "update00000004-0123abcd" / "process00000.pt"]
    for _ in range(2):
        sharded_checkpoint.remove_unnamed(tmp_path)
    left = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ownership.RECORD}
    assert left == before


def test_shards_that_are_elsewhere_may_be_another_runs(tmp_path):
    shards_in(tmp_path / "other", UNNAMED)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / sharded_checkpoint.FOLDER).symlink_to(tmp_path / "other" / sharded_checkpoint.FOLDER)
    sharded_checkpoint.remove_unnamed(tmp_path / "run")
    assert (tmp_path / "other" / sharded_checkpoint.FOLDER / UNNAMED / "process00000.pt").exists()
