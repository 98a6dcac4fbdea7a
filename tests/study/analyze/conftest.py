"""What makes the tests of analyze quick."""

import pytest

from fairseq_posenc.base import plotting


@pytest.fixture
def quick_pictures(monkeypatch):
    """Pictures are drawn small and once: the constrained layout draws each of them several times."""
    save = plotting.save

    def save_small(figure, path):
        figure.set_layout_engine("none")
        save(figure, path)

    monkeypatch.setattr(plotting, "save", save_small)
    monkeypatch.setattr(plotting, "DPI", 20)
