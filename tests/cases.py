"""Matrices of which the default selection has a few cases, with the others marked ``thorough``; arguments drawn at random."""

import functools
import inspect
import random
from collections.abc import Callable, Container, Iterable, Sequence

import pytest

SOME = {"deberta", "floater", "m4m", "rope"}
"""Schemes of different kinds of terms, of a matrix of all."""


def thorough_but(few: Container[object], values: Iterable[object], some: Container[object] | None = None) -> list[object]:
    """Parameters of a test, of which ``few`` are in the default selection; others than ``some`` are ``slow``, if given."""

    def mark(value: object) -> pytest.MarkDecorator:
        return pytest.mark.thorough if some is None or value in some else pytest.mark.slow

    return [value if value in few else pytest.param(value, marks=mark(value)) for value in values]


def in_turn(rows: Iterable[object], columns: Sequence[object]) -> list[object]:
    """All pairs, of which one for each row is in the default selection, with the columns in turn."""
    marks = [], [pytest.mark.thorough]
    return [
        pytest.param(row, column, marks=marks[number % len(columns) != place])
        for number, row in enumerate(rows)
        for place, column in enumerate(columns)
    ]


def drawn(**choices: Sequence[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with the first of these arguments' values, and four times with values at random, the same in every run."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**arguments: object) -> None:
            test(**arguments, **{name: values[0] for name, values in choices.items()})
            source = random.Random(1)
            for _ in range(4):
                test(**arguments, **{name: source.choice(values) for name, values in choices.items()})

        signature = inspect.signature(test)
        of_pytest = [parameter for name, parameter in signature.parameters.items() if name not in choices]
        run.__signature__ = signature.replace(parameters=of_pytest)  # type: ignore[attr-defined]
        return run

    return decorate
