"""Synthetic tasks: what their targets are, that runs are comparable and resumable, and that they separate schemes."""

import json
import shutil

import pytest
import torch
from commands import status_of

pytest.importorskip("matplotlib", reason="needs pip install -e '.[plots]'")

from dataclasses import replace

from fairseq_posenc.core.families import expressions
from fairseq_posenc.study.word_order import runs as order_runs
from fairseq_posenc.study.word_order.report import HEAT_MAP, recorded, summarise, updates_needed
from fairseq_posenc.study.word_order.runs import FACTOR, build, learn
from fairseq_posenc.study.word_order.settings import PAPERS, Setting
from fairseq_posenc.study.word_order.tasks import BLANK, FIRST, IGNORED, START, TASKS

TINY = ("--updates", 4, "--lengths", 3, "--batch-size", 2)


def flip_flops(x):
    memory, reads = None, []
    for i in range(0, len(x), 2):
        if x[i] == 2:
            memory = x[i + 1]
        reads += [-1, memory if x[i] == 3 else -1]
        assert (x[i + 1] == 5) == (x[i] == 3)
    assert x[0] == 2
    assert x[-2] == 3
    return reads


def indexed(x):
    symbols = [s for s in x if s < 20]
    return [-1] * len(symbols) + [symbols[s - 20] for s in x[len(symbols) :]]


EXPECTED = {
    "offset_2": lambda x: [-1, -1, *x[:-2]],
    "offset_5": lambda x: [-1] * 5 + x[:-5],
    "copy": list,
    "reverse": lambda x: x[::-1],
    "indirect_indexing": indexed,
    "flip_flop": flip_flops,
    "order": lambda x: [-1, -1, *x[:-2]],
}


def test_every_task_is_read_again_here():
    assert EXPECTED.keys() == TASKS.keys()


@pytest.mark.parametrize("name", TASKS)
def test_targets_are_those_of_the_definition_and_lengths_fit(name):
    task, generator = TASKS[name], torch.Generator().manual_seed(5)
    for length in {task.shortest, task.shortest + 1, task.shortest + 2, 23, 40}:
        tokens, targets = task.batch(generator, 40, length)
        assert tokens.shape == targets.shape
        assert (tokens[:, 0] == START).all()
        assert (targets[:, 0] == IGNORED).all()
        for row, wanted in zip(tokens[:, 1:].tolist(), targets[:, 1:].tolist(), strict=True):
            asked = [target - FIRST for target in wanted if target != IGNORED]
            if task.in_place:
                symbols = [token - FIRST for token in row]
                expected = EXPECTED[name](symbols)
                assert [-1 if target == IGNORED else target - FIRST for target in wanted] == expected
                continue
            end = row.index(BLANK)
            expected = EXPECTED[name]([token - FIRST for token in row[:end]])
            assert all(target == IGNORED for target in wanted[:end])
            assert row[end:] == [BLANK] * len(expected)
            assert asked == expected


def test_batches_and_shared_weights_depend_on_the_seed_alone(monkeypatch):
    seen = []
    batch = order_runs.Task.batch
    monkeypatch.setattr(order_runs.Task, "batch", lambda *args: seen.append(batch(*args)) or seen[-1])
    for positions in ("rope", "m4+reset"):
        learn("copy", positions, Setting(updates=3, lengths=3, batch_size=2), 1, lambda *_: None)
    tokens = [tokens for tokens, _ in seen]
    half = len(tokens) // 2
    assert half > 3
    assert all(torch.equal(a, b) for a, b in zip(tokens[:half], tokens[half:], strict=True))
    reference = build("copy", "none", Setting(), 1).state_dict()
    for positions in expressions().values():
        state = build("copy", positions, Setting(lengths=4), 1).state_dict()
        assert reference.keys() <= state.keys()
        assert all(torch.equal(value, state[key]) for key, value in reference.items()), positions
    other = build("copy", "none", Setting(), 2).state_dict()
    assert not torch.equal(other["scores.weight"], reference["scores.weight"])


def test_every_scheme_reads_the_longest_test():
    setting = Setting(lengths=4)
    for positions in expressions().values():
        model = build("copy", positions, setting, 1)
        tokens, _ = TASKS["copy"].batch(torch.Generator(), 2, FACTOR * 4)
        assert model(tokens).isfinite().all()


def test_no_index_names_a_position_that_does_not_occur_in_training(monkeypatch):
    seen = []
    monkeypatch.setattr(order_runs, "accuracy", lambda _, batches: seen.append(batches) or 1.0)
    learn("indirect_indexing", "none", Setting(updates=1, lengths=5, batch_size=2), 1, lambda *_: None)
    for batches, lengths in zip(seen, ((1, 5), (6, 20)), strict=True):
        assert (batches[0][0].shape[1], batches[-1][0].shape[1]) == tuple(1 + length + 8 for length in lengths)
        assert max(tokens[:, -8:].max().item() for tokens, _ in batches) == FIRST + 20 + 4


