"""Small models on made-up text."""

from collections.abc import Callable
from pathlib import Path

import pytest
from untrained import write_chance, write_untrained


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """A data-bin of chance symbols."""
    return write_chance(tmp_path_factory.mktemp("data"))


@pytest.fixture
def checkpoint(data, tmp_path) -> Callable[..., Path]:
    """``checkpoint(arch, **options)``: the file of such a model."""
    return lambda arch, **options: write_untrained(tmp_path / f"{arch}.pt", data, arch, **options)
