"""The linters, the type checker and the spelling checker find nothing, as pyproject.toml configures them."""

import subprocess
import sys

import pytest
import readme


@pytest.mark.parametrize(
    "command", ["ruff check", "ruff format --check", "codespell_lib", pytest.param("mypy", marks=pytest.mark.thorough)]
)
def test_nothing_is_found(command: str) -> None:
    ran = subprocess.run([sys.executable, "-m", *command.split()], cwd=readme.ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
