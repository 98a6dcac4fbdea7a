"""Studies: a folder of one command, failures that do not hide results, and one report in four forms."""

import csv
import json

import pytest

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.plotting import new_figure
from fairseq_posenc.study.engine.grid import Cell
from fairseq_posenc.study.engine.report import Figure, Report, Table, number
from fairseq_posenc.study.engine.study import Failures, Study

CELLS = [Cell({"task": "copy", "seed": seed}, {"updates": 4}) for seed in (1, 2)]


def report(results):
    rows = [[run["task"], str(run["seed"]), number(run["score"], ".1f")] for run in results]
    return Report(
        title="A <study>",
        summary=["Two runs.", Table(["task", "seed", "score"], rows)],
        data={"runs": results},
        rows=[{"seed": run["seed"], "scores": {"a": run["score"], "b": {"c": 2}}, "curve": [1, 2]} for run in results],
        sections={"Nothing": [], "Pictures": ["Text & more.", Figure("figures/one", "One. Two.", new_figure(1, 1))]},
    )


def test_a_failure_is_raised_after_the_report(tmp_path):
    def run(cell, folder, progress):
        if cell.key["seed"] == 2:
            raise RuntimeError("out of memory")
        return {"score": -0.5}

    with pytest.raises(Failures, match="seed=2"), Study.open(tmp_path / "out", "tasks") as study:  # noqa: PT012
        results = study.run(CELLS, run)
        assert [result["seed"] for result in study.failed.values()] == [2]
        report(results).write(study.out)
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())["runs"]) == 1
    done = []
    with Study.open(tmp_path / "out", "tasks") as study:
        study.run(CELLS, lambda cell, *_: done.append(cell.key["seed"]) or {"score": 1.0})
    assert done == [2]


def test_a_folder_belongs_to_one_command(tmp_path):
    with Study.open(tmp_path / "out", "tasks"), pytest.raises(BlockingIOError), Study.open(tmp_path / "out", "tasks"):
        pass
    with pytest.raises(InputError, match="--out"), Study.open(tmp_path / "out", "glue"):
        pass
    with pytest.raises(InputError, match="--data"), Study.open(tmp_path / "out", "tasks", [("--data", tmp_path / "out")]):
        pass


def test_all_forms_have_the_same_numbers(tmp_path):
    with Study.open(tmp_path, "tasks") as study:
        summary = report([{"task": "copy", "seed": 1, "score": -0.5}]).write(study.out)
    assert summary.splitlines()[0] == "Two runs."
    assert "| copy   |      1 |    −0.5 |" in summary
    markdown = (tmp_path / "results.md").read_text("utf-8")
    assert markdown.startswith(summary)
    assert markdown.endswith("## Pictures\n\nText & more.\n\n![One. Two.](figures/one.png)\n")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<h1>A &lt;study&gt;</h1>" in page
    assert "Text &amp; more." in page
    assert "−0.5" in page
    assert 'alt="One" src="data:image/png;base64,' in page
    assert "Nothing" not in page + markdown
    with (tmp_path / "results.csv").open() as stream:
        assert [*csv.DictReader(stream)] == [{"seed": "1", "scores_a": "-0.5", "scores_b_c": "2"}]
    assert json.loads((tmp_path / "results.json").read_text()) == {"runs": [{"task": "copy", "seed": 1, "score": -0.5}]}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"one.png", "one.pdf"}
