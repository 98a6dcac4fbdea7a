"""Published claims as data: each is a test on the result of a comparison, and has a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator
from scipy import stats

from ...base.errors import InputError
from ...base.record import DIVERGED, FINISHED, Strict, faults, read_yaml
from .results import Run, counted, finished, order_bound
from .statistics import LEVEL, MIN_SEEDS, Estimate, estimate

REPRODUCED, CONTRADICTED, NOT_RUN = "reproduced", "contradicted", "not run"
UNDECIDED = "not distinguishable at this scale"
Outcome = Literal["for", "against", "neither"]


class Share(Strict):
    """``scheme`` needs at most this share of the updates to reach the final loss of ``reference``."""

    scheme: str
    reference: str
    at_most: float = Field(gt=0, lt=1)


class Claim(Strict):
    """A claim, with one of the tests.

    Attributes:
        id: its name.
        text: the claim.
        source: the paper, and the table or figure.
        published: the paper's figures.
        order: the loss of each scheme is less than that of the next.
        not_better: the loss of each scheme is not less than that of the next, or by less than ``margin``.
        equal: the losses differ from the first scheme's by less than ``margin``.
        margin: in bits.
        larger_gain: two pairs of schemes: the step from the first to the second saves more bits in the first pair.
        share_of_updates: see :class:`Share`.
        longer: on the longest sequences that both take, the loss of the first scheme is less than that of the second.
        unstable: runs of the first scheme diverge or do not learn word order more often than those of the second, at the learning
            rates of both, by Fisher's exact test.
        more_toeplitz: R² of the scheme's vectors of positions is higher at the end than that of random vectors, as at the start.
        toeplitz_correlates: R² at the end is higher where the loss is lower, among the runs of this scheme.
    """

    id: str
    text: str
    source: str
    published: str
    order: list[str] | None = Field(None, min_length=2)
    not_better: list[str] | None = Field(None, min_length=2)
    equal: list[str] | None = Field(None, min_length=2)
    margin: float | None = Field(None, gt=0)
    larger_gain: tuple[tuple[str, str], tuple[str, str]] | None = None
    share_of_updates: Share | None = None
    longer: tuple[str, str] | None = None
    unstable: tuple[str, str] | None = None
    more_toeplitz: str | None = None
    toeplitz_correlates: str | None = None

    @property
    def test(self) -> str:
        """The name of its test."""
        return next(name for name in TESTS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _one_test(self) -> Claim:
        if sum(getattr(self, name) is not None for name in TESTS) != 1:
            raise ValueError(f"name one of {', '.join(TESTS)}")
        if (self.margin is not None) != (self.test in WITH_MARGIN):
            raise ValueError(f"margin belongs to {' and '.join(WITH_MARGIN)}")
        return self


@dataclass(frozen=True)
class Finding:
    """A number that speaks for or against a claim, or neither.

    Attributes:
        name: what was measured.
        value: the number with its interval; None where it has none.
        unit: of the number.
        outcome: what it says.
    """

    name: str
    value: Estimate | None
    unit: str
    outcome: Outcome


class Missing(Exception):
    """Raised by a test whose runs are not there."""


class Results:
    """The runs with each scheme's chosen learning rate, and all others."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.diverged = {run["scheme"] for group in counted(runs).values() for run in group if run["status"] == DIVERGED}
        self.finished = {scheme: {run["seed"]: run for run in group} for scheme, group in finished(runs).items()}

    def estimate(self, number: Callable[..., float], *schemes: str) -> Estimate:
        """Return the mean over the seeds that all schemes have of a number computed from their runs."""
        for scheme in schemes:
            if scheme in self.diverged:
                raise Missing(f"a run of {scheme} diverged")
            if not self.finished.get(scheme):
                raise Missing(f"{scheme} has no run that finished" if scheme in self.finished else f"no runs of {scheme}")
        seeds = set.intersection(*(set(self.finished[scheme]) for scheme in schemes))
        if len(seeds) < MIN_SEEDS:
            raise Missing(f"fewer than {MIN_SEEDS} seeds that {' and '.join(dict.fromkeys(schemes))} share")
        return estimate(np.array([number(*(self.finished[scheme][seed] for scheme in schemes)) for seed in sorted(seeds)]))

    def difference(self, a: str, b: str) -> Estimate:
        """Return the loss of a minus that of b."""
        return self.estimate(lambda x, y: x["loss"] - y["loss"], a, b)


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
    """Return the verdicts in JSON's types: ``id``, ``text``, ``source``, ``published``, ``verdict``, ``findings``, ``reason``.

    A claim is reproduced if all findings are for it, and contradicted if any is against it. Each finding uses its 95% interval,
    so that one in 40 that compares equal schemes contradicts a claim by chance.
    """
    results = Results(runs)
    verdicts = []
    for claim in claims:
        try:
            findings, reason = TESTS[claim.test](results, getattr(claim, claim.test), claim.margin or 0.0), None
        except Missing as error:
            findings, reason = [], str(error)
        outcomes = {finding.outcome for finding in findings}
        verdict = NOT_RUN if not findings else UNDECIDED
        if outcomes == {"for"}:
            verdict = REPRODUCED
        elif "against" in outcomes:
            verdict = CONTRADICTED
        described = claim.model_dump(include={"id", "text", "source", "published"})
        shown = [{**vars(finding), "value": finding.value and vars(finding.value)} for finding in findings]
        verdicts.append({**described, "verdict": verdict, "findings": shown, "reason": reason})
    return verdicts


def _decide(yes: bool, no: bool) -> Outcome:
    return "for" if yes else "against" if no else "neither"


