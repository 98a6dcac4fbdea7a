"""Verdicts on claims where the truth is known, and files of claims that are wrong."""

import re

import numpy as np
import pytest
import readme
from scipy import stats

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fake_runs import make_run, make_runs

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.study.compare import starts
from fairseq_posenc.study.compare.claims import (
    BEYOND,
    CONTRADICTED,
    NOT_TESTED,
    REPRODUCED,
    TESTS,
    UNDECIDED,
    Claim,
    judge,
    read_claims,
)
from fairseq_posenc.study.compare.plan import read_plan

EXAMPLES = readme.ROOT / "examples" / "compare"
LOSSES = {"good": (5.0, 5.01, 4.99), "same": (5.01, 5.0, 4.99), "bad": (5.2, 5.21, 5.18), "single": (5.0,)}
LATE = {"loss": 7.9, "permuted": 7.95}
RUNS = [
    *(make_run(scheme, seed=seed, loss=loss) for scheme, losses in LOSSES.items() for seed, loss in enumerate(losses, 1)),
    make_run("half", loss=5.1),
    make_run("half", seed=2, status="diverged"),
    *(make_run("late", seed=seed, **LATE) for seed in (1, 2, 3)),
    *(make_run("wild", seed=seed, status="failed") for seed in range(1, 7)),
    *(make_run("calm", seed=seed) for seed in range(1, 7)),
]


def claim(name="x", **test):
    return Claim(id=name, text="X.", source="a paper", published="1", **test)


def verdict(runs=RUNS, **test):
    return judge([claim(**test)], runs)[0]


def test_losses_of_runs_that_ended_early_are_not_tested():
    runs = [run | {"configuration": run["configuration"] | {"stop": "word order"}} for run in RUNS]
    found = verdict(runs, difference=["good", "bad"])
    assert (found["verdict"], found["reason"]) == (NOT_TESTED, "runs of good ended once they used word order")


def equal(*schemes, margin, margin_from="ours"):
    return {"equivalent": {"schemes": schemes, "margin": margin, "margin_from": margin_from}}


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"difference": ["good", "bad"]}, REPRODUCED),
        ({"difference": ["bad", "good"]}, CONTRADICTED),
        ({"difference": ["good", "same"]}, UNDECIDED),
        ({"difference": ["good", "same", "bad"]}, UNDECIDED),
        ({"difference": ["bad", "good", "same"]}, CONTRADICTED),
        ({"difference": ["good", "single"]}, NOT_TESTED),
        ({"difference": ["good", "rope"]}, NOT_TESTED),
        ({"difference": ["calm", "half"]}, NOT_TESTED),
        ({"difference": ["good", "wild"]}, NOT_TESTED),
        ({"difference": ["good", "late"]}, NOT_TESTED),
        ({"difference": ["good", "bad"], "check": "by construction"}, REPRODUCED),
        (equal("good", "same", margin=0.1), REPRODUCED),
        (equal("good", "same", margin=0.001), UNDECIDED),
        (equal("good", "bad", margin=0.1), BEYOND),  # a margin that no paper has
        (equal("same", "bad", "good", margin=0.3), REPRODUCED),
        (equal("good", "bad", margin=0.1, margin_from="Table 1"), CONTRADICTED),
        (equal("good", "same", "bad", margin=0.1, margin_from="Table 1"), CONTRADICTED),
        (equal("good", "bad", margin=0.3), REPRODUCED),
        ({"larger_gain": [["bad", "good"], ["same", "good"]]}, REPRODUCED),
        ({"larger_gain": [["good", "same"], ["bad", "good"]]}, CONTRADICTED),
        ({"unstable": ["wild", "calm"]}, REPRODUCED),
        ({"unstable": ["calm", "wild"]}, CONTRADICTED),
        ({"unstable": ["bad", "good"]}, UNDECIDED),
        ({"unstable": ["bad", "rope"]}, NOT_TESTED),
    ],
    ids=str,
)
def test_verdicts(test, expected):
    assert verdict(**test)["verdict"] == expected


def test_a_verdict_has_the_difference_and_its_interval():
    (finding,) = verdict(difference=["good", "bad"])["findings"]
    assert finding["value"]["mean"] == pytest.approx(-0.59 / 3)
    assert finding["value"]["low"] < finding["value"]["mean"] < finding["value"]["high"] < 0
    assert "rope" in verdict(difference=["good", "rope"])["reason"]


def test_equivalence_is_by_two_one_sided_tests():
    """Its p is the larger one: of good, same and bad, the mean difference is 0.0 or 0.59 / 3, and the margin is on one side."""
    ours = np.array(LOSSES["bad"]) - LOSSES["good"]
    t = (ours.mean() - 0.3) / (ours.std(ddof=1) / np.sqrt(3))
    assert verdict(**equal("good", "bad", margin=0.3))["p"] == pytest.approx(stats.t(2).cdf(t))


