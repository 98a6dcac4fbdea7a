"""Verdicts on claims where the truth is known, and files of claims that are wrong."""

import re

import pytest
import readme

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fake_runs import make_run, make_runs

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.study.compare.claims import CONTRADICTED, NOT_RUN, REPRODUCED, TESTS, UNDECIDED, Claim, judge, read_claims
from fairseq_posenc.study.compare.plan import read_plan

EXAMPLES = readme.ROOT / "examples" / "compare"
LOSSES = {"good": (5.0, 5.01, 4.99), "same": (5.01, 5.0, 4.99), "bad": (5.2, 5.21, 5.18), "single": (5.0,)}
RUNS = [
    *(make_run(scheme, seed=seed, loss=loss) for scheme, losses in LOSSES.items() for seed, loss in enumerate(losses, 1)),
    make_run("bad", 4e-3, status="diverged"),
    make_run("good", 4e-3, loss=5.3),
    make_run("half", loss=5.1),
    make_run("half", seed=2, status="diverged"),
    *(make_run("wild", seed=seed, status="diverged") for seed in range(1, 7)),
    *(make_run("calm", seed=seed) for seed in range(1, 7)),
]


def claim(**test):
    return Claim(id="x", text="X.", source="a paper", published="1", **test)


def verdict(runs=RUNS, **test):
    return judge([claim(**test)], runs)[0]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"order": ["good", "bad"]}, REPRODUCED),
        ({"order": ["bad", "good"]}, CONTRADICTED),
        ({"order": ["good", "same"]}, UNDECIDED),
        ({"order": ["good", "same", "bad"]}, UNDECIDED),
        ({"order": ["bad", "good", "same"]}, CONTRADICTED),
        ({"order": ["good", "single"]}, NOT_RUN),
        ({"order": ["good", "rope"]}, NOT_RUN),
        ({"not_better": ["bad", "good"], "margin": 0.01}, REPRODUCED),
        ({"not_better": ["good", "bad"], "margin": 0.01}, CONTRADICTED),
        ({"not_better": ["good", "bad"], "margin": 0.3}, REPRODUCED),
        ({"not_better": ["bad", "good", "bad"], "margin": 0.01}, CONTRADICTED),
        ({"not_better": ["same", "good"], "margin": 0.1}, REPRODUCED),
        ({"not_better": ["same", "good"], "margin": 0.001}, UNDECIDED),
        ({"equal": ["good", "same"], "margin": 0.1}, REPRODUCED),
        ({"equal": ["good", "same"], "margin": 0.001}, UNDECIDED),
        ({"equal": ["good", "same", "bad"], "margin": 0.1}, CONTRADICTED),
        ({"larger_gain": [["bad", "good"], ["same", "good"]]}, REPRODUCED),
        ({"larger_gain": [["good", "same"], ["bad", "good"]]}, CONTRADICTED),
        ({"unstable": ["wild", "calm"]}, REPRODUCED),
        ({"unstable": ["calm", "wild"]}, CONTRADICTED),
        ({"unstable": ["bad", "good"]}, UNDECIDED),
        ({"unstable": ["bad", "rope"]}, NOT_RUN),
        ({"order": ["calm", "half"]}, NOT_RUN),
        ({"order": ["good", "half"]}, NOT_RUN),
    ],
    ids=str,
)
def test_verdicts(test, expected):
    assert verdict(**test)["verdict"] == expected


def test_a_verdict_has_the_difference_and_its_interval():
    (finding,) = verdict(order=["good", "bad"])["findings"]
    assert finding["value"]["mean"] == pytest.approx(-0.59 / 3)
    assert finding["value"]["low"] < finding["value"]["mean"] < finding["value"]["high"] < 0
    assert "rope" in verdict(order=["good", "rope"])["reason"]


def test_a_share_of_the_updates():
    """TISA's curve passes the final loss of absolute, 5.4, at 3 / 5 of the updates."""
    runs = make_runs()
    test = {"scheme": "tisa", "reference": "absolute"}
    (finding,) = verdict(runs, share_of_updates={**test, "at_most": 0.7})["findings"]
    curve = make_run("tisa")["curve"]
    expected = next(point["updates"] for point in curve if point["loss"] <= make_run("absolute")["loss"]) / 4000
    assert expected - 0.05 < finding["value"]["mean"] < expected  # between two validations
    shares = {0.7: REPRODUCED, 0.3: CONTRADICTED}
    assert {at: verdict(runs, share_of_updates={**test, "at_most": at})["verdict"] for at in shares} == shares
    never = {"scheme": "none", "reference": "absolute", "at_most": 0.9}
    assert verdict(runs, share_of_updates=never)["findings"][0]["value"]["mean"] == 1


