"""GLUE's files, read and prepared."""

import numpy as np
import pytest
from fairseq import tasks
from glue_files import write_task
from hypothesis import given
from hypothesis import strategies as st

from fairseq_posenc.base.ownership import claim
from fairseq_posenc.plugin.models.building import parse
from fairseq_posenc.study.finetune.glue_data import TASKS, read
from fairseq_posenc.study.finetune.glue_runs import encode, score, shortened, write_split
from fairseq_posenc.text.vocabulary import Vocabulary


@pytest.mark.parametrize("name", TASKS)
def test_every_layout(name, tmp_path):
    write_task(tmp_path, name, rows=6)
    task = TASKS[name]
    for file in ["train.tsv", *task.dev.values()]:
        examples = list(read(tmp_path / name / file, task))
        assert len(examples) == 6
        assert all(len(example.texts) == len(task.columns) and example.texts[0].endswith(".") for example in examples)
        assert all(0 <= example.target <= (1 if task.regression else len(task.labels) - 1) for example in examples)


def rte(tmp_path, *lines, header="index\tsentence1\tsentence2\tlabel"):
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{line}\n" for line in [header, *lines]), encoding="utf-8")
    return path


GOOD = "0\tA red box.\tA box.\tentailment"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1\tonly one"], r"train\.tsv, line 3: 2 columns where the header has 4"),
        (['1\t"a quoted\ttab"\tA box.\tentailment'], r"line 3: 5 columns .*quotes"),
        (["1\tA.\tB.\tmaybe"], "line 3: the label is 'maybe', and must be one of entailment, not_entailment"),
    ],
)
def test_bad_rows_stop_or_are_left_out(tmp_path, capsys, lines, message):
    path = rte(tmp_path, GOOD, *lines, GOOD)
    with pytest.raises(ValueError, match=message):
        list(read(path, TASKS["RTE"]))
    assert len(list(read(path, TASKS["RTE"], skip_bad=True))) == 2
    assert "train.tsv: 1 rows left out" in capsys.readouterr().err


def test_bad_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        list(read(tmp_path / "none.tsv", TASKS["RTE"]))
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(ValueError, match=r"empty\.tsv has no column"):
        list(read(tmp_path / "empty.tsv", TASKS["RTE"]))
    with pytest.raises(ValueError, match="has no rows"):
        list(read(rte(tmp_path), TASKS["RTE"]))
    with pytest.raises(ValueError, match=r"has no rows .* can be read: .*line 2"):
        list(read(rte(tmp_path, "x"), TASKS["RTE"], skip_bad=True))
    with pytest.raises(ValueError, match="has no column 'sentence2'"):
        list(read(rte(tmp_path, header="index\tsentence1\tlabel"), TASKS["RTE"]))
    (tmp_path / "latin.tsv").write_bytes(b"sentence\tlabel\ncaf\xe9\t1\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        list(read(tmp_path / "latin.tsv", TASKS["SST-2"]))


def test_blank_lines_are_rows_but_at_the_end(tmp_path):
    assert len(list(read(rte(tmp_path, GOOD, GOOD, "", "\r"), TASKS["RTE"]))) == 2
    with pytest.raises(ValueError, match=r"line 3: 1 columns"):
        list(read(rte(tmp_path, GOOD, "", GOOD, ""), TASKS["RTE"]))


def test_scores_beyond_their_range_are_refused(tmp_path):
    write_task(tmp_path, "STS-B", rows=2)
    path = tmp_path / "STS-B" / "train.tsv"
    path.write_text(path.read_text().rsplit("\t", 1)[0] + "\t5.001\n")
    with pytest.raises(ValueError, match=r"line 3: .*'5\.001'"):
        list(read(path, TASKS["STS-B"]))


def test_unicode_line_ends_and_quotes_are_text(tmp_path):
    path = rte(tmp_path, '0\t"A\u2028 red box.\tA \x85box\x0b.\tentailment\r')
    assert next(read(path, TASKS["RTE"])).texts == ('"A\u2028 red box.', "A \x85box\x0b.")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=3), st.integers(3, 60))
def test_the_longest_are_shortened(lengths, room):
    left = shortened(lengths, room)
    assert sum(left) == min(sum(lengths), sum(left))
    assert sum(left) <= room
    assert all(0 <= kept <= length for kept, length in zip(left, lengths, strict=True))
    assert sum(left) == min(sum(lengths), room)
    cut = [kept for kept, length in zip(left, lengths, strict=True) if kept < length]
    assert all(kept >= max(left) - 1 for kept in cut)  # only the longest are cut


@pytest.mark.parametrize("name", ["SST-2", "RTE", "STS-B"])
@pytest.mark.parametrize("max_length", [12, 512])
def test_training_reads_what_scoring_reads(name, max_length, data_bin, tmp_path):
    """The task's data set has the very sequences and targets that the scorer makes of the same file."""
    write_task(tmp_path, name, rows=20)
    task, path = TASKS[name], tmp_path / name / "train.tsv"
    vocabulary = Vocabulary(data_bin)
    claim(tmp_path / "out", "glue")
    assert write_split(task, read(path, task), tmp_path / "out", "train", vocabulary, max_length) == 20
    flags = ["--task", "sentence_prediction_by_length", "--num-classes", str(len(task.labels) or 1), "--init-token", "0"]
    flags += ["--separator-token", "2", "--batch-size", "4", "--criterion", "sentence_prediction"]
    flags += ["--regression-target"] if task.regression else []
    cfg = parse(["--arch", "roberta_tisa_tiny", str(tmp_path / "out"), *flags])
    loaded = tasks.setup_task(cfg.task)
    dataset = loaded.load_dataset("train")
    examples = list(read(path, task))
    expected = [vocabulary.join(*encode(vocabulary, example.texts, max_length)) for example in examples]
    assert max(map(len, expected)) <= max_length
    for i, (sequence, example) in enumerate(zip(expected, examples, strict=True)):
        item = dataset.collater([dataset[i]])
        assert item["net_input"]["src_tokens"][0].tolist() == sequence.tolist()
        assert item["target"].flatten().tolist() == pytest.approx([example.target])
    ordered = [len(expected[i]) // 8 for i in dataset.ordered_indices()]
    assert ordered == sorted(ordered)


def test_metrics():
    predictions, targets = np.array([1, 1, 0, 1]), np.array([1, 0, 0, 1])
    assert score(TASKS["MRPC"], targets, predictions) == {"f1": pytest.approx(80.0), "accuracy": 75.0}
    assert score(TASKS["CoLA"], targets, predictions) == {"matthews": pytest.approx(57.735, abs=1e-3)}
    assert score(TASKS["CoLA"], targets, np.ones(4, int)) == {"matthews": 0.0}
    scores = np.array([0.1, 0.5, 0.4, 0.9])
    assert score(TASKS["STS-B"], scores, scores * 2 + 1) == {"pearson": pytest.approx(100), "spearman": pytest.approx(100)}
    for constant in (scores, np.ones(4)), (scores[:1], scores[:1]):
        assert score(TASKS["STS-B"], *constant) == {"pearson": 0.0, "spearman": 0.0}
