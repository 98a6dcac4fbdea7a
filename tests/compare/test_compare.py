"""``fairseq-posenc compare``: equal conditions, two parts of a grid, resumption, failures and bad files."""

import json
import re
import shlex
from pathlib import Path

import fork_server
import numpy as np
import pytest
import readme
import yaml
from cases import thorough_but
from commands import status_of
from fairseq.data import data_utils

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.study.compare.cells import RANDOM, Runs
from fairseq_posenc.study.compare.plan import read_plan
from fairseq_posenc.study.compare.results import choose
from fairseq_posenc.study.engine import grid

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


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Runs the commands of cells in processes that are forked for them; the commands that were run, by folder."""
    commands = {}

    def execute(command, log, variables, *_):
        assert list(command[:2]) == ["env", "OMP_NUM_THREADS=1"]
        environment = dict(variables or grid.os.environ)
        done = fork_server.run(list(command[3:]), environment=environment, timeout=100)
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
    items = np.load(out / "runs/tisa/lr-0.01_seed-1/losses.npz")
    assert run["loss"] == pytest.approx(items["sums"].sum() / items["counts"].sum())
    assert run["loss"] < run["unigram"] + 2
    assert [point["updates"] for point in run["curve"]] == [2, 4, 6, 8]
    assert set(run["by_length"]) == {"32", "64"}
    assert len(run["r_squared"]) == 4
    assert not list(out.rglob("*.pt"))
    table = table_of(*command, "--add", "alibi")
    assert "alibi" in table
    assert len(forked) == 4  # of tisa none was run again
    assert table_of(*command) == table
    assert len(forked) == 4


@pytest.mark.parametrize(("multiple", "batch_size"), [(8, 16), (8, 24), (1, 20), (1, 7)])
def test_checkpoints_are_named_after_the_epochs_of_fairseqs_batches(world, tmp_path, multiple, batch_size):
    """Their names end a run's folder, and are removed with it."""
    train = f"{SIZES} --required-batch-size-multiple {multiple}"
    plan = read_plan(write(tmp_path, batch_size=batch_size, train=train, budget={"updates": 400}), [])
    runs = Runs(plan, world.prepared, {})
    text = data_utils.load_indexed_dataset(str(world.prepared / "train"), None)  # whose sizes live no longer than it
    samples = -(-int(text.sizes.sum()) // 15)
    batches = data_utils.batch_by_size(
        np.arange(samples), np.full(samples, 16).take, np.full(samples, 16), None, batch_size, multiple
    )
    assert runs.cell("none", 1e-3, 1, tmp_path).temporary[3:] == [
        f"checkpoint_{-(-updates // len(batches))}_{updates}.pt" for updates in (100, 200, 300, 400)
    ]


def test_the_learning_rate_is_that_of_the_least_loss_on_the_first_half():
    keys = [("a", 1e-3, 1, 5.0), ("a", 1e-2, 1, 4.0), ("a", 1e-2, 2, 6.0), ("b", 1e-3, 1, 3.0), ("b", 1e-2, 1, 4.0)]
    runs = [dict(scheme=scheme, lr=lr, seed=seed, selection=loss, loss=0, status="finished") for scheme, lr, seed, loss in keys]
    runs.append(dict(scheme="c", lr=1e-3, seed=1, status="diverged"))
    assert choose(runs) == {"a": 1e-2, "b": 1e-3, "c": None}


@pytest.mark.thorough
def test_the_command_of_a_cell_gives_its_loss(world, tmp_path, forked, table_of):
    plan, out = write(tmp_path, schemes=["none"], learning_rates=[1e-3], seeds=1), tmp_path / "out"
    command = ["compare", plan, "--data", world.prepared, "--out", out]
    shown = table_of(*command, "--dry-run").strip()
    assert not forked
    table = table_of(*command, "--keep-checkpoints")
    assert (out / "runs/none/lr-0.001_seed-1/checkpoint_last.pt").is_file()
    assert table_of(*command, "--dry-run") == table
    run = results(out)["none", 1e-3, 1]
    assert shown == run["command"]
    assert run["permuted"] == pytest.approx(run["loss"], abs=1e-5)  # a model without positions knows no order
    assert [point["permuted"] for point in run["curve"]] == pytest.approx([point["loss"] for point in run["curve"]], abs=2e-3)
    variable, program, *arguments = shlex.split(shown)
    assert (variable, program) == ("OMP_NUM_THREADS=1", "fairseq-train")
    arguments[arguments.index("--save-dir") + 1] = str(tmp_path / "again")
    environment = {**grid.os.environ, "OMP_NUM_THREADS": "1"}
    log = fork_server.run(["-m", "fairseq_cli.train", *arguments], environment=environment, timeout=100).stdout
    assert f'"valid_loss": "{run["curve"][-1]["loss"]:g}"' in log


@pytest.mark.thorough
def test_models_are_fine_tuned(world, tmp_path, forked, monkeypatch, table_of):
    """By ``glue``, which is replaced here by one that gives each model a score."""
    flags = "--data glue_data --tasks RTE --seeds 1"
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


def test_runs_that_fail_are_recorded_and_the_others_go_on(world, tmp_path, forked, monkeypatch, table_of):
    execute = grid.execute

    def failing(command, log, *arguments):
        if "tisa" in command and command[command.index("--lr") + 1] == "0.01":
            return 1, "out of memory"
        return execute(command, log, *arguments)

    monkeypatch.setattr(grid, "execute", failing)
    out = tmp_path / "out"
    command = ["compare", write(tmp_path), "--data", world.prepared, "--out", out]
    assert status_of(*command) == 2
    runs = results(out)
    assert (runs["tisa", 1e-2, 1]["status"], runs["tisa", 1e-3, 1]["status"]) == ("failed", "finished")
    assert {scheme for scheme, _, seed in runs if seed == 2} == {"none"}  # the learning rate of tisa is not chosen yet
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
        ({"train": "--sample-break-mode complete"}, "--sample-break-mode complete"),
        ({"train": "--update-freq=8"}, "train: .*--update-freq"),
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
    "name", thorough_but(["short"], ["english", "length", "variants", "finetune", "short", "gpu"], ["english"])
)
def test_the_examples_are_plans_that_fairseq_train_takes(name, world):
    Runs(read_plan(readme.ROOT / "examples" / "compare" / f"{name}.yaml", []), world.prepared, {}).check()


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
        ({"reference": None}, "reference: must be a string"),
    ],
)
def test_fields_of_a_plan_in_words_of_this_package(tmp_path, changes, message):
    with pytest.raises(InputError) as refused:
        read_plan(write(tmp_path, **changes), [])
    assert str(refused.value).startswith(f"{tmp_path / 'plan.yaml'}: {message}")
    assert str(refused.value).count(";") == 0


def test_a_scheme_is_named_as_in_every_command(tmp_path):
    plan = read_plan(write(tmp_path), ["roberta_tupe_r", "bert_r", "t5+alibi"])
    expressions = [plan.flags(name)[3] for name in plan.schemes]
    assert expressions == ["none", "tisa", "untied+t5+reset", "absolute+t5", "t5+alibi"]