def test_longer_sequences():
    """The loss on the longest that both take counts."""
    lengths = {"rope": {"128": 5.1, "256": 6.0}, "tisa": {"128": 5.2, "256": 5.5}, "absolute": {"128": 5.0}, "m4m": {}}
    runs = [{**run, "by_length": lengths[run["scheme"]]} for run in make_runs() if run["scheme"] in lengths]
    for number, run in enumerate(runs):
        run["by_length"] = {length: loss + number % 3 / 100 for length, loss in run["by_length"].items()}
    assert verdict(runs, longer=["tisa", "rope"])["verdict"] == REPRODUCED
    assert verdict(runs, longer=["rope", "tisa"])["verdict"] == CONTRADICTED
    assert verdict(runs, longer=["absolute", "rope"])["verdict"] == REPRODUCED
    assert verdict(runs, longer=["m4m", "rope"])["verdict"] == NOT_RUN


def test_r_squared_during_training():
    runs = make_runs()
    assert verdict(runs, more_toeplitz="absolute")["verdict"] == REPRODUCED
    correlated = [
        {**run, "r_squared": {"1": 0.1, "2": 9 - run["loss"] + 0.01 * (run["seed"] % 2)}}
        for run in make_runs(seeds=6)
        if run["scheme"] == "absolute"
    ]
    assert verdict(correlated, toeplitz_correlates="absolute")["verdict"] == REPRODUCED
    opposite = [{**run, "r_squared": {"1": 0.1, "2": run["loss"]}} for run in correlated]
    assert verdict(opposite, toeplitz_correlates="absolute")["verdict"] == CONTRADICTED
    assert verdict(runs[:1], toeplitz_correlates=runs[0]["scheme"])["verdict"] == NOT_RUN
    assert verdict(runs, more_toeplitz="tisa")["verdict"] == NOT_RUN
    falling = [{**run, "r_squared": dict(zip(run["r_squared"], [0.9, 0.7, 0.6, seed / 10], strict=True))}
               for seed, run in enumerate((run for run in runs if run["scheme"] == "absolute"), 1)]  # fmt: skip
    assert verdict(falling, more_toeplitz="absolute")["verdict"] == CONTRADICTED


def test_the_claims_of_the_examples_have_verdicts_where_all_schemes_have_run():
    """Each is a scheme of a plan."""
    claims = read_claims(EXAMPLES / "claims.yaml")
    planned = {name for plan in ("english", "variants", "length") for name in read_plan(EXAMPLES / f"{plan}.yaml", []).schemes}
    fields = [value for one in claims for name in TESTS if (value := getattr(one, name))]
    names = set(re.findall(r"'([\w+-]+)'", str(fields)))
    assert names >= {"m4m", "untied+t5+reset", "tisa-S1", "rope-random"}
    assert names <= planned
    verdicts = judge(claims, make_runs(sorted(names | {"absolute"}), seeds=4))
    assert [one["id"] for one in verdicts if one["verdict"] == NOT_RUN] == []


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("- {id: a, text: t, source: s, published: p}", "claim a: .*order"),
        ("- {id: a, text: t, source: s, published: p, order: [x, y], equal: [x, y], margin: 1}", "claim a"),
        ("- {id: a, text: t, source: s, published: p, order: [x, y], margin: 1}", "claim a: .*margin"),
        ("- {id: a, text: t, source: s, published: p, equal: [x, y]}", "claim a: .*margin"),
        ("- {id: a, text: t, source: s, published: p, better: [x, y]}", "claim a: better"),
        ("- {id: a, text: t, source: s, order: [x, y]}", "claim a: published"),
        ("- {id: a, text: t, source: s, published: p, order: [x]}", "claim a: order"),
        ("- {id: a, text: t, source: s, published: p, order: [x, y]}\n" * 2, "claim a is there twice"),
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
