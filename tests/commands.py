"""How the tests run commands. A module of its own: several folders have a conftest, so none can be imported by that name."""

import os


def environment(**variables: str) -> dict[str, str]:
    """The environment of every command: one thread each, so that a small machine is not overrun."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **variables}
