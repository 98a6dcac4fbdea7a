"""``fairseq-posenc compare``: equal conditions, two parts of a grid, resumption, failures and bad files."""

import json
import math
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import fork_server
import pytest
import readme
import torch
import yaml
from cases import thorough_but
from commands import status_of
from fairseq.data import data_utils
from signals import SIGNALS, cause, ended, running
from torch.nn.functional import cross_entropy

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.checkpoint_file import load
from fairseq_posenc.study.compare import report
from fairseq_posenc.study.compare.cells import RANDOM, Runs
from fairseq_posenc.study.compare.plan import read_plan
from fairseq_posenc.study.engine import grid
from fairseq_posenc.text.data import databin

SCRIPTS = Path(sys.executable).parent
SIZES = "--encoder-layers 1 --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2 --num-workers 0"
PLAN = {
    "schemes": {"none": None, "tisa": None},
    "budget": {"updates": 8},
    "learning_rates": [1e-3, 1e-2],
    "seeds": 2,
    "reference": "none",
    "tokens_per_sample": 16,
    "batch_size": 8,
    "valid_tokens": 1024,
    "train": SIZES,
}


LANGUAGE_MODELS = {
    **PLAN,
    "arch": "transformer_lm_posenc_tiny",
    "schemes": ["none", "absolute", "rope"],
    "reference": "rope",
    "learning_rates": [1e-2],
    "train": f"{SIZES.replace('encoder', 'decoder')} --share-decoder-input-output-embed",
}


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Runs the commands of cells in processes that are forked for them; the commands that were run, by folder."""
    commands = {}

    def execute(command, log, variables, *_):
        assert list(command[:2]) == ["env", "OMP_NUM_THREADS=1"]
        environment = dict(variables or grid.os.environ)
        done = fork_server.run(list(command[4:]), environment=environment, timeout=100)
        commands[log.parent] = command
        log.write_text(done.stdout)
        return done.returncode, done.stdout

    monkeypatch.setattr(grid, "execute", execute)
    return commands


@pytest.fixture
def table_of(capsys):
    """Runs a command, and returns what it prints."""

    def run(*command):
        capsys.readouterr()
        assert status_of(*command) == 0
        return capsys.readouterr().out

    return run


def write(folder, **changes):
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({**PLAN, **changes}))
    return path


def results(out):
    found = {}
    for path in sorted(out.glob("runs/*/*/result.json")):
        result = json.loads(path.read_text())
        found[result["scheme"], result["lr"], result["seed"]] = result
    return found


@pytest.mark.slow
def test_a_grid_in_two_parts_and_its_extension(world, tmp_path, forked, monkeypatch, table_of):
    plan, out = write(tmp_path, schemes=["tisa"], reference="tisa", learning_rates=[1e-2]), tmp_path / "out"
    command = ["compare", plan, "--data", world.prepared, "--out", out]
    execute = grid.execute

    def interrupted(*arguments):
        if forked:
            raise KeyboardInterrupt
        return execute(*arguments)

    monkeypatch.setattr(grid, "execute", interrupted)
    assert status_of(*command) == 130
    monkeypatch.setattr(grid, "execute", execute)
    assert [run["status"] for run in results(out).values()] == ["finished", "begun"]
    table_of(*command)
    assert set(results(out)) == {("tisa", 1e-2, 1), ("tisa", 1e-2, 2)}
    assert len(forked) == 2
    run = results(out)["tisa", 1e-2, 1]
    assert run["loss"] != run["selection"]
    assert run["loss"] < run["unigram"] + 2
    assert [point["updates"] for point in run["curve"]] == [*range(1, 9)]
    assert set(run["by_length"]) == {"32", "64"}
    assert len(run["r_squared"]) == 1
    (out / "added.json").write_text("{}")  # of 0.1.0
    assert status_of(*command) == 2
    (out / "added.json").unlink()
    write(tmp_path, schemes=["tisa", "alibi"], reference="tisa", learning_rates=[1e-2])
    table = table_of(*command)
    assert "alibi" in table
    assert len(forked) == 4  # of tisa none was run again
    assert table_of(*command) == table
    assert len(forked) == 4


@pytest.mark.parametrize(
    ("number", "jobs"),
    [
        pytest.param(number, jobs, marks=() if (number, jobs) == (signal.SIGTERM, 2) else pytest.mark.slow)
        for number in SIGNALS
        for jobs in (1, 2)
    ],
)
def test_a_signal_ends_the_cells_and_the_same_command_runs_them(number, jobs, world, tmp_path, table_of):
    rates, out = [1e-2, 1e-3][:jobs], tmp_path / "out"
    plan = write(tmp_path, schemes=["tisa"], reference="tisa", learning_rates=rates, seeds=1, budget={"updates": 4})
    command = ["compare", plan, "--data", world.prepared, "--out", out]
    with running(SCRIPTS / "fairseq-posenc", *command, "--jobs", jobs, log=tmp_path / "log") as compare:
        compare.wait_for(lambda: len(compare.session()) > jobs)
        os.kill(compare.pid, number)
        ended(compare, number, f"fairseq-posenc compare: {cause(number)}. What is complete is in {out}; the same command")
    assert [run["status"] for run in results(out).values()] == ["begun"] * jobs
    table_of(*command)
    assert [run["status"] for run in results(out).values()] == ["finished"] * jobs


def test_a_dry_run_of_tables_without_runs_has_no_page(world, tmp_path, forked, table_of):
    plan = write(tmp_path, schemes=["none"], learning_rates=[1e-3], seeds=1, lengths=[16, 32])
    assert table_of("compare", plan, "--data", world.prepared, "--out", tmp_path / "out", "--dry-run").count("1 of 1 runs") == 2
    assert not [*tmp_path.glob("out/report.html")]


@pytest.mark.thorough
def test_the_command_of_a_cell_gives_its_loss(world, tmp_path, forked, table_of):
    plan, out = write(tmp_path, schemes=["none"], learning_rates=[1e-3], seeds=1), tmp_path / "out"
    command = ["compare", plan, "--data", world.prepared, "--out", out]
    shown, number = table_of(*command, "--dry-run").splitlines()
    assert number.startswith("1 of 1 runs are left: their time is not known")
    assert not forked
    table = table_of(*command, "--keep-checkpoints")
    assert (out / "runs/none/lr-0.001_seed-1/checkpoint_last.pt").is_file()
    again, _, number = table_of(*command, "--dry-run").rpartition("0 of 1 runs are left: about 0.0 hours with --jobs 1, at ")
    assert (again, number.split(", ")[1]) == (table, "the median of 1 that finished.\n")
    run = results(out)["none", 1e-3, 1]
    assert shown == run["command"]
    assert run["permuted"] == pytest.approx(run["loss"], abs=1e-5)  # a model without positions knows no order
    assert [point["permuted"] for point in run["curve"]] == pytest.approx([point["loss"] for point in run["curve"]], abs=2e-3)
    variable, *program, arguments = (*(words := shlex.split(shown))[:4], words[4:])
    assert (variable, program) == ("OMP_NUM_THREADS=1", ["python", "-m", "fairseq_cli.train"])
    arguments[arguments.index("--save-dir") + 1] = str(tmp_path / "again")
    environment = {**grid.os.environ, "OMP_NUM_THREADS": "1"}
    log = fork_server.run(["-m", "fairseq_cli.train", *arguments], environment=environment, timeout=100).stdout
    assert f'"valid_loss": "{run["curve"][-1]["loss"]:g}"' in log


@pytest.mark.slow
def test_a_run_that_was_killed_continues_inside(world, tmp_path, monkeypatch):
    """Saved after each update here; with the numbers of one that was not killed, and without its first updates again."""
    plan = write(tmp_path, schemes=["tisa"], reference="tisa", learning_rates=[1e-2], seeds=1, budget={"updates": 100})
    outs, logs, kill = [tmp_path / "whole", tmp_path / "killed"], [], False

    def execute(command, log, *_):
        assert command[2] == "FAIRSEQ_POSENC_SAVE_SECONDS=300"
        environment = {**grid.os.environ, "OMP_NUM_THREADS": "1", "FAIRSEQ_POSENC_SAVE_SECONDS": "0"}
        logs.append(log)
        with log.open("ab") as stream:
            process = fork_server.start(list(command[4:]), stream, environment=environment)
            while kill and '"num_updates": "40"' not in log.read_text("utf-8", "replace"):
                time.sleep(0.01)
            if kill:
                process.kill()
                raise KeyboardInterrupt
            return process.wait(100), log.read_text("utf-8", "replace")

    monkeypatch.setattr(grid, "execute", execute)
    assert status_of("compare", plan, "--data", world.prepared, "--out", outs[0]) == 0
    kill = True
    assert status_of("compare", plan, "--data", world.prepared, "--out", outs[1]) == 130
    kill, length = False, logs[-1].stat().st_size
    assert status_of("compare", plan, "--data", world.prepared, "--out", outs[1]) == 0
    (whole,), (resumed,) = (results(out).values() for out in outs)
    assert [resumed[name] for name in ("loss", "permuted", "curve")] == [whole[name] for name in ("loss", "permuted", "curve")]
    after = logs[-1].read_bytes()[length:].decode("utf-8", "replace")
    assert next(count for count in range(2, 101, 2) if f'"num_updates": "{count}"' in after) >= 40


@pytest.mark.slow
def test_a_larger_budget_continues_from_a_smaller_one(world, tmp_path, forked):
    """From before the learning rate fell, with the numbers of a run from scratch, and the validations of both."""
    fields = {"schemes": ["tisa"], "reference": "tisa", "learning_rates": [1e-2], "seeds": 1, "warmup": 2, "decay": 0.25}
    alone, out = tmp_path / "alone", tmp_path / "out"
    for budgets, folder, flags in (([16], alone, []), ([16, 8], out, ["--keep-checkpoints"]), ([24, 16], out, [])):
        plan = write(tmp_path, **fields, budgets=budgets)
        assert status_of("compare", plan, "--data", world.prepared, "--out", folder, *flags) == 0
    commands = {folder.parts[-4]: command for folder, command in forked.items() if folder.is_relative_to(out)}
    assert "--continue-once" not in commands["u8"]
    for budget, smaller, at in (("u16", "u8", 6), ("u24", "u16", 12)):
        before = out / smaller / "runs/tisa/lr-0.01_seed-1" / f"checkpoint_1_{at}.pt"
        assert commands[budget][commands[budget].index("--continue-once") + 1] == str(before)
        assert f"(epoch 1 @ {at} updates)" in (out / budget / "runs/tisa/lr-0.01_seed-1" / grid.LOG).read_text()
    runs = [results(folder)["tisa", 1e-2, 1] for folder in (alone / "u16", out / "u16", out / "u8", out / "u24")]
    whole, continued, shorter, longer = runs
    assert [continued[name] for name in ("loss", "permuted")] == [whole[name] for name in ("loss", "permuted")]
    assert all(whole["curve"][point["updates"] - 1] == point for point in continued["curve"])
    assert [point["updates"] for point in continued["curve"]] == [*range(1, 17)]
    assert whole["curve"][:6] == shorter["curve"][:6]
    assert whole["curve"][7] != shorter["curve"][7]
    assert [point["updates"] for point in longer["curve"]] == [*range(1, 25)]
    assert not [*out.glob("u24/runs/*/*/*.pt")]  # whose models were not to be kept, but those of the others
    assert len([*out.glob("*/runs/*/*/checkpoint_*_*.pt")]) == len([*out.glob("*/runs/*/*/checkpoint_last.pt")]) == 2


@pytest.mark.slow
def test_the_validations_of_a_continued_run_that_was_killed(world, tmp_path, monkeypatch):
    """Where another budget has been added meanwhile; without the runs before it, it has to begin again."""
    fields = {"schemes": ["tisa"], "reference": "tisa", "learning_rates": [1e-2], "seeds": 1, "warmup": 2, "decay": 0.25}
    out, name, kill = tmp_path / "out", "runs/tisa/lr-0.01_seed-1", False

    def execute(command, log, *_):
        done = fork_server.run(list(command[4:]), environment={**grid.os.environ, "OMP_NUM_THREADS": "1"}, timeout=100)
        with log.open("a") as stream:
            stream.write(done.stdout)
        if kill and "u16" in str(log):
            raise KeyboardInterrupt
        return done.returncode, done.stdout

    monkeypatch.setattr(grid, "execute", execute)
    command = ["compare", tmp_path / "plan.yaml", "--data", world.prepared, "--out", out]
    write(tmp_path, **fields, budgets=[8, 16])
    kill = True
    assert status_of(*command) == 130
    kill = False
    before = {path: path.read_bytes() for path in out.glob("*/runs/*/*/*")}
    assert status_of(*command, "--dry-run") == 0
    assert {path: path.read_bytes() for path in out.glob("*/runs/*/*/*")} == before
    assert (out / "u8" / name / "checkpoint_1_6.pt") in before
    write(tmp_path, **fields, budgets=[16])
    assert status_of(*command) == 2
    write(tmp_path, **fields, budgets=[8, 12, 16])
    assert status_of(*command) == 0
    curve = json.loads((out / "u16" / name / "result.json").read_text())["curve"]
    assert [point["updates"] for point in curve] == [*range(1, 17)]
    assert not [*out.glob("*/runs/*/*/*.pt")]


@pytest.mark.slow
def test_an_enhanced_mask_decoder_has_no_loss_beyond_its_table(world, tmp_path, forked):
    plan = write(
        tmp_path, schemes={"tisa": {"options": {"mask_decoder_steps": 2}}}, reference="tisa", learning_rates=[1e-2], seeds=1
    )
    assert status_of("compare", plan, "--data", world.prepared, "--out", tmp_path / "out") == 0
    (run,) = results(tmp_path / "out").values()
    assert run["by_length"] == {}


@pytest.mark.parametrize(("scheme", "others"), [("untied", {}), ("shaw", LANGUAGE_MODELS)])
def test_initial_values_are_scaled_for_a_row(scheme, others, world, tmp_path):
    """Those of the positions alone, but for layer norms; with a learning rate of almost nothing, they stay so."""
    rows = {scheme: None, "small": {"positions": scheme, "initial_scale": 0.1}}
    plan = read_plan(write(tmp_path, **{**others, "schemes": rows, "reference": scheme, "budget": {"updates": 1}}))
    runs, states = Runs(plan, world.prepared, {}), {}
    for name in rows:
        cell = runs.cell(name, 1e-12, 1, tmp_path)
        environment = {**grid.os.environ, "OMP_NUM_THREADS": "1"}
        done = fork_server.run(list(cell.command[4:]), environment=environment, timeout=100)
        assert done.returncode == 0, done.stdout
        states[name] = load(cell.folder(tmp_path) / "checkpoint_last.pt")["model"]
    for name, value in states[scheme].items():
        scale = 0.1 if ".positions." in name and "layer_norm" not in name else 1
        torch.testing.assert_close(states["small"][name], scale * value, rtol=1e-5, atol=1e-9)
    cells = [runs.cell(name, 1e-3, 1, tmp_path) for name in rows]
    assert runs.shown(cells[1]).startswith("OMP_NUM_THREADS=1 python -m fairseq_posenc.study.compare.training 0.1 0 ")
    assert [cell.configuration.get("initial_scale") for cell in cells] == [None, 0.1]


@pytest.mark.parametrize(("fields", "interval"), [({}, "240"), ({"validations": 120}, "50")])
def test_validations_are_as_many_as_the_plan_says(fields, interval, world, tmp_path):
    plan = read_plan(write(tmp_path, **{"budget": {"updates": 6000}, **fields}))
    cell = Runs(plan, world.prepared, {}).cell("none", 1e-3, 1, tmp_path)
    assert cell.command[cell.command.index("--validate-interval-updates") + 1] == interval
    assert cell.configuration.get("validations") == fields.get("validations")  # runs of two numbers are not mixed


def test_language_models(world, tmp_path, forked, monkeypatch, table_of):
    """Read from left to right: with the losses of their checkpoints, on longer sequences, too, and without those of masks."""
    data, execute = tmp_path / "order.jsonl", grid.execute
    data.write_text('{"sentence_good": "w1 w2 w4", "sentence_bad": "w2 w1 w4"}\n')

    def scored(command, log, *arguments):
        in_this_process = command[3] == "pairs"
        return (status_of(*command[3:]), "") if in_this_process else execute(command, log, *arguments)

    monkeypatch.setattr(grid, "execute", scored)
    monkeypatch.setattr(report, "TOLERATED", -1.0)  # any accuracy of an encoder without positions would be wrong
    plan, out = write(tmp_path, **LANGUAGE_MODELS, benchmarks={"pairs": f"--data {data}"}), tmp_path / "out"
    shown = table_of("compare", plan, "--data", world.prepared, "--out", out, "--keep-checkpoints")
    assert "wrong" not in shown
    assert "| absolute | " in re.sub(" +", " ", (out / "results.md").read_text().partition("## Longer sequences")[2])
    runs = results(out)
    assert len(forked) == len(runs) == 6
    assert {scheme: {*run["by_length"]} for (scheme, _, _), run in runs.items()} == {
        "none": {"32", "64", "128"},
        "rope": {"32", "64", "128"},
        "absolute": set(),
    }
    run, folder = runs["rope", 1e-2, 1], out / "runs" / "rope" / "lr-0.01_seed-1"
    assert run["r_squared"] == {}
    assert all(point["permuted"] != point["loss"] for point in run["curve"])
    assert run["permuted"] != run["loss"]
    checkpoint = Checkpoint(folder / "checkpoint_last.pt", world.prepared, may_be_causal=True)
    lines = data_utils.load_indexed_dataset(str(world.prepared / "valid"), checkpoint.vocabulary.dictionary)
    tokens = torch.cat([lines[number] for number in range(len(lines))]).long()[:1024]
    middle = len(tokens) // 2 // 16 * 16
    for length, loss in (("16", run["loss"]), *run["by_length"].items()):
        parts = [part.split(int(length)) for part in (tokens[middle - 1 : -1], tokens[middle:])]
        with torch.no_grad():
            scores = torch.cat([checkpoint.model(inputs[None])[0] for inputs in parts[0]])
        expected = cross_entropy(scores, torch.cat(parts[1])).item() / math.log(2)
        assert loss == pytest.approx(expected, abs=1e-5)
    whole = (run["selection"] * middle + run["loss"] * (len(tokens) - middle)) / len(tokens)
    assert run["curve"][-1]["loss"] == pytest.approx(whole, abs=1e-3)  # that of fairseq's validation
    assert status_of("extrapolate", folder, "--lengths", "16,32", "--tokens", 1024, "--out", tmp_path / "longer") == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"train": "--mask-prob 0.3"}, "schemes.none: .*--mask-prob"),
        ({"train": "--task masked_lm"}, "train: the plan has other fields for --task"),
        ({"benchmarks": {"glue": "--data ."}}, "benchmarks.glue: fine-tunes encoders"),
        (
            {"schemes": ["rope", "sentence_absolute"]},
            "schemes.sentence_absolute: --positions sentence_absolute cannot be a decoder's",
        ),
        (
            {"schemes": {"rope": None, "a": {"arch": "transformer_lm_tupe_a_tiny"}}},
            "no --arch transformer_lm_tupe_a_tiny: its scheme has no causal form",
        ),
        ({"schemes": {"rope": None, "a": {"arch": "roberta_rope_tiny"}}}, "schemes.a: its task is not that of rope"),
        ({"arch": "transformer_posenc_tiny"}, "arch: models of the task translation are not compared"),
    ],
)
def test_what_means_nothing_to_language_models_is_named_before_anything_runs(changes, named, world, tmp_path, forked, capsys):
    plan = write(tmp_path, **LANGUAGE_MODELS | changes)
    assert status_of("compare", plan, "--data", world.prepared, "--out", tmp_path / "out") == 2
    assert re.search(named, capsys.readouterr().err)
    assert not forked


@pytest.mark.thorough
def test_models_are_fine_tuned(world, tmp_path, forked, monkeypatch, table_of):
    """By ``glue``, which is replaced here by one that gives each model a score."""
    flags = "--data . --tasks RTE --seeds 1"
    plan, out = write(tmp_path, schemes=["none"], learning_rates=[1e-3], seeds=1, benchmarks={"glue": flags}), tmp_path / "out"
    execute, fine_tuned = grid.execute, []

    def fake(command, log, *arguments):
        if command[3] != "glue":
            return execute(command, log, *arguments)
        values = dict(zip(command[-6::2], command[-5::2], strict=True))
        assert Path(values["--checkpoint"]).is_file()
        fine_tuned.append("--from-scratch" in command)
        folder = Path(values["--out"])
        folder.mkdir()
        score = {"overall": {"median": 50.0 + 10 * len(fine_tuned)}}
        (folder / "results.json").write_text(json.dumps({"format": 1, "tasks": {"RTE": score}}))
        return 0, ""

    monkeypatch.setattr(grid, "execute", fake)
    command = ["compare", plan, "--data", world.prepared, "--out", out]
    table_of(*command)
    assert fine_tuned == [False, True]
    report = json.loads((out / "results.json").read_text())
    assert [(run["scheme"], run["scores"]["RTE"]) for run in report["benchmarks"]] == [("none", 60.0), (RANDOM, 70.0)]
    assert "RTE" in (out / "results.md").read_text()
    for checkpoint in out.rglob("*.pt"):
        checkpoint.unlink()
    table_of(*command)
    assert len(forked) == 1
    assert len(fine_tuned) == 2


def test_models_score_minimal_pairs(world, tmp_path, forked, monkeypatch):
    data = tmp_path / "order.jsonl"
    texts = ("w1 w2 w4", "w2 w1 w4"), ("w3 w6 w12", "w12 w6 w3")
    data.write_text("".join(f'{{"sentence_good": "{good}", "sentence_bad": "{bad}"}}\n' for good, bad in texts))
    schemes = ["none", "tisa(kernels=3)"]  # a name with a sign that labels of models end with
    plan = write(tmp_path, schemes=schemes, learning_rates=[1e-3], benchmarks={"pairs": f"--data {data} --metric original"})
    execute = grid.execute

    def scored(command, log, *arguments):
        in_this_process = command[3] == "pairs"
        return (status_of(*command[3:]), "") if in_this_process else execute(command, log, *arguments)

    monkeypatch.setattr(grid, "execute", scored)
    command, out = ["compare", plan, "--data", world.prepared, "--out", tmp_path / "out"], tmp_path / "out"
    assert status_of(*command) == 0
    shown = (out / "results.md").read_text()
    rows = {row["scheme"]: row for row in json.loads((out / "results.json").read_text())["schemes"]}
    assert rows["none"]["word order"]["mean"] == 50
    assert rows["tisa(kernels=3)"]["all pairs"]["mean"] is not None
    assert "word order" in shown
    assert "something is wrong" not in shown
    assert status_of(*command) == 0
    assert (out / "results.md").read_text() == shown
    assert len(forked) == 4


def test_runs_that_fail_are_recorded_and_the_others_go_on(world, tmp_path, forked, monkeypatch, table_of):
    execute = grid.execute

    def failing(command, log, *arguments):
        if "tisa" in command and command[command.index("--lr") + 1] == "0.01":
            return 1, "out of memory"
        return execute(command, log, *arguments)

    monkeypatch.setattr(grid, "execute", failing)
    out = tmp_path / "out"
    command = ["compare", write(tmp_path, seeds=3), "--data", world.prepared, "--out", out]
    assert status_of(*command) == 2
    runs = results(out)
    assert (runs["tisa", 1e-2, 1]["status"], runs["tisa", 1e-3, 1]["status"]) == ("failed", "finished")
    assert len(runs) == 2 * 2 * 2 + 2  # with two seeds and rates; the third seed with the chosen rate
    assert {lr for scheme, lr, seed in runs if (scheme, seed) == ("tisa", 3)} == {1e-3}
    assert (out / "results.json").exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schemes": ["none", "tissa"]}, "schemes.tissa"),
        ({"schemes": {"none": None, "a": {"positions": "tisa", "options": {"tisa_kernels": 0}}}}, "schemes.a: --tisa-kernels"),
        ({"reference": "rope"}, "reference: rope"),
        ({"budget": {"updates": 5, "tokens": 5}}, "budget"),
        ({"learning_rate": 3}, "learning_rate:"),
        ({"train": "--no-such-flag"}, "--no-such-flag"),
        ({"benchmarks": {"pairs": "--skip-lon"}}, r"plan.yaml: benchmarks.pairs: .*--skip-lon"),
        ({"benchmarks": {"pairs": "--limit 8"}}, r"plan.yaml: benchmarks.pairs: .*--data"),
        ({"benchmarks": {"glue": "--data missing"}}, "benchmarks.glue: .*missing"),
        ({"valid_tokens": 20}, "valid_tokens"),
        ({"train": "--sample-break-mode complete"}, "--sample-break-mode complete"),
        ({"train": "--update-freq=8"}, "train: .*--update-freq"),
        ({"train": "--fp16 --bf16"}, "schemes.none: .*--bf16"),
        ({"train": "--mask-prob-end 0.1"}, "schemes.none: --mask-prob-end 0.1"),  # without --mask-prob-updates
        ({"schemes": {"none": None, "a": {"options": {"lr": 1.0}}}}, "schemes.a.options: --lr"),
        ({"schemes": {"none": None, "a": {"positions": "tisa", "options": {"dropout": 0.1}}}}, "schemes.a.options: --dropout"),
        ({"schemes": {"none": None, "a": {"positions": "tisa", "options": {"mask_prob": 0.3}}}}, "schemes.a: options.mask_prob"),
        ({"schemes": {"none": None, "../a": {"positions": "tisa"}}}, "schemes.../a: "),
    ],
)
def test_a_bad_plan_is_named_before_anything_runs(changes, named, world, tmp_path, forked, capsys):
    command = ["compare", write(tmp_path, **changes), "--data", world.prepared, "--out", tmp_path / "out"]
    assert status_of(*command) == 2
    assert re.search(named, capsys.readouterr().err)
    assert not forked


@pytest.mark.parametrize(
    "name",
    thorough_but(
        ["short"],
        [
            "english",
            "length",
            "variants",
            "starts",
            "finetune",
            "short",
            "gpu",
            "language_model",
            "ladder_budget",
            "ladder_cause",
            "ladder_length",
            "ladder_size",
        ],
        ["english"],
    ),
)
def test_the_examples_are_plans_that_fairseq_train_takes(name, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("glue_data", "squad"):  # which the plans name
        Path(folder).mkdir()
    monkeypatch.setattr(databin, "read", lambda *_: (range(10**6), None))  # enough text for samples of any length
    *_, last = read_plan(readme.ROOT / "examples" / "compare" / f"{name}.yaml").tables().values()
    Runs(last, world.prepared, {}).check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 3}, "seed: there is no such field: did you mean seeds?"),
        ({"batch_size": 0}, "batch_size: must be at least 1"),
        ({"seeds": 2.5}, "seeds: must be a whole number"),
        ({"budget": {"update": 3}}, "budget.update: there is no such field: did you mean updates?"),
        ({"schemes": {"none": {"position": "tisa"}}}, "schemes.none.position: there is no such field: did you mean positions"),
        ({"schemes": {"none": {"options": {"a": [1]}}}}, "schemes.none.options.a: must be a string, a number, true or false"),
        ({"learning_rates": []}, "learning_rates: must not be empty"),
        ({"learning_rates": ["a"]}, "learning_rates.0: must be a number, and finite"),
        ({"learning_rates": [True]}, "learning_rates: is no place for true or false"),
        ({"seeds": True}, "seeds: is no place for true or false"),
        ({"schemes": ["none", "tisa", "none"]}, "schemes: a name occurs twice"),
        ({"sizes": {"a": {"layers": 2, "dim": 8}}}, "sizes.a.heads: is missing"),
        ({"lengths": [16, 32], "benchmarks": {"glue": "'"}}, "No closing quotation"),
        ({"train": "--max-epoch 1"}, "train: the plan has other fields for --max-epoch"),
        ({"reference": None}, "reference: must be a string"),
    ],
)
def test_fields_of_a_plan_in_words_of_this_package(tmp_path, changes, message):
    with pytest.raises(InputError) as refused:
        read_plan(write(tmp_path, **changes))
    assert str(refused.value).startswith(f"{tmp_path / 'plan.yaml'}: {message}")
    assert str(refused.value).count(";") == 0


def test_a_scheme_is_named_as_in_every_command(tmp_path):
    plan = read_plan(write(tmp_path, schemes=["none", "roberta_tupe_r", "bert_r", "t5+alibi"], reference="none"))
    expressions = [plan.flags(name)[3] for name in plan.schemes]
    assert expressions == ["none", "untied+t5+reset", "absolute+t5", "t5+alibi"]
