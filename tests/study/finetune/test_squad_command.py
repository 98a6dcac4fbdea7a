"""``fairseq-posenc squad`` from JSON files to tables, and ``fairseq-train --task squad`` on what it prepares."""

import json

import pytest
from commands import status_of
from squad_files import write_squad

from fairseq_posenc import cli
from fairseq_posenc.study.engine import grid
from fairseq_posenc.study.finetune.squad_data import read, score_v1, score_v2

WINDOWS = ["--max-length", "40", "--doc-stride", "12", "--max-question-length", "16"]


def squad(data, version, checkpoint, out, *flags):
    files = ["--data", str(data), "--version", version, "--checkpoint", str(checkpoint), "--out", str(out)]
    return cli.main(["squad", *files, *flags])


def outputs(out, version, lr="0.001"):
    folder = out / "runs" / f"SQuAD-{version}" / f"lr-{lr}_seed-1"
    return {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}


@pytest.mark.parametrize("version", [pytest.param("1.1", marks=pytest.mark.thorough), "2.0"])
def test_end_to_end(version, checkpoint, tmp_path, capsys):
    """The model was pretrained on 32 tokens and reads windows of 40; its answers are of the text, and scored as filed."""
    data = write_squad(tmp_path / "squad", version, paragraphs=3)
    flags = [*WINDOWS, "--lrs", "1e-3", "--epochs", "1", "--batch-size", "8"]
    assert squad(data, version, checkpoint, tmp_path / "out", *flags) == 0
    printed = capsys.readouterr()
    assert f"SQuAD-{version}" in printed.out
    files = outputs(tmp_path / "out", version)
    questions = list(read(data / f"dev-v{version}.json", version))
    predictions = files["predictions.json"]
    assert list(predictions) == [question.id for question in questions]
    assert all(predictions[question.id] in question.context for question in questions)
    scored = files["result.json"]["scores"][f"SQuAD-{version}"]
    if version == "1.1":
        assert all(predictions.values())
        assert scored == score_v1(questions, predictions)
        assert "null_odds.json" not in files
    else:
        official = score_v2(questions, predictions)  # of the file with "" for no answer, as it would be handed in
        assert all(official[name] == value for name, value in scored.items())
        assert set(files["null_odds.json"]) == set(predictions)
        threshold = files["metrics.json"]["threshold"]
        assert files["result.json"]["constant"] == ([] if any(predictions.values()) else ["SQuAD-2.0"])
        none = files["result.json"]["majority"]["SQuAD-2.0"]
        assert (none["HasAns_f1"], none["NoAns_exact"], none["f1"]) == (0.0, 100.0, 20.0)  # one question in five has no answer
        assert all((odds > threshold) == (predictions[id_] == "") for id_, odds in files["null_odds.json"].items())


def test_the_card_of_an_export_answers_a_question(checkpoint, data_bin, tmp_path, monkeypatch):
    """It cuts texts at the length of fine-tuning, which is greater than that of pretraining."""
    pytest.importorskip("transformers", reason="needs pip install -e '.[hf]'")
    data = write_squad(tmp_path / "squad", "1.1", paragraphs=1)
    flags = [*WINDOWS, "--lrs", "1e-3", "--epochs", "1", "--batch-size", "8", "--keep-checkpoints"]
    assert squad(data, "1.1", checkpoint, tmp_path / "out", *flags) == 0
    (tuned,) = tmp_path.glob("out/runs/*/*/checkpoint_last.pt")
    assert status_of("export-hf", tuned, "--data", data_bin, "--out", tmp_path / "answers") == 0
    assert json.loads((tmp_path / "answers" / "tokenizer_config.json").read_text())["model_max_length"] == 40
    code = (tmp_path / "answers" / "README.md").read_text("utf-8").split("```python\n")[1].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code, {})  # noqa: S102 - the card's


def test_windows_beyond_a_table_are_refused_or_cut(pretrain, tmp_path, capsys):
    data = write_squad(tmp_path / "squad", "1.1", paragraphs=1)
    learned = pretrain("roberta_absolute_tiny")
    assert squad(data, "1.1", learned, tmp_path / "out", *WINDOWS) == 2
    assert "--max-length 40" in " ".join(capsys.readouterr().err.split())
    flags = ["--max-question-length", "12", "--doc-stride", "6", "--lrs", "1e-3", "--epochs", "1"]
    assert squad(data, "1.1", learned, tmp_path / "out", *flags) == 0
    assert outputs(tmp_path / "out", "1.1")["result.json"]["configuration"]["windows"]["max_length"] == 32


