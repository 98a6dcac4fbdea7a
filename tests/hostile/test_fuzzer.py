"""The fuzzer itself runs: its inputs are made by every command as it stands, and a few tries find nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import environment

FUZZ = Path(__file__).parents[1] / "fuzz"


@pytest.mark.slow
def test_a_few_tries():
    command = [sys.executable, FUZZ, "--seed", "2", "--tries", "4"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["4 tries with seed 2, 0 misbehaved"], done.stdout + done.stderr[-3000:]
