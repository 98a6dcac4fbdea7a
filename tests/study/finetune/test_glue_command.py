"""``fairseq-posenc glue`` from tsv files to tables."""

import errno
import json
import re

import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from glue_files import write_task

from fairseq_posenc import cli
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.plugin.models.building import parse
from fairseq_posenc.study.engine import grid
from fairseq_posenc.study.finetune.glue_data import TASKS

FAST = ["--seeds", "1", "--epochs", "2", "--batch-size", "8"]


@pytest.fixture
def data(tmp_path):
    for name in ("SST-2", "STS-B", "MNLI"):
        write_task(tmp_path / "glue", name, rows=24)
    return tmp_path / "glue"


def glue(data, checkpoint, out, *flags):
    return cli.main(["glue", "--data", str(data), "--checkpoint", str(checkpoint), "--out", str(out), *flags])


def result(out, task, lr="0.001", seed=1):
    return json.loads((out / "runs" / task / f"lr-{lr}_seed-{seed}" / "result.json").read_text())


def test_end_to_end(data, checkpoint, tmp_path, capsys, request):
    out = tmp_path / "out"
    flags = ["--tasks", "sst-2,STS-B,MNLI", "--lrs", "1e-3", *FAST]
    assert glue(data, checkpoint, out, *flags) == 0
    printed = capsys.readouterr()
    report = json.loads((out / "results.json").read_text())
    assert list(report["tasks"]) == ["SST-2", "STS-B", "MNLI"]
    assert [row["set"] for row in report["tasks"]["MNLI"]["scores"]] == ["MNLI-m", "MNLI-mm"]
    assert (out / "results.md").read_text().strip() in printed.out
    assert not list(out.rglob("*.pt"))
    dev = (data / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    positive = 100 * sum(line.endswith("\t1") for line in dev) / len(dev)
    assert report["tasks"]["SST-2"]["scores"][0]["majority"] == pytest.approx(max(positive, 100 - positive))
    assert [row["majority"] for row in report["tasks"]["STS-B"]["scores"]] == [0.0, 0.0]

    request.getfixturevalue("untrained")
    assert glue(data, checkpoint, out, *flags) == 0
    assert (out / "results.md").read_text().strip() in capsys.readouterr().out


@pytest.mark.slow
def test_a_result_does_not_depend_on_the_runs_before_it(data, checkpoint, tmp_path):
    """fairseq keeps state in attributes of functions: a run after another, or after one that diverged, must be as if alone."""
    flags = ["--tasks", "SST-2", *FAST]
    assert glue(data, checkpoint, tmp_path / "both", *flags, "--lrs", "1e-2,1e30,1e-3") == 0
    assert glue(data, checkpoint, tmp_path / "alone", *flags, "--lrs", "1e-3") == 0
    log = "runs/SST-2/lr-0.001_seed-1/train.log"
    losses = [re.findall(r'"valid_loss": "([0-9.]+)"', (tmp_path / run / log).read_text()) for run in ("both", "alone")]
    assert len(losses[0]) == 2
    assert losses[0] == losses[1]
    assert result(tmp_path / "both", "SST-2")["scores"] == result(tmp_path / "alone", "SST-2")["scores"]


@pytest.mark.thorough
def test_a_run_goes_on_from_its_last_epoch(data, checkpoint, tmp_path, monkeypatch):
    flags = ["--tasks", "SST-2", "--lrs", "1e-3", *FAST]

    execute = grid.execute

    def killed_after_the_first_epoch(command, *rest):
        execute([*command, "--max-epoch", "1"], *rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(grid, "execute", killed_after_the_first_epoch)
        assert glue(data, checkpoint, tmp_path / "out", *flags) == 130
    assert glue(data, checkpoint, tmp_path / "out", *flags) == 0
    assert glue(data, checkpoint, tmp_path / "whole", *flags) == 0
    log = (tmp_path / "out/runs/SST-2/lr-0.001_seed-1/train.log").read_text()
    assert "Loaded checkpoint" in log
    assert log.count("Start iterating over samples") == 2
    assert result(tmp_path / "out", "SST-2")["scores"] == result(tmp_path / "whole", "SST-2")["scores"]


@pytest.mark.thorough
def test_models_of_one_class_are_marked_and_checkpoints_name_the_labels(data, checkpoint, tmp_path, capsys):
    """Without an update that changes anything, a model answers all alike."""
    flags = ["--tasks", "SST-2,STS-B", "--lrs", "1e-30", *FAST, "--keep-checkpoints"]
    assert glue(data, checkpoint, tmp_path / "out", *flags, "--from-scratch") == 0
    assert "1 (1 of one class)" in capsys.readouterr().out
    labels = {name: ["negative", "positive"] if name == "SST-2" else [] for name in ("SST-2", "STS-B")}
    for name, expected in labels.items():
        saved = load_checkpoint(tmp_path / f"out/runs/{name}/lr-1e-30_seed-1/checkpoint_last.pt")
        assert saved["task_state"]["labels"] == expected


@pytest.mark.thorough
@pytest.mark.parametrize("lrs", ["1e-3", pytest.param("1e-3,1e30", marks=pytest.mark.slow)])
def test_runs_at_a_time(data, checkpoint, tmp_path, request, lrs):
    flags = ["--tasks", "SST-2", "--lrs", lrs, *FAST, "--jobs", "2"]
    assert glue(data, checkpoint, tmp_path / "out", *flags) == 0
    runs = json.loads((tmp_path / "out/results.json").read_text())["tasks"]["SST-2"]["runs"]
    assert [run["status"] for run in runs] == ["finished", "diverged"][: len(lrs.split(","))]
    assert not list(tmp_path.rglob("*.pt"))
    request.getfixturevalue("untrained")
    assert glue(data, checkpoint, tmp_path / "out", *flags, "--jobs", "1") == 0


@pytest.mark.slow
def test_two_processes_train_one_run(data, checkpoint, tmp_path):
    """With as many updates as one process, and their log in the run's folder. The language model's head has no gradients."""
    flags = ["--tasks", "SST-2", "--lrs", "1e-3", *FAST, "--train-flags=--cpu --distributed-world-size 2"]
    assert glue(data, checkpoint, tmp_path / "out", *flags) == 0
    log = (tmp_path / "out/runs/SST-2/lr-0.001_seed-1/train.log").read_text()
    assert "training on the CPU (processes: 2," in log
    assert re.findall(r'"train_num_updates": "(\d+)"', log) == ["3", "6"]  # 24 rows in batches of 8


@pytest.mark.parametrize(
    "arch",
    [
        pytest.param("roberta_absolute_tiny", marks=pytest.mark.slow),
        pytest.param("roberta_shaw_tiny", marks=pytest.mark.slow),
        pytest.param("modernbert_rope_tiny", marks=pytest.mark.thorough),
    ],
)
def test_other_schemes(arch, pretrain, data, tmp_path):
    assert glue(data, pretrain(arch), tmp_path / "out", "--tasks", "SST-2", "--lrs", "1e-3", "--seeds", "1", "--epochs", "1") == 0
    assert result(tmp_path / "out", "SST-2")["configuration"]["max_length"] == 32  # as for an inductive one


@pytest.mark.thorough
def test_from_scratch_takes_no_weights(data, checkpoint, tmp_path, capsys):
    flags = ["--tasks", "SST-2", "--lrs", "1e-3", *FAST]
    assert glue(data, checkpoint, tmp_path / "out", *flags, "--from-scratch") == 0
    log = (tmp_path / "out/runs/SST-2/lr-0.001_seed-1/train.log").read_text()
    assert "Loaded checkpoint" not in log
    assert glue(data, checkpoint, tmp_path / "out", *flags) == 2
    assert "checkpoint was None, now" in " ".join(capsys.readouterr().err.split())


def test_errors_are_one_paragraph(data, checkpoint, tmp_path, capsys):
    (data / "SST-2" / "dev.tsv").write_text("sentence\tlabel\nA box.\t2\n")
    assert glue(data, checkpoint, tmp_path / "out", "--tasks", "SST-2") == 2
    assert "dev.tsv, line 2: the label is '2'" in " ".join(capsys.readouterr().err.split())
    assert glue(data, checkpoint, tmp_path / "out", "--tasks", "SST2") == 2
    assert "'sst2' is not a GLUE task" in capsys.readouterr().err


def test_runs_that_diverge(data, checkpoint, tmp_path, capsys, request):
    flags = ["--tasks", "SST-2", "--lrs", "1e30", *FAST, "--keep-checkpoints"]
    assert glue(data, checkpoint, tmp_path / "out", *flags) == 0
    printed = capsys.readouterr()
    assert "| diverged" in printed.out
    assert "1 (1 diverged)" in printed.out
    recorded = result(tmp_path / "out", "SST-2", lr="1e+30")
    assert (recorded["status"], recorded["reason"]) == ("diverged", "gradients are Nan/Inf; see train.log")
    assert not list(tmp_path.rglob("crash.pt"))
    request.getfixturevalue("untrained")
    assert glue(data, checkpoint, tmp_path / "out", *flags) == 0
    report = json.loads((tmp_path / "out" / "results.json").read_text(), parse_constant=pytest.fail)
    assert report["tasks"]["SST-2"]["scores"] == []


def refused(capsys, *arguments):
    """Return the message with which the command refuses to begin."""
    assert glue(*arguments) == 2
    return " ".join(capsys.readouterr().err.split())


def test_missing_tasks_are_all_named_before_any_is_prepared(data, checkpoint, tmp_path, capsys):
    (data / "MNLI" / "dev_mismatched.tsv").unlink()
    message = refused(capsys, data, checkpoint, tmp_path / "out", "--tasks", "SST-2,RTE,MNLI")
    assert "lacks RTE/train.tsv, RTE/dev.tsv, MNLI/dev_mismatched.tsv" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("untrained")
def test_bad_rows_are_found_before_training(data, checkpoint, tmp_path, capsys):
    path = data / "MNLI" / "dev_mismatched.tsv"
    path.write_text(path.read_text() + "cut\n")
    message = refused(capsys, data, checkpoint, tmp_path / "out", "--tasks", "STS-B,MNLI")
    assert "dev_mismatched.tsv, line 26: 1 columns where the header has 12" in message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--bf16 'x", '--train-flags "--bf16 \'x" cannot be used: No closing quotation'),
        ("--bf61", "--train-flags '--bf61' cannot be used: there is no flag --bf61: did you mean --bf16"),
        ("--update-freq x", "--train-flags '--update-freq x' cannot be used: "),
        ("--ddp-backend x", "--train-flags '--ddp-backend x' cannot be used: "),
        ("--dropout 0.3", "--train-flags '--dropout 0.3' cannot be used: --dropout"),
        ("--batch-size 8", "--train-flags '--batch-size 8' cannot be used: --batch-size"),
        ("--update-freq 4", "--train-flags '--update-freq 4' cannot be used: --update-freq"),
        ("--arch roberta_base", "cannot be used: --arch"),
        ("--seed 1", "cannot be used: --seed"),
        ("--bf16 --encoder-layers=2", "cannot be used: --encoder-layers"),
        ("--max-sentences 8", "cannot be used: --max-sentences"),
        ("--adam-betas (0.9,0.999)", "cannot be used: --adam-betas"),
        ("--clip-norm=1", "cannot be used: --clip-norm"),
        ("--max-update 3", "cannot be used: --max-update"),
        ("--disable-validation", "cannot be used: --disable-validation"),
        ("--no-last-checkpoints", "cannot be used: --no-last-checkpoints"),
        ("--classification-head-name mnli", "cannot be used: --classification-head-name"),
        ("--bf16 --distributed-world-size 3", "--batch-size 32: 3 processes do not divide it"),
    ],
)
def test_train_flags_are_checked_before_training(flags, message, data, checkpoint, tmp_path, capsys):
    assert message in refused(capsys, data, checkpoint, tmp_path / "out", "--tasks", "SST-2", f"--train-flags={flags}")
    assert not (tmp_path / "out" / "data").exists()


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (".", "--data glue/SST-2/train.tsv lies in --out ."),
        ("glue", "--data glue/SST-2/train.tsv lies in --out glue"),
        ("glue/SST-2", "--data glue/SST-2/train.tsv lies in --out glue/SST-2"),
        ("link", "--data glue/SST-2/train.tsv lies in --out link"),
        ("mine", "--out mine is not empty, and glue has not made it (data is there): name another folder"),
        ("theirs", "--out theirs was made by squad, not by glue: name another folder"),
        ("mine/notes.txt", "--out mine/notes.txt cannot be a folder: mine/notes.txt is a file"),
    ],
)
def test_nothing_of_others_is_removed_or_written_over(data, checkpoint, tmp_path, capsys, monkeypatch, out, message):
    """OUT/data/TASK, OUT/start and results.json are names that the command uses, and others too."""
    monkeypatch.chdir(tmp_path)
    for name in ("data/SST-2/train.tsv", "start/SST-2.pt", "results.json", "notes.txt"):
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "fairseq_posenc.json").write_text('{"made_by": "squad"}')
    (tmp_path / "link").symlink_to(data)
    before = contents(tmp_path)
    assert glue("glue", checkpoint, out, "--tasks", "SST-2", "--lrs", "1e-3", *FAST) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert contents(tmp_path) == before


