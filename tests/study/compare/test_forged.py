"""Plans that would run code or never end, and records that somebody has edited: one sentence each, whatever they hold."""

import copy
import json

import pytest
import yaml
from commands import status_of

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")
pytest.importorskip("matplotlib", reason="needs pip install -e '.[compare]'")

from fake_runs import make_plan, make_run

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.ownership import claim
from fairseq_posenc.base.record import RESULT
from fairseq_posenc.study.compare import report
from fairseq_posenc.study.compare.cells import Measured
from fairseq_posenc.study.compare.claims import read_claims
from fairseq_posenc.study.compare.plan import read_plan
from fairseq_posenc.study.compare.results import summarise
from fairseq_posenc.study.engine import report as engine_report
from fairseq_posenc.study.engine.grid import Cell, finished
from fairseq_posenc.study.word_order import report as order_report

PLAN = {
    "schemes": {"none": None, "rope": None},
    "budget": {"updates": 8},
    "learning_rates": [1e-3],
    "reference": "none",
    "tokens_per_sample": 16,
    "batch_size": 8,
}
RUNS_CODE = {
    "train": {"train": "--user-dir EVIL"},
    "abbreviated": {"train": "--user-d=EVIL"},
    "options": {"schemes": {"none": {"options": {"user_dir": "EVIL"}}}},
    "value of an option": {"schemes": {"none": {"options": {"rope_type": "--user-dir=EVIL"}}}},
    "positions": {"schemes": {"none": {"positions": "--user-dir=EVIL"}}},
    "arch": {"schemes": {"none": {"arch": "--user-dir=EVIL"}}},
    "benchmark": {"benchmarks": {"glue": "--data d --train-flags '--bf16 --user-dir EVIL'"}},
    "benchmark, quoted twice": {"benchmarks": {"squad": """--train-flags='"--user"-dir EVIL'"""}},
    "another class": {"train": "--criterion model"},
    "a shell": {"train": "--dataset-impl fasta"},
    "a program": {"train": "--use-plasma-view"},
}


@pytest.mark.parametrize(("case", "dry"), [*((case, []) for case in RUNS_CODE), ("train", ["--dry-run"])])
def test_a_plan_runs_no_code(case, dry, data_bin, tmp_path, capsys):
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "__init__.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')")
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump({**PLAN, **RUNS_CODE[case]}).replace("EVIL", str(evil)))
    assert status_of("compare", plan, "--data", data_bin, "--out", tmp_path / "out", *dry) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "plan.yaml" in said
    assert "runs the Python of a folder" in said or "could run code from the file" in said
    assert not (tmp_path / "trace").exists()
    assert not list(tmp_path.glob("out/runs"))


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30)
)
ENTRIES = yaml.safe_dump(PLAN)
BAD_PLANS = {
    "aliases": BOMB,
    "merged aliases": BOMB.replace("[", "{<<: [").replace("]", "]}"),
    "itself": "schemes: &a [*a]",
    "many entries": f"schemes: [{'a, ' * 100_000}]",
    "surrogate": 'schemes: ["\\ud800"]',
    "surrogate as a name": '"\\ud800": 1',
    **{
        f"{name}: {value}": f"{yaml.safe_dump({k: v for k, v in PLAN.items() if k != name})}{name}: {value}\n"
        for name, values in {
            "seeds": ("1e9", "1e300", ".inf", "-1", "[1]", "x", "{}", "9" * 5000),
            "schemes": ("[[a]]", "[{a: 1}]", "[1]", "{1: {}}", "{none: [1]}", "{none: {options: {a: [1]}}}", "x", "null", "[]"),
            "budget": ("{updates: 1e30}", "{tokens: -1}", "{minutes: .inf}", "{minutes: .nan}", "[]", "{}", "3"),
            "learning_rates": ("[.nan]", "[-1]", "[]", "x", "[[1]]", "null"),
            "reference": ("[a]", "{}", "null", "other"),
            "tokens_per_sample": ("1e12", ".nan"),
            "train": ("[--lr]", "'\"'", "null"),
            "benchmarks": ("{glue: '\"'}", "{glue: [1]}", "{other: x}", "[glue]"),
        }.items()
        for value in values
    },
}


