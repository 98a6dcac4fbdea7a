"""Long matrices of which the default selection has a few cases; the others are marked ``thorough``."""

from collections.abc import Container, Iterable, Sequence

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