def _sign(value: Estimate) -> Outcome:
    """For a claim that the number is negative."""
    return _decide(value.high < 0, value.low > 0)


def _order(results: Results, test: Any, margin: float) -> list[Finding]:
    values = {f"{a} − {b}": results.difference(a, b) for a, b in pairwise(test)}
    return [Finding(name, value, "bits", _sign(value)) for name, value in values.items()]


def _not_better(results: Results, test: Any, margin: float) -> list[Finding]:
    values = {f"{a} − {b}": results.difference(a, b) for a, b in pairwise(test)}
    return [Finding(name, value, "bits", _decide(value.low > -margin, value.high < -margin)) for name, value in values.items()]


def _equal(results: Results, test: Any, margin: float) -> list[Finding]:
    first, *others = test
    findings = []
    for other in others:
        value = results.difference(other, first)
        within, beyond = -margin < value.low and value.high < margin, value.low > margin or value.high < -margin
        findings.append(Finding(f"{other} − {first}", value, "bits", _decide(within, beyond)))
    return findings


def _larger_gain(results: Results, test: Any, margin: float) -> list[Finding]:
    (a, b), (c, d) = test
    value = results.estimate(lambda *runs: np.dot([-1, 1, 1, -1], [run["loss"] for run in runs]), a, b, c, d)
    return [Finding(f"({b} − {a}) − ({d} − {c})", value, "bits", _sign(value))]


def _share_of_updates(results: Results, test: Any, margin: float) -> list[Finding]:
    scheme, reference, at_most = test.scheme, test.reference, test.at_most

    def share(run: Run, other: Run) -> float:
        """Between the validation that reaches the loss and the one before, by a straight line."""
        target, updates = other["curve"][-1]["loss"], [point["updates"] for point in run["curve"]]
        losses = [point["loss"] for point in run["curve"]]
        i = next((i for i, loss in enumerate(losses) if loss <= target), len(losses) - 1)
        before = slice(max(i - 1, 0), i + 1)
        return float(np.interp(-target, np.negative(losses[before]), updates[before])) / updates[-1]

    value = results.estimate(share, scheme, reference)
    name = f"share of the updates in which {scheme} reaches the final loss of {reference}"
    return [Finding(name, value, "", _decide(value.high <= at_most, value.low > at_most))]


def _longer(results: Results, test: Any, margin: float) -> list[Finding]:
    def difference(a: Run, b: Run) -> float:
        common = a["by_length"].keys() & b["by_length"].keys()
        if not common:
            raise Missing(f"no longer sequences that {test[0]} and {test[1]} both take")
        length = max(common, key=int)
        return a["by_length"][length] - b["by_length"][length]

    value = results.estimate(difference, *test)
    return [Finding(f"{test[0]} − {test[1]} on longer sequences", value, "bits", _sign(value))]


def _unstable(results: Results, test: Any, margin: float) -> list[Finding]:
    bound = order_bound(results.runs)
    both = [[run for run in results.runs if run["scheme"] == scheme and run["status"] in STATUSES] for scheme in test]
    rates = set.intersection(*({run["lr"] for run in runs} for runs in both))
    unsound = [[run["status"] == DIVERGED or run["loss"] >= bound for run in runs if run["lr"] in rates] for runs in both]
    if not rates:
        raise Missing(f"no learning rate at which both {test[0]} and {test[1]} have runs")
    counts = [[sum(bad), len(bad) - sum(bad)] for bad in unsound]
    more, less = (stats.fisher_exact(counts, alternative).pvalue < LEVEL / 2 for alternative in ("greater", "less"))
    name = ", ".join(f"{sum(bad)} of {len(bad)} runs of {scheme}" for bad, scheme in zip(unsound, test, strict=True))
    return [Finding(f"diverged or not learned: {name}", None, "", _decide(more, less))]


def _more_toeplitz(results: Results, test: Any, margin: float) -> list[Finding]:
    def decrease(run: Run) -> float:
        random, r_squared = run.get("r_squared_of_random_vectors"), [*run["r_squared"].values()]
        if random is None or not r_squared:
            raise Missing(f"R² of {run['scheme']} was not measured")
        return random - r_squared[-1]

    return [Finding("R² of random vectors − at the end", value := results.estimate(decrease, test), "", _sign(value))]


def _toeplitz_correlates(results: Results, test: Any, margin: float) -> list[Finding]:
    done = [run for run in results.finished.get(test, {}).values() if run.get("r_squared")]
    x, y = np.array([[[*run["r_squared"].values()][-1], run["loss"]] for run in done]).reshape(-1, 2).T
    if len(done) < MIN_CORRELATED or not np.ptp(x) or not np.ptp(y):
        raise Missing(f"fewer than {MIN_CORRELATED} runs of {test} with R², or R² is the same in all")
    r = stats.pearsonr(x, y)
    low, high = r.confidence_interval()
    name = f"correlation of R² with the loss over {len(done)} runs: {r.statistic:+.2f} ({low:+.2f} to {high:+.2f})"
    return [Finding(name, None, "", _decide(high < 0, low > 0))]


STATUSES = (FINISHED, DIVERGED)
MIN_CORRELATED = 4
"""Runs, with fewer of which a correlation has no interval."""
WITH_MARGIN = ("not_better", "equal")
TESTS: Mapping[str, Callable[[Results, Any, float], list[Finding]]] = {
    "order": _order,
    "not_better": _not_better,
    "equal": _equal,
    "larger_gain": _larger_gain,
    "share_of_updates": _share_of_updates,
    "longer": _longer,
    "unstable": _unstable,
    "more_toeplitz": _more_toeplitz,
    "toeplitz_correlates": _toeplitz_correlates,
}
"""By the claim's field, whose value and margin they get."""