@pytest.mark.thorough
def test_plain_fairseq_train(checkpoint, tmp_path, run, monkeypatch):
    """On what the command has prepared when it is interrupted."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "execute", interrupted)
    data = write_squad(tmp_path / "squad", "2.0", paragraphs=1)
    assert squad(data, "2.0", checkpoint, tmp_path / "out", *WINDOWS) == 130
    prepared = tmp_path / "out" / "data" / "SQuAD-2.0"
    sizes = ["--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2"]
    task = ["--task", "squad", "--criterion", "squad", "--arch", "roberta_tisa_tiny", *sizes, "--max-positions", "32"]
    training = ["--optimizer", "adam", "--lr", "1e-3", "--batch-size", "4", "--max-epoch", "1", "--num-workers", "0", "--cpu"]
    saving = ["--save-dir", tmp_path / "save", "--finetune-from-model", checkpoint]
    completed = run("fairseq-train", prepared, *task, *training, *saving)
    assert "done training" in completed.stdout
    assert (tmp_path / "save" / "checkpoint_last.pt").exists()
    missing = run("fairseq-train", tmp_path, *task, *training, "--no-save", check=False)
    assert "dict.txt" in missing.stdout


def test_flags_that_make_no_sense(checkpoint, tmp_path, capsys):
    data = write_squad(tmp_path / "squad", "1.1", paragraphs=1)
    (tmp_path / "squad.yaml").write_text("tasks: {SQuAD2.0: {epochs: 3}}")
    for flags, message in [
        (["--null-threshold", "1"], "--null-threshold is for --version 2.0"),
        (["--doc-stride", "0"], "--doc-stride must be at least 1"),
        (["--max-length", "70"], "--max-length 70"),
        (["--config", str(tmp_path / "squad.yaml")], "the task SQuAD2.0: did you mean SQuAD-2.0"),
        ([], "--max-length 32 leaves no room"),
        ([*WINDOWS, "--train-flags=--bf61"], "--train-flags '--bf61'"),
    ]:
        assert squad(data, "1.1", checkpoint, tmp_path / "out", *flags) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_the_data_set_is_not_removed(checkpoint, tmp_path, capsys, monkeypatch):
    """A data set that lies in OUT/data/SQuAD-1.1, which the command writes again, and one in OUT itself."""
    monkeypatch.chdir(tmp_path)
    data = write_squad(tmp_path / "out" / "data" / "SQuAD-1.1", "1.1", paragraphs=1)
    before = {path: path.read_bytes() for path in data.iterdir()}
    for out in ("out", data):
        assert squad("out/data/SQuAD-1.1", "1.1", checkpoint, out, *WINDOWS) == 2
        assert f"train-v1.1.json lies in --out {out}, which is written over" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in data.iterdir()} == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["data"]


def test_null_thresholds_are_numbers(checkpoint, tmp_path, capsys):
    assert squad(tmp_path, "2.0", checkpoint, tmp_path / "out", "--null-threshold", "nan") == 2
    assert "--null-threshold must be a number" in capsys.readouterr().err
    assert squad(tmp_path, "2.0", checkpoint, tmp_path / "out", *WINDOWS) == 2
    assert "train-v2.0.json and" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_run_that_diverges(checkpoint, tmp_path, capsys):
    data = write_squad(tmp_path / "squad", "2.0", paragraphs=2)
    flags = [*WINDOWS, "--lrs", "1e30,1e-3", "--epochs", "1", "--batch-size", "8"]
    assert squad(data, "2.0", checkpoint, tmp_path / "out", *flags) == 0
    assert "2 (1 diverged)" in capsys.readouterr().out
    assert outputs(tmp_path / "out", "2.0", lr="1e+30")["result.json"]["status"] == "diverged"
    assert outputs(tmp_path / "out", "2.0")["result.json"]["status"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_a_hundred_questions_are_learned(version, pretrain, tmp_path):
    """A small model overfits through windows, training, prediction, text and scorer: F1 > 95."""
    data = write_squad(tmp_path / "squad", version, paragraphs=100 if version == "1.1" else 50, facts=1)
    sizes = ["--encoder-embed-dim", "128", "--encoder-ffn-embed-dim", "512", "--encoder-attention-heads", "4"]
    flags = ["--lrs", "1e-3", "--epochs", "40", "--batch-size", "16", "--dropout", "0", "--attention-dropout", "0"]
    flags += ["--weight-decay", "0", "--max-length", "56", "--doc-stride", "12", "--max-question-length", "24"]
    assert squad(data, version, pretrain("roberta_tisa_tiny", *sizes), tmp_path / "out", *flags) == 0
    assert outputs(tmp_path / "out", version)["result.json"]["scores"][f"SQuAD-{version}"]["f1"] > 95