def test_tests_beyond_are_longer_than_all_of_training(monkeypatch):
    seen = []
    monkeypatch.setattr(order_runs, "accuracy", lambda _, batches: seen.append(batches) or 1.0)
    for name, lengths in (("flip_flop", 9), *((name, 10) for name in TASKS)):
        setting = replace(PAPERS.get(name, Setting(lengths=lengths)), updates=1, batch_size=1, layers=1)
        learn(name, "none", setting, 1, lambda *_: None)
        within, beyond = ([tokens.shape[1] for tokens, _ in batches] for batches in seen[-2:])
        assert max(within) < min(beyond), name
        if lengths == 10:
            longest = max(setting.shortest, TASKS[name].shortest) + setting.lengths - 1
            expected = [TASKS[name].batch(torch.Generator(), 1, length)[0].shape[1] for length in (longest + 1, 4 * longest)]
            assert [beyond[0], beyond[-1]] == expected, name


def test_order_is_learned_with_positions_and_not_without():
    setting = Setting(updates=200, lengths=4, learning_rate=3e-3)
    runs = {name: learn("offset_2", name, setting, 1, lambda *_: None) for name in ("none", "untied")}
    assert runs["untied"]["learned"]
    assert runs["untied"]["updates"] < 200
    assert runs["untied"]["within"] >= 0.99
    assert not runs["none"]["learned"]
    assert runs["none"]["within"] < 0.7  # the chance to hit one of the other 1 to 4 tokens is 0.52
    assert (runs["none"]["updates"], len(runs["none"]["curve"])) == (200, 40)


def rows_of(out):
    return json.loads((out / "results.json").read_text())["schemes"]


def test_a_grid_that_was_interrupted_gives_the_same_results(tmp_path, monkeypatch, capsys):
    command = ("tasks", "--tasks", "copy,reverse", "--schemes", "none,absolute+t5,sentence_absolute", "--seeds", 2, *TINY)
    assert status_of(*command, "--out", tmp_path / "whole") == 0
    whole = recorded(tmp_path / "whole")
    shown = capsys.readouterr().out
    rows = rows_of(tmp_path / "whole")
    assert (tmp_path / "whole" / f"{HEAT_MAP}.png").stat().st_size > 1000
    assert all(f"| {row['scheme']}" in shown for row in rows)
    assert (tmp_path / "whole" / "results.md").read_text().startswith(shown.rstrip())

    count, original = [], order_runs.learn

    def interrupted(*args):
        count.append(args)
        if len(count) == 4:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(order_runs, "learn", interrupted)
    assert status_of(*command, "--out", tmp_path / "part") == 130
    results = [json.loads(path.read_text()) for path in tmp_path.glob("part/runs/*/*/*/result.json")]
    assert [result["status"] for result in results].count("finished") == 3
    shutil.copytree(tmp_path / "part", tmp_path / "continued")
    fresh = tmp_path / "fresh"  # what a repository keeps of it
    fresh.mkdir()
    lines = (tmp_path / "whole" / "runs.jsonl").read_text().splitlines(keepends=True)
    (fresh / "runs.jsonl").write_text("".join(lines[:3]))
    (fresh / "fairseq_posenc.json").write_text(json.dumps({"made_by": "tasks"}))

    def without_times(runs):
        return [{key: value for key, value in run.items() if key != "seconds"} for run in runs]

    for out, jobs in ((fresh, 2), (tmp_path / "continued", 1)):
        count[:] = [()] * 10
        assert status_of(*command, "--out", out, "--jobs", jobs) == 0
        assert len(count) == 10 + len(whole) - 3

        assert without_times(recorded(out)) == without_times(whole)
        assert (out / "results.json").read_text() == (tmp_path / "whole" / "results.json").read_text()


def test_a_run_that_diverges_is_recorded_and_the_rest_continues(tmp_path):
    options = ("--tasks", "copy", "--schemes", "none", *TINY, "--learning-rate")
    assert status_of("tasks", "--out", tmp_path, *options, 10) == 0
    (run,) = recorded(tmp_path)
    assert run["status"] == "finished"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_runs.F, "cross_entropy", lambda scores, _: scores.sum() * float("nan"))
        assert status_of("tasks", "--out", tmp_path, *options, 10, "--seeds", 2) == 0
    (row,) = rows_of(tmp_path)
    assert (row["diverged"], row["runs"], row["learned"]) == (1, 2, 0)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--tasks", "copi"), "--tasks copi"),
        (("--schemes", "tisaa"), "--schemes tisaa"),
        (
            ("--tasks", "offset_2,copy", "--schemes", "none,rope@random:80"),
            "rope@random:80: 80 positions are less than the longest test of copy, 81",
        ),
        (("--updates", 0), "--updates"),
        (("--lengths", -1), "--lengths"),
        (("--seeds", "x"), "--seeds"),
    ],
)
def test_bad_flags_are_named(flags, named, tmp_path, capsys):
    assert status_of("tasks", "--out", tmp_path / "out", *flags) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_settings_and_damaged_lines_are_refused(tmp_path, capsys):
    command = ("tasks", "--tasks", "copy", "--schemes", "none", "--out", tmp_path / "out", *TINY[2:])
    assert status_of(*command, "--updates", 4) == 0
    assert status_of(*command, "--updates", 5) == 2
    assert "updates was 4, now 5" in capsys.readouterr().err
    assert status_of(*command, "--updates", 5, "--schemes", "rope") == 2  # which would not be comparable
    assert "updates was 4, now 5" in capsys.readouterr().err
    with (tmp_path / "out" / "runs.jsonl").open("a") as stream:
        stream.write("{}\n")
    assert status_of(*command, "--updates", 4) == 2
    assert "runs.jsonl:2" in capsys.readouterr().err