def test_a_checkpoint_tuned_on_squad_is_refused(data, checkpoint, tmp_path, capsys):
    saved = torch.load(checkpoint, weights_only=False)
    saved["model"]["encoder.lm_head.span.weight"] = torch.zeros(2, 32)
    torch.save(saved, tmp_path / "squad.pt")
    message = refused(capsys, data, tmp_path / "squad.pt", tmp_path / "out", "--tasks", "SST-2")
    assert f"{tmp_path / 'squad.pt'} was tuned on SQuAD" in message


@pytest.mark.thorough
def test_the_head_of_another_task_is_left_out(data, data_bin, checkpoint, tmp_path):
    for name in ("QNLI", "RTE"):
        write_task(data, name, rows=8)
        flags = ["--data-bin", str(data_bin), "--lrs", "1e-30", "--seeds", "1", "--epochs", "1", "--keep-checkpoints"]
        assert glue(data, checkpoint, tmp_path / name, "--tasks", name, *flags) == 0
        folder = tmp_path / name / "runs" / name / "lr-1e-30_seed-1"
        checkpoint = folder / "checkpoint_best.pt"
    assert "deleting classification head (QNLI)" in (folder / "train.log").read_text()
    assert {name.split(".")[1] for name in load_checkpoint(checkpoint)["model"] if name.startswith("classification")} == {"RTE"}


