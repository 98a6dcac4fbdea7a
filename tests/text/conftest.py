from pathlib import Path

import pytest
from corpora import make_text


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(make_text(60), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def data_bin(world) -> Path:
    """dict.txt, sentencepiece.model and a little English text."""
    return world.english
