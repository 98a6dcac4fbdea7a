"""What a training run of these tests is: data, command, options, and what is read from its output."""

import json
import os
import pydoc_data.topics
import re
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import fork_server
import pytest

from fairseq_posenc.plugin.processes.group import free_port

needs_deepspeed = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="DeepSpeed is not installed: pip install -e '.[deepspeed]'"
)
SCRIPTS = Path(sys.executable).parent
RANKS = fork_server.RANKS
PLAIN = (RANKS, 2, SCRIPTS / "fairseq-train")
UPDATES = 50
OPTIONS = shlex.split("""
    --cpu --seed 1 --num-workers 0 --log-format json --log-interval 1
    --task masked_lm --criterion masked_lm --tokens-per-sample 32 --sample-break-mode none --batch-size 4
    --arch roberta_tisa --encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2
    --max-positions 32 --dropout 0 --attention-dropout 0
    --optimizer adam --adam-betas '(0.9,0.98)' --weight-decay 0.01 --clip-norm 1.6
    --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates 10 --total-num-update 100
    --disable-validation
""")


def launcher(processes: int = 2) -> tuple:
    """Processes that do not import everything again."""
    return (RANKS, processes, "-m", "fairseq_posenc.train")


def torchrun(processes: int = 2) -> tuple:
    """torchrun, on this host."""
    return (SCRIPTS / "torchrun", "--standalone", "--nproc-per-node", processes, "-m", "fairseq_posenc.train")


def deepspeed_launcher() -> tuple:
    """DeepSpeed's, on this host. Its port is the same for all unless it is told one."""
    port = ("--master_port", free_port())
    return (SCRIPTS / "deepspeed", "--num_accelerators", 2, *port, "--module", "fairseq_posenc.train")


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"}


def call(*command, timeout: float = 600, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """Run a Python program and its arguments, and wait; what it writes, to either stream, is in ``stdout``."""
    return fork_server.run([*command], cwd=cwd, environment=environment(), timeout=timeout)


@contextmanager
def running(data, save_dir, *flags, launch=None):
    """A run that saves every 5 updates and does not end; gives its process once there is a checkpoint."""
    flags = ("--deepspeed-config", "zero2", "--save-interval-updates", 5, "--keep-interval-updates", 1, *flags)
    command = [*(launch or torchrun()), data, *OPTIONS, "--save-dir", save_dir, "--stop-time-hours", 1, *flags]
    with (save_dir.parent / "log").open("w+") as log:
        process = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, env=environment(), start_new_session=True)
        try:
            deadline = time.monotonic() + 600
            while not (save_dir / "checkpoint_last.pt").exists():
                assert process.poll() is None and time.monotonic() < deadline, (save_dir.parent / "log").read_text()[-9000:]  # noqa: PT018
                time.sleep(0.1)
            yield process
        finally:
            for each in workers(process):
                each.kill()
            process.kill()
            process.wait()


def workers(process):
    """The training processes below a launcher, by rank."""
    import psutil

    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    ranks = [child for child in children if "fairseq_posenc.train" in child.cmdline()]
    return sorted(ranks, key=lambda child: child.environ().get("RANK", ""))


def make_english(folder: Path, words: int) -> Path:
    """English, the beginning of Python's own documentation, as a data-bin for masked language modelling."""
    text = " ".join(pydoc_data.topics.topics.values()).split()
    for name, start, length in (("train", 0, words), ("valid", words, 800)):
        lines = (text[i : i + 20] for i in range(start, start + length, 20))
        (folder / f"{name}.txt").write_text("\n".join(map(" ".join, lines)), encoding="utf-8")
    texts = ["--trainpref", folder / "train.txt", "--validpref", folder / "valid.txt"]
    command = [SCRIPTS / "fairseq-preprocess", "--only-source", "--nwordssrc", 1000, *texts]
    done = call(*command, "--destdir", folder / "data-bin")
    assert done.returncode == 0, done.stdout
    return folder / "data-bin"


@dataclass
class Training:
    """What a run printed, and where it saved."""

    output: str
    save_dir: Path

    @property
    def curve(self) -> dict[int, dict[str, float]]:
        """update -> loss, gnorm, lr, tokens (wpb)."""
        return {int(row["num_updates"]): {key: float(row[key]) for key in ("loss", "gnorm", "lr", "wpb")} for row in self._logged}

    @property
    def seconds(self) -> list[float]:
        """Seconds per update, from the second on; fairseq logs no speed of the first."""
        return [float(row["wpb"]) / float(row["wps"]) for row in self._logged[1:]]

    @property
    def _logged(self) -> list[dict[str, str]]:
        return [json.loads(found) for found in re.findall(r"train_inner\b[^{]*(\{.*\})", self.output)]


def assert_same_curve(found: Training, expected: Training, start: int = 0, rel: float = 2e-3) -> None:
    """Loss and gradient norm agree at every update after ``start``, and so do learning rates and sizes of batches.

    The norm is what a missing division by the number of predicted tokens would show in: Adam with clipping hides it from the
    loss. Logged values have three decimals.
    """
    updates = range(start + 1, UPDATES + 1)
    assert list(found.curve) == list(updates)
    for update in updates:
        assert found.curve[update] == pytest.approx(expected.curve[update], rel=rel, abs=2e-3), f"update {update}"