def test_p_values_are_corrected_for_the_claims_that_count():
    """Without checks, and with those that were not tested."""
    claims = [
        claim("a", difference=["good", "bad"]),
        claim("b", difference=["same", "bad"]),
        claim("c", difference=["good", "bad"], check="by construction"),
        claim("d", difference=["good", "rope"]),
    ]
    found = judge(claims, RUNS)
    first, second = sorted((found[0]["p"], found[1]["p"]))
    assert sorted((found[0]["p_holm"], found[1]["p_holm"])) == pytest.approx([3 * first, max(3 * first, 2 * second)])
    assert (found[2]["p_holm"], found[3]["p_holm"]) == (found[2]["p"], None)
    many = judge([claim(str(number), difference=["same", "bad"]) for number in range(100)], RUNS)
    assert many[0]["p"] < 0.05 < many[0]["p_holm"]
    assert {one["verdict"] for one in many} == {UNDECIDED}


def test_a_start_that_is_later_than_those_of_others():
    """In updates; a scheme of which most runs did not start is late, too."""
    runs = [*make_runs(), *(make_run("never", seed=seed, **LATE) for seed in (1, 2, 3))]
    one = verdict(runs, start={"later": "absolute", "than": ["tisa", "rope"]})
    at = {run["scheme"]: starts.start(run) for run in runs}
    assert one["verdict"] == REPRODUCED
    assert [finding["value"]["mean"] for finding in one["findings"]] == pytest.approx(
        [at["absolute"] / at["tisa"], at["absolute"] / at["rope"]], rel=0.2
    )
    assert verdict(runs, start={"later": "tisa", "than": ["absolute"]})["verdict"] == CONTRADICTED
    assert verdict(runs, start={"later": "never", "than": ["tisa"]})["verdict"] == REPRODUCED
    old = [{**run, "permuted": None} for run in runs]
    assert verdict(old, start={"later": "absolute", "than": ["tisa"]})["verdict"] == NOT_TESTED


def test_longer_sequences():
    """The loss on the longest that both take counts."""
    lengths = {"rope": {"128": 5.1, "256": 6.0}, "tisa": {"128": 5.2, "256": 5.5}, "absolute": {"128": 5.0}, "m4m": {}}
    runs = [{**run, "by_length": lengths[run["scheme"]]} for run in make_runs() if run["scheme"] in lengths]
    for number, run in enumerate(runs):
        run["by_length"] = {length: loss + number % 3 / 100 for length, loss in run["by_length"].items()}
    assert verdict(runs, longer=["tisa", "rope"])["verdict"] == REPRODUCED
    assert verdict(runs, longer=["rope", "tisa"])["verdict"] == CONTRADICTED
    assert verdict(runs, longer=["absolute", "rope"])["verdict"] == REPRODUCED
    assert verdict(runs, longer=["m4m", "rope"])["verdict"] == NOT_TESTED


def test_r_squared_during_training():
    runs = make_runs()
    assert verdict(runs, more_toeplitz="absolute")["verdict"] == REPRODUCED
    assert verdict(runs, more_toeplitz="tisa")["verdict"] == NOT_TESTED
    falling = [{**run, "r_squared": dict(zip(run["r_squared"], [0.9, 0.7, 0.6, seed / 10], strict=True))}
               for seed, run in enumerate((run for run in runs if run["scheme"] == "absolute"), 1)]  # fmt: skip
    assert verdict(falling, more_toeplitz="absolute")["verdict"] == CONTRADICTED


def test_the_claims_of_the_examples_have_verdicts_where_all_schemes_have_run():
    """Each is a scheme of a plan."""
    claims = read_claims(EXAMPLES / "claims.yaml")
    planned = {name for plan in ("english", "variants", "length") for name in read_plan(EXAMPLES / f"{plan}.yaml").schemes}
    fields = [value for one in claims for name in TESTS if (value := getattr(one, name))]
    names = set(re.findall(r"'([\w+-]+)'", str(fields))) - {"ours"}
    assert names >= {"m4m", "untied+t5+reset", "tisa-S1", "rope-random"}
    assert names <= planned
    runs = [run for run in make_runs(sorted(names), seeds=4) if run.get("loss", 0) < 8]
    verdicts = judge(claims, runs)
    assert [one["id"] for one in verdicts if one["verdict"] == NOT_TESTED] == []
    assert sum("start" in one.model_fields_set for one in claims) == 1
    assert {one.id for one in claims if one.check} == {"none", "tisa-alone", "tisa-larger-gain"}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("- {id: a, text: t, source: s, published: p}", "claim a: .*difference"),
        ("- {id: a, text: t, source: s, published: p, difference: [x, y], check: [x, y]}", "claim a"),
        ("- {id: a, text: t, source: s, published: p, difference: [x, y], margin: 1}", "claim a: margin"),
        ("- {id: a, text: t, source: s, published: p, equivalent: {schemes: [x, y]}}", "claim a: equivalent.margin"),
        ("- {id: a, text: t, source: s, published: p, better: [x, y]}", "claim a: better"),
        ("- {id: a, text: t, source: s, difference: [x, y]}", "claim a: published"),
        ("- {id: a, text: t, source: s, published: p, difference: [x]}", "claim a: difference"),
        ("- {id: a, text: t, source: s, published: p, difference: [x, y]}\n" * 2, "claim a is there twice"),
        ("- 3", "claim 1"),
        ("a: 3", "list of claims"),
        ("- {", "not YAML"),
        ("!!python/object/apply:os.getcwd []", "not YAML"),
    ],
)
def test_files_that_are_wrong(content, named, tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(content, "utf-8")
    with pytest.raises(InputError, match=f"claims.yaml.*{named}"):
        read_claims(path)
