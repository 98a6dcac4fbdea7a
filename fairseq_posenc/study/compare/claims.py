"""Published claims as data: each is a test on the result of a comparison, and has a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator
from scipy import stats

from ...base.errors import InputError
from ...base.record import FINISHED, Strict, faults, read_yaml
from . import starts
from .results import counted
from .starts import Run
from .statistics import LEVEL, MIN_SEEDS, estimate, holm

REPRODUCED, CONTRADICTED, NOT_TESTED = "reproduced", "contradicted", "not tested"
UNDECIDED, BEYOND = "not distinguishable at this scale", "differs by more than our margin"
OURS = "ours"
"""The source of a margin that the paper does not give."""


class Equivalent(Strict):
    """Losses differ from each other by less than a margin in bits, whose source is a paper or :data:`OURS`."""

    schemes: list[str] = Field(min_length=2)
    margin: float = Field(gt=0)
    margin_from: str


class Start(Strict):
    """``later`` begins to use word order after more updates than each of ``than``."""

    later: str
    than: list[str] = Field(min_length=1)


class Claim(Strict):
    """A claim, with one of the tests.

    Attributes:
        id: its name.
        text: the claim.
        source: the papers, and the table or figure.
        published: the papers' figures.
        difference: the loss of each scheme is less than that of the next.
        check: that the claim holds by construction: it shows that the comparison is sane, and is not counted.
        longer: as ``difference``, on the longest sequences that both take.
        equivalent: see :class:`Equivalent`; by two one-sided tests.
        start: see :class:`Start`.
        larger_gain: two pairs of schemes: the step from the first to the second saves more bits in the first pair.
        unstable: runs of the first scheme fail or use no word order more often than those of the second, by Fisher's exact test.
        more_toeplitz: R² of the scheme's vectors of positions is higher at the end than that of random vectors, as at the start.
    """

    id: str
    text: str
    source: str
    published: str
    difference: list[str] | None = Field(None, min_length=2)
    check: Literal["by construction"] | None = None
    longer: list[str] | None = Field(None, min_length=2)
    equivalent: Equivalent | None = None
    start: Start | None = None
    larger_gain: tuple[tuple[str, str], tuple[str, str]] | None = None
    unstable: tuple[str, str] | None = None
    more_toeplitz: str | None = None

    @property
    def test(self) -> str:
        """The name of its test."""
        return next(name for name in TESTS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _one_test(self) -> Claim:
        if sum(getattr(self, name) is not None for name in TESTS) != 1:
            raise ValueError(f"name one of {', '.join(TESTS)}")
        return self


@dataclass(frozen=True)
class Finding:
    """A number that speaks for or against a claim.

    Attributes:
        name: what was measured.
        value: of :func:`.statistics.estimate`; None where there is no such number.
        unit: of the number.
        p: the p-value of the test that it is what it seems to be.
        holds: whether it seems to be what is claimed.
    """

    name: str
    value: dict[str, Any] | None
    unit: str
    p: float
    holds: bool


class Missing(Exception):
    """Raised by a test whose runs are not there, or show nothing."""


class Results:
    """The runs of each scheme with its chosen learning rate."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.groups = counted(runs)

    def seeds(self, *schemes: str, late: bool = False) -> list[list[Run]]:
        """Return the runs of each scheme with the seeds that all of them have.

        Raises:
            Missing: there are too few, one failed, or, unless ``late`` ones are taken, most of a scheme used no word order.
        """
        for scheme in schemes:
            runs = self.groups.get(scheme, [])
            if not runs:
                raise Missing(f"no runs of {scheme}")
            if unfinished := [run["status"] for run in runs if run["status"] != FINISHED]:
                raise Missing(f"a run of {scheme} {unfinished[0]}")
            if not late and any(run["configuration"].get("stop") for run in runs):
                raise Missing(f"runs of {scheme} ended once they used word order")
            if not late and starts.is_late(runs):
                raise Missing(f"most runs of {scheme} used no word order")
        shared = set.intersection(*({run["seed"] for run in self.groups[scheme]} for scheme in schemes))
        if len(shared) < MIN_SEEDS:
            raise Missing(f"fewer than {MIN_SEEDS} seeds that {' and '.join(dict.fromkeys(schemes))} share")
        return [[run for run in self.groups[scheme] if run["seed"] in shared] for scheme in schemes]

    def values(self, number: Callable[..., float], *schemes: str) -> np.ndarray:
        """Return a number per seed computed from the runs of these schemes: (seeds,)."""
        return np.array([number(*runs) for runs in zip(*self.seeds(*schemes), strict=True)])


def read_claims(path: Path) -> list[Claim]:
    """Read a list of claims.

    Raises:
        InputError: the file is not YAML, or a claim is wrong; the message names the file and the claim.
    """
    content = read_yaml(path)
    if not isinstance(content, list):
        raise InputError(f"{path}: a list of claims is expected")
    claims: dict[str, Claim] = {}
    for number, entry in enumerate(content, 1):
        name = entry.get("id", number) if isinstance(entry, dict) else number
        try:
            claim = Claim.model_validate(entry)
        except ValidationError as error:
            raise InputError(f"{path}: claim {name}: {faults(error)}") from None
        if claims.setdefault(claim.id, claim) is not claim:
            raise InputError(f"{path}: claim {name} is there twice")
    return list(claims.values())


