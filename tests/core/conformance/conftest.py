"""One thread, since the tensors are small and threads that wait for a busy core cost more than they save; and NaN memory."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _nan_memory(nan_memory: None) -> None:
    pass
