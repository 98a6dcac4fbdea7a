"""Training runs that the tests of this folder share; each costs seconds, so that one serves many assertions.

Launchers, 16 bits, offloading, Hydra, more processes, and kills at many moments take longer, and run with

    bash scripts/test.sh tests/deepspeed -m slow
"""

import pydoc_data.topics
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from training_runs import OPTIONS, PLAIN, UPDATES, Training, environment, launcher

WORDS = 7750  # of text, which gives 31 updates an epoch: an odd number, so that one of --update-freq 2 is shorter

Train = Callable[..., Training]


@pytest.fixture(scope="session")
def english_data_bin(tmp_path_factory, run) -> Path:
    """English, the beginning of Python's own documentation, as a data-bin for masked language modelling."""
    folder = tmp_path_factory.mktemp("english")
    words = " ".join(pydoc_data.topics.topics.values()).split()
    for name, start in (("train", 0), ("valid", WORDS)):
        lines = (words[i : i + 20] for i in range(start, start + (WORDS if name == "train" else 800), 20))
        (folder / f"{name}.txt").write_text("\n".join(map(" ".join, lines)), encoding="utf-8")
    texts = ["--trainpref", folder / "train.txt", "--validpref", folder / "valid.txt"]
    run("fairseq-preprocess", "--only-source", "--nwordssrc", "1000", *texts, "--destdir", folder / "data-bin")
    return folder / "data-bin"


@pytest.fixture(scope="session")
def train(english_data_bin, tmp_path_factory) -> Train:
    """``train(*flags, launch=..., save_dir=..., updates=..., status=0)`` trains on English and waits for the end."""

    def train(*flags, launch=PLAIN, save_dir=None, updates=UPDATES, status=0, options=OPTIONS):
        save_dir = save_dir or tmp_path_factory.mktemp("checkpoints")
        command = [*launch, english_data_bin, *options, "--save-dir", save_dir, "--max-update", updates, *flags]
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, timeout=400, env=environment(), start_new_session=True
        )
        output = done.stdout + done.stderr
        assert done.returncode == status or status is None, output[-20000:]
        return Training(output, save_dir, done.returncode)

    return train


@pytest.fixture(scope="session")
def fairseq_run(train) -> Training:
    """fairseq's own data-parallel training by two processes, without DeepSpeed."""
    return train("--no-save")


@pytest.fixture(scope="session")
def sharded_run(train) -> Callable[[int], Training]:
    """``sharded_run(stage)``: the same by ZeRO, with a checkpoint halfway."""
    done: dict[int, Training] = {}

    def run(stage):
        if stage not in done:
            flags = ("--deepspeed-config", f"zero{stage}", "--save-interval-updates", UPDATES // 2)
            done[stage] = train(*flags, launch=launcher())
        return done[stage]

    return run