def judge(claims: Sequence[Claim], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the verdicts in JSON's types.

    Each has ``id``, ``text``, ``source``, ``published``, ``check``, ``verdict``, ``findings``, ``reason``, ``p`` and ``p_holm``.
    p is the largest of the findings' where all hold, since all must; otherwise the least of those that do not hold, times their
    number. ``p_holm`` is corrected for all claims, tested or not, so that a verdict does not depend on which others have runs;
    checks are left out, and have their p. A claim is decided if that is less than 0.05; it is contradicted only where the margin
    of what counts as equal, if any, is published.
    """
    results, verdicts = Results(runs), []
    for claim in claims:
        findings, reason, p = [], None, None
        try:
            findings = TESTS[claim.test](results, getattr(claim, claim.test))
            against = [finding.p for finding in findings if not finding.holds]
            p = min(1.0, min(against) * len(against)) if against else max(finding.p for finding in findings)
        except Missing as error:
            reason = str(error)
        described = {**claim.model_dump(include={"id", "text", "source", "published"}), "check": claim.check is not None}
        shown = [vars(finding) for finding in findings]
        verdicts.append({**described, "verdict": NOT_TESTED, "findings": shown, "reason": reason, "p": p, "p_holm": p})
    claimed = [verdict for verdict in verdicts if not verdict["check"]]
    corrected = holm([1.0 if verdict["p"] is None else verdict["p"] for verdict in claimed])
    for verdict, p_holm in zip(claimed, corrected, strict=True):
        verdict["p_holm"] = None if verdict["p"] is None else p_holm
    for claim, verdict in zip(claims, verdicts, strict=True):
        if verdict["p"] is not None:
            ours = claim.equivalent is not None and claim.equivalent.margin_from == OURS
            holds = all(finding["holds"] for finding in verdict["findings"])
            decision = REPRODUCED if holds else BEYOND if ours else CONTRADICTED
            verdict["verdict"] = decision if verdict["p_holm"] < LEVEL else UNDECIDED
    return verdicts


def _negative(name: str, values: np.ndarray, unit: str) -> Finding:
    """For a claim that the number is negative."""
    value = estimate(values)
    return Finding(name, value, unit, value["p"], value["mean"] < 0)


def _difference(results: Results, test: Any) -> list[Finding]:
    return [_negative(f"{a} − {b}", results.values(_step, a, b), "bits") for a, b in pairwise(test)]


def _step(a: Run, b: Run) -> float:
    return float(a["loss"] - b["loss"])


def _longer(results: Results, test: Any) -> list[Finding]:
    def difference(a: Run, b: Run) -> float:
        common = a["by_length"].keys() & b["by_length"].keys()
        if not common:
            raise Missing(f"no longer sequences that {a['scheme']} and {b['scheme']} both take")
        length = max(common, key=int)
        return float(a["by_length"][length] - b["by_length"][length])

    return [_negative(f"{a} − {b} on longer sequences", results.values(difference, a, b), "bits") for a, b in pairwise(test)]


def _equivalent(results: Results, test: Any) -> list[Finding]:
    findings, bits = [], test.margin
    for first, other in combinations(test.schemes, 2):
        values = results.values(_step, other, first)
        value = estimate(values)
        holds = abs(value["mean"]) < bits
        with np.errstate(divide="ignore", invalid="ignore"):
            below = stats.ttest_1samp(values, -bits, alternative="greater" if holds else "less").pvalue
            above = stats.ttest_1samp(values, bits, alternative="less" if holds else "greater").pvalue
        p = max(below, above) if holds else min(1.0, 2 * min(below, above))
        findings.append(Finding(f"{other} − {first} (margin {bits:g})", value, "bits", float(p), holds))
    return findings


def _start(results: Results, test: Any) -> list[Finding]:
    findings = []
    for scheme in test.than:
        pair = results.seeds(test.later, scheme, late=True)
        if not starts.is_measured([*pair[0], *pair[1]]):
            raise Missing("when runs begin to use word order was not measured")
        found: Any = starts.ratio(*pair)  # not None, as there are seeds enough
        findings.append(Finding(f"start of {test.later} ÷ {scheme}", found, "", found["p"], found["mean"] > 1))
    return findings


def _larger_gain(results: Results, test: Any) -> list[Finding]:
    (a, b), (c, d) = test
    values = results.values(lambda *runs: float(np.dot([-1, 1, 1, -1], [run["loss"] for run in runs])), a, b, c, d)
    return [_negative(f"({b} − {a}) − ({d} − {c})", values, "bits")]


def _unstable(results: Results, test: Any) -> list[Finding]:
    both = [results.groups.get(scheme, []) for scheme in test]
    if not all(runs and starts.is_measured(runs) for runs in both):
        raise Missing(f"no runs of {' or '.join(test)} in which the use of word order was measured")
    unsound = [[starts.start(run) == math.inf for run in runs] for runs in both]
    p = stats.fisher_exact([[sum(bad), len(bad) - sum(bad)] for bad in unsound]).pvalue
    name = ", ".join(f"{sum(bad)} of {len(bad)} runs of {scheme}" for bad, scheme in zip(unsound, test, strict=True))
    more = np.mean(unsound[0]) > np.mean(unsound[1])
    return [Finding(f"failed, or used no word order: {name}", None, "", float(p), bool(more))]


def _more_toeplitz(results: Results, test: Any) -> list[Finding]:
    def decrease(run: Run) -> float:
        random, r_squared = run.get("r_squared_of_random_vectors"), [*run["r_squared"].values()]
        if random is None or not r_squared:
            raise Missing(f"R² of {run['scheme']} was not measured")
        return float(random - r_squared[-1])

    return [_negative("R² of random vectors − at the end", results.values(decrease, test), "")]


TESTS: Mapping[str, Callable[[Results, Any], list[Finding]]] = {
    "difference": _difference,
    "longer": _longer,
    "equivalent": _equivalent,
    "start": _start,
    "larger_gain": _larger_gain,
    "unstable": _unstable,
    "more_toeplitz": _more_toeplitz,
}
"""By the claim's field, whose value they get."""
