"""What makes the tests of compare quick."""

import gc

import pytest


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """statsmodels' correction of p-values collects garbage at each call, which takes a second in a process with PyTorch."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
