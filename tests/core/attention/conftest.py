import pytest


@pytest.fixture(autouse=True)
def _nan_memory(nan_memory: None) -> None:
    pass