@pytest.mark.parametrize("case", BAD_PLANS)
def test_a_plan_is_checked_by_types_and_sizes(case, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(BAD_PLANS[case])
    with pytest.raises(InputError, match=r"plan\.yaml") as refused:
        read_plan(path)
    assert len(str(refused.value)) < 3000


def test_aliases_in_reason_are_read(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(ENTRIES.replace("rope: null", "rope: &o {options: {rope_fraction: 0.5}}\n  rope+tisa: *o"))
    assert read_plan(path).schemes["rope+tisa"].options == {"rope_fraction": 0.5}
    for added in ("--user-dir=x", "a/b"):
        path.write_text(ENTRIES.replace("rope: null", f"rope: null\n  {added}: null"))
        with pytest.raises(InputError, match="plan"):
            read_plan(path)


@pytest.mark.parametrize("text", ['- {id: "\\ud800"}', f"- {{a: {BOMB.splitlines()[0]}}}", "- [1]", "- 1", "x", BOMB])
def test_claims_are_checked(text, tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"claims\.yaml"):
        read_claims(path)


VALUES = (None, True, -1, 1e308, 10**400, "x", "\ud800", [], [[]], {}, {"x": [1]}, "nan", float("inf"), float("nan"))
ABSENT = object()


def forgeries(record):
    """The record with another value in the place of each of its values, or without it."""
    places = [()]
    while places:
        place = places.pop()
        inner = record
        for key in place:
            inner = inner[key]
        keys = inner.keys() if isinstance(inner, dict) else range(min(len(inner), 1)) if isinstance(inner, list) else ()
        places += [(*place, key) for key in keys]
        for value in (*VALUES, ABSENT) if place else ():
            forged = copy.deepcopy(record)
            parent = forged
            for key in place[:-1]:
                parent = parent[key]
            if value is ABSENT:
                del parent[place[-1]]
            else:
                parent[place[-1]] = value
            yield forged


def test_forged_results_of_compare_are_refused_or_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_overview", lambda *_: None)  # pictures would take the time of this test
    monkeypatch.setattr(report, "_curves", lambda *_: [])
    out, plan = tmp_path / "out", make_plan(["absolute", "tisa"], seeds=3)
    runs = [make_run(scheme, seed=seed) for scheme in plan.schemes for seed in (1, 2, 3)]
    claim(out, "compare")
    good, *others = runs
    cell = Cell({name: good[name] for name in ("scheme", "lr", "seed")}, good["configuration"], outcome=Measured)
    refused, path = 0, cell.folder(out) / RESULT
    path.parent.mkdir(parents=True)
    for forged in forgeries({**good, "format": 1}):
        path.write_text(json.dumps(forged))
        try:
            result = finished(cell, out)
            if result is not None:
                rows = summarise(plan, [result, *others])
                report.report(plan, rows, [result, *others]).write(out)
        except InputError as error:
            assert str(path.parent) in str(error)  # noqa: PT017
            refused += 1
    assert refused > 150, refused
    path.write_text(json.dumps({**good, "format": 1}))
    assert finished(cell, out)["loss"] == good["loss"]


TASK_RUN = {
    **{
        "task": "copy",
        "scheme": "rope",
        "seed": 1,
        "status": "finished",
        "format": 1,
        "seconds": 1.0,
        "versions": {"torch": "2"},
    },
    **{"configuration": {"positions": "rope", "updates": 9}, "learned": True, "updates": 7, "within": 1.0, "beyond": 0.5},
    **{"every": 1, "curve": [0.5, 1.0]},
}


def test_forged_results_of_tasks_are_refused_or_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_report.Figure, "save", lambda *_: None)
    monkeypatch.setattr(engine_report.Figure, "html", lambda *_: "")
    claim(tmp_path, "tasks")
    refused = 0
    for forged in forgeries(TASK_RUN):
        (tmp_path / order_report.RUNS).write_text(json.dumps(forged))
        try:
            order_report.report(order_report.recorded(tmp_path)).write(tmp_path)
        except InputError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017
            refused += 1
    assert refused > 100, refused