class Stop(KeyboardInterrupt):
    """Comes where the training would begin."""


def test_what_a_checkpoint_keeps_of_its_pretraining(data, pretrain, tmp_path, monkeypatch):
    """The sampling of positions, which is recorded, and no option that needs the data or the logs of pretraining."""
    saved = torch.load(pretrain("roberta_tisa_tiny", "--position-sampling", "random:48"), weights_only=False)
    saved["cfg"]["model"].update(compile=True, attention_backend="band")
    torch.save(saved, tmp_path / "compiled.pt")
    models = []

    def execute(command, *_):
        models.append(parse(command[3:]).model)
        raise Stop

    monkeypatch.setattr(grid, "execute", execute)
    assert glue(data, tmp_path / "compiled.pt", tmp_path / "out", "--tasks", "SST-2", "--lrs", "1e-3", *FAST) == 130
    (model,) = models
    assert (model.compile, str(model.attention_backend)) == (False, "auto")
    assert model.position_sampling == "random:48"
    assert result(tmp_path / "out", "SST-2")["configuration"]["model"]["position_sampling"] == "random:48"


@pytest.mark.parametrize(
    ("arch", "flags", "names"),
    [
        (
            "roberta_shaw_tiny",
            ("--max-relative-position", "5", "--position-share-heads", "false", "--no-layernorm-embedding"),
            ("max_relative_position", "position_share_heads", "no_layernorm_embedding"),
        ),
        ("modernbert_rope_tiny", ("--rope-base", "100", "--norm-bias"), ("rope_base", "no_norm_bias", "gated_ffn")),
        ("albert_absolute_tiny", ("--embedding-size", "16"), ("embedding_size", "encoder_layer_groups")),
        ("roberta_base", ("--encoder-layers", "2", "--untie-weights-roberta"), ("encoder_layers", "untie_weights_roberta")),
    ],
)
def test_the_flags_of_a_run_make_the_checkpoints_model(arch, flags, names, data, pretrain, tmp_path, monkeypatch):
    models = []

    def execute(command, *_):
        models.append(parse(command[3:]).model)
        raise Stop

    monkeypatch.setattr(grid, "execute", execute)
    path = pretrain(arch, *flags)
    assert glue(data, path, tmp_path / "out", "--tasks", "SST-2", "--lrs", "1e-3", *FAST) == 130
    (model,), options = models, Checkpoint(path).options
    for name in ("encoder_layers", "encoder_embed_dim", "max_positions", *names):
        assert getattr(model, name) == getattr(options, name), name