OUTCOME = {"learned": True, "updates": 300, "within": 0.995, "beyond": 0.5, "every": 25, "curve": [0.1, 0.5, 0.91, 0.995]}


def test_a_task_in_the_papers_setting_is_not_ranked(tmp_path, monkeypatch):
    monkeypatch.setattr(order_runs, "learn", lambda *_: OUTCOME)
    assert status_of("tasks", "--tasks", "order", "--schemes", "none", "--out", tmp_path) == 0
    (row,) = rows_of(tmp_path)
    assert (row["runs"], row["within"], row["tasks"]["order"]["within"]) == (0, None, 0.995)
    (run,) = recorded(tmp_path)
    assert (run["configuration"]["learning_rate"], updates_needed(run)) == (1e-4, 75)


def test_tasks_may_differ_in_their_seeds_and_schemes_are_compared_over_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(order_runs, "learn", lambda *_: OUTCOME)
    command = ("tasks", "--schemes", "none", "--out", tmp_path, "--tasks")
    assert status_of(*command, "copy", "--seeds", 2) == 0
    assert status_of(*command, "reverse") == 0
    assert [(row["ranked_by"], row["runs"]) for row in rows_of(tmp_path)] == [(["copy", "reverse"], 3)]
    runs = [run for run in recorded(tmp_path) if run["task"] == "copy"]
    shifted = [{**run, "scheme": "t5", "seed": run["seed"] + 1} for run in runs]
    assert [row["ranked_by"] for row in summarise([*runs, *shifted])] == [[], []]


def test_a_folder_with_any_expression_is_continued_and_one_with_a_path_is_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(order_runs, "learn", lambda *_: OUTCOME)
    schemes = ("none@random:60", "rope(base=100) | none", "absolute+t5@cape:5:5e-1:1.03", "rope@shift:\t9")
    command = ("tasks", "--tasks", "copy", "--schemes", ",".join(schemes), "--out", tmp_path, *TINY)
    assert [status_of(*command) for _ in range(2)] == [0, 0]
    (line, *_), names = (tmp_path / "runs.jsonl").read_text().splitlines(), [run["scheme"] for run in recorded(tmp_path)]
    assert sorted(names) == sorted("".join(scheme.split()) for scheme in schemes)
    for scheme in ("../none", "..", "a/b", "", "a\\b"):
        (tmp_path / "runs.jsonl").write_text(json.dumps({**json.loads(line), "scheme": scheme}) + "\n")
        assert status_of(*command) == 2
        assert "runs.jsonl:1" in capsys.readouterr().err


def test_schemes_are_ranked_over_the_tasks_that_all_have_run():
    def run(task, scheme, within, learned, seed=1):
        of = {"positions": scheme, "updates": 100}
        key = {"task": task, "scheme": scheme, "seed": seed, "status": "finished", "configuration": of}
        return {**key, "within": within, "beyond": 0.5, "learned": learned, "updates": 50}

    runs = [run("copy", "a", 0.2, False), run("copy", "b", 1.0, True)]
    runs += [run("reverse", "a", 1.0, True), run("order", "a", 1.0, True)]
    first, second = summarise(runs)
    assert (first["scheme"], first["learned"], first["runs"], first["within"], first["updates"]) == ("b", 1, 1, 1.0, 50)
    assert (second["scheme"], second["learned"], second["runs"], second["within"], second["updates"]) == ("a", 0, 1, 0.2, 100)
    assert second["tasks"].keys() == {"copy", "reverse", "order"}
    assert set(PAPERS) == {"order"}


def test_positions_are_drawn_and_then_evenly_spread():
    setting = Setting(updates=30, lengths=4)
    runs = [
        learn("offset_2", name, setting, 1, lambda *_: None) for name in ("absolute", "absolute@random:40", "absolute@random:40")
    ]
    assert runs[1] == runs[2] != runs[0]
    assert build("offset_2", "absolute@random:40", setting, 1).transformer.config.max_positions == 40


def test_positions_that_are_drawn_may_be_negative():
    assert learn("offset_2", "rope@cape:30:0.5:1.03", Setting(updates=5, lengths=4), 1, lambda *_: None)["updates"] == 5
