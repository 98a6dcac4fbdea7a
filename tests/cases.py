"""Long matrices of which the default selection has a few cases."""

from collections.abc import Container, Iterable

import pytest


def thorough_but(few: Container[object], values: Iterable[object]) -> list[object]:
    """Parameters of a test: those that are not in ``few`` are marked ``thorough``."""
    return [value if value in few else pytest.param(value, marks=pytest.mark.thorough) for value in values]