def test_jobs_share_the_gpus(data, checkpoint, tmp_path, monkeypatch):
    """Six GPUs do not divide a batch of 8, and the two of each job do."""
    given = []

    def execute(command, log, variables, *_):
        given.append((variables["CUDA_VISIBLE_DEVICES"], command[command.index("--distributed-world-size") + 1]))
        raise Stop

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 6)
    monkeypatch.setattr(grid, "execute", execute)
    assert glue(data, checkpoint, tmp_path / "out", "--tasks", "SST-2", "--lrs", "1e-3", *FAST, "--jobs", "3") == 130
    assert given[0] == ("0,1", "2")


def test_a_full_disk_is_named_and_the_same_command_goes_on(data, checkpoint, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    out, flags = tmp_path / "out", ["--tasks", "SST-2", "--lrs", "1e-3", *FAST]
    with monkeypatch.context() as patch:
        patch.setattr(MMapIndexedDatasetBuilder, "finalize", full)
        assert glue(data, checkpoint, out, *flags) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith(f"fairseq-posenc glue: {out}: No space left on device. When there is room")

    def stop(*_):
        raise Stop

    monkeypatch.setattr(grid, "execute", stop)
    assert glue(data, checkpoint, out, *flags) == 130
    mine = [out / name for name in ("notes.txt", "data/SST-2/input0/notes.txt")]
    for path in mine:
        path.write_text("mine")
    before = contents(out)
    assert glue(data, checkpoint, out, *flags, "--max-length", "16") == 2
    assert "is of another configuration: max_length was" in " ".join(capsys.readouterr().err.split())
    assert {**contents(out), ".lock": before[".lock"]} == before
    (note,) = out.glob("data/SST-2/prepared.json")
    note.write_text(note.read_text().replace('"max_length"', '"length"'))
    assert glue(data, checkpoint, out, *flags) == 130  # prepares the data again
    assert [path.read_text() for path in mine] == ["mine"] * 2
    assert contents(out).keys() == before.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_sixty_four_rows_are_learned_perfectly(name, pretrain, tmp_path):
    """Training set and development set are the same 64 rows, so that data, model, selection and scoring must all agree."""
    write_task(tmp_path / "glue", name, rows=64)
    flags = ["--lrs", "1e-3", "--seeds", "1", "--epochs", "120", "--batch-size", "16"]
    flags += ["--dropout", "0", "--attention-dropout", "0", "--weight-decay", "0", "--max-length", "512"]
    model = pretrain("roberta_tisa_tiny", "--encoder-embed-dim", "64", "--encoder-ffn-embed-dim", "256")
    assert glue(tmp_path / "glue", model, tmp_path / "out", "--tasks", name, *flags) == 0
    for metrics in result(tmp_path / "out", name, lr="0.001")["scores"].values():
        for value in metrics.values():
            assert value > (99 if TASKS[name].regression else 99.99)
