"""The linters, the type checker and the spelling checker find nothing, as pyproject.toml configures them."""

import subprocess
import sys
from pathlib import Path

import pytest
import readme

from fairseq_posenc import EXPORTS


@pytest.mark.parametrize(
    "command", ["ruff check", "ruff format --check", "codespell_lib", pytest.param("mypy", marks=pytest.mark.thorough)]
)
def test_nothing_is_found(command: str) -> None:
    ran = subprocess.run([sys.executable, "-m", *command.split()], cwd=readme.ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.thorough
def test_type_checkers_see_what_the_package_exports(tmp_path: Path) -> None:
    shown = [*EXPORTS, "Encoder('t5', vocab_size=9).config"]
    code = "".join(f"reveal_type(fairseq_posenc.{name})\n" for name in shown)
    (tmp_path / "user.py").write_text(f"import fairseq_posenc\n{code}fairseq_posenc.Encodre\n")
    command = [sys.executable, "-m", "mypy", tmp_path / "user.py"]
    ran = subprocess.run(command, cwd=readme.ROOT, capture_output=True, text=True, check=False)
    revealed = [line for line in ran.stdout.splitlines() if "Revealed type" in line]
    assert len(revealed) == len(shown), ran.stdout + ran.stderr
    assert not [line for line in revealed if '"Any"' in line]
    assert "fairseq_posenc.core.transformer.config.EncoderConfig" in revealed[-1]
    assert 'has no attribute "Encodre"' in ran.stdout
