"""The fuzzer sees what it looks for, and what it does to files is damage."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import mutations
import pytest
from tries import SENTINEL, faults, run, snapshot


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "try").mkdir()
    (tmp_path / "try" / "mine.txt").write_text("mine")
    return tmp_path / "try"


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def refuse():
    print("--flag 0: at least 1 is needed", file=sys.stderr)
    return 2


def lose():
    Path("mine.txt").unlink()
    return 0


def change():
    Path("mine.txt").write_text("yours")
    return 0


def run_code():
    Path(SENTINEL).touch()
    return refuse()


def take_memory():
    bytearray(1 << 40)


CASES = {
    "well done": (lambda: 0, []),
    "refused": (refuse, []),
    "refused in silence": (lambda: 2, ["it refused without a word"]),
    "a traceback": (lambda: 1 // 0, ["its exit status is 1", "it showed a traceback"]),
    "too much memory": (take_memory, ["its exit status is 1", "it showed a traceback"]),
    "a crash": (crash, ["it was ended by SIGSEGV"]),
    "no end": (lambda: time.sleep(600), ["it did not end"]),
    "code from a file": (run_code, ["it ran code from a file"]),
    "a file removed": (lose, ["it removed the user's mine.txt"]),
    "a file changed": (change, ["it changed the user's mine.txt"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_seen(case, folder):
    action, expected = CASES[case]
    before = snapshot([folder / "mine.txt"])
    outcome = run(action, folder, limit=1 if case == "no end" else 300)
    assert faults(outcome, folder, before, snapshot([folder / "mine.txt"])) == expected


def test_the_seed_decides_what_is_done(folder):
    def made(seed):
        rng, path = random.Random(seed), folder / f"rows-{next(numbers)}.json"
        path.write_text('{"a": [1, 2, {"b": "c"}]}')
        argv, what = mutations.flags(["prepare", "x", "--out", "y", "--seed", "1"], rng)
        return argv, what, mutations.file(path, [folder / "mine.txt"], rng).partition(": ")[2]

    numbers = itertools.count()

    assert [made(seed) for seed in range(20)] == [made(seed) for seed in range(20)]
    assert len({str(made(seed)) for seed in range(20)}) > 10


@pytest.mark.slow
def test_no_command_misbehaves():
    """As the documented command does it, with a small budget."""
    command = [sys.executable, Path(__file__).parent, "--seed", "0", "--tries", "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
