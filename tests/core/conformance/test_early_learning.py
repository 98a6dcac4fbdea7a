"""The task ``order`` of fairseq-posenc tasks: it needs word order, at the papers' learning rate.

The committed runs show which schemes learn it within three times the updates of absolute positions. The slow test repeats these
runs: bash scripts/test.sh -m slow tests/core/conformance/test_early_learning.py
"""

import inspect
import math
import re

import pytest
import readme

pytest.importorskip("scipy", reason="needs pip install -e '.[compare]'")

from dataclasses import replace

from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import parse
from fairseq_posenc.study.word_order.report import recorded, updates_needed
from fairseq_posenc.study.word_order.runs import learn
from fairseq_posenc.study.word_order.settings import PAPERS

RESULTS = "examples/compare/results/tasks"
RUNS = [run for run in recorded(readme.ROOT / RESULTS) if run["task"] == "order" and run["seed"] == 1]
NEEDED = {run["scheme"]: updates_needed(run) or math.inf for run in RUNS}
LIMIT = 3 * NEEDED["absolute"]
SOON = [name for name in expressions() if NEEDED.get(name, 0) <= LIMIT]


def test_all_architectures_have_runs():
    assert NEEDED.keys() == expressions().keys(), f"fairseq-posenc tasks --tasks order --out {RESULTS}"


@pytest.mark.parametrize("name", [name for name in expressions() if name not in SOON])
def test_learned_positions_that_come_later_say_why(name):
    schemes = parse(expressions()[name])
    docstrings = [cls.__doc__ or "" for scheme in schemes for cls in inspect.getmro(scheme)]
    assert not any(scheme.data_driven for scheme in schemes) or any("order task" in text for text in docstrings)


def test_the_schemes_that_stay_below_have_the_accuracies_of_fidelity():
    text = (readme.ROOT / "fairseq_posenc/core/schemes/FIDELITY.md").read_text("utf-8")
    (line,) = re.findall(r"^- (`.*) come to (\S+) or (\S+) after 500 updates and stay below (\S+);$", text, re.M)
    curves = {run["scheme"]: run["curve"] for run in RUNS if run["scheme"] in re.findall(r"`(\w+)`", line[0])}
    assert {name for name, curve in curves.items() if max(curve) > 0.8} == curves.keys() == {"m2", "m4", "m4_reset"}
    assert {f"{curve[500 // 25 - 1]:.2f}" for curve in curves.values()} == set(line[1:3])
    assert max(map(max, curves.values())) < float(line[3])


@pytest.mark.slow
@pytest.mark.parametrize("name", SOON)
def test_it_is_learned_within_three_times_what_absolute_needs(name):
    run = learn("order", expressions()[name], replace(PAPERS["order"], updates=LIMIT), 1, lambda *_: None)
    assert updates_needed(run) is not None, run["curve"]
