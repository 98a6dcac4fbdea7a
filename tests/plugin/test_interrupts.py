"""Ctrl-C, SIGTERM and SIGHUP end every program with one line that says what was kept and how to go on, and leave no process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import environment
from signals import SIGNALS, cause, ended, running, wait_until_caught
from world import SIZES, TRAINING

SCRIPTS = Path(sys.executable).parent
EXAMPLES = Path(__file__).parents[2] / "examples/pretraining"
ENDLESS = (*TRAINING, "--arch", "roberta_none", *SIZES, "--num-workers", "2", "--max-update", "999999")
pytestmark = pytest.mark.skipif(
    any(signal.getsignal(number) == signal.SIG_IGN for number in SIGNALS),
    reason="these tests were started by nohup, or in the background, so that signals are ignored",
)
MODULE = (sys.executable, "-m", "fairseq_posenc.train")


@pytest.mark.parametrize(
    ("command", "name", "number"),
    [
        *(([SCRIPTS / "fairseq-train", "DATA"], "fairseq-train", number) for number in SIGNALS),
        ([SCRIPTS / "fairseq-hydra-train", "task.data=DATA"], "fairseq-hydra-train", signal.SIGHUP),
        ([SCRIPTS / "fairseq-posenc", "compare", "plan.yaml", "--data", "DATA"], "fairseq-posenc", signal.SIGTERM),
        ([*MODULE, "DATA"], "fairseq_posenc.train", signal.SIGINT),
    ],
)
def test_while_it_imports(command, name, number):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())
    wait_until_caught(process.pid, signal.SIGTERM)
    process.send_signal(number)
    said, _ = process.communicate(timeout=300)
    assert said.strip() == f"{name}: {cause(number)}. It had not begun; give the same command again."
    assert process.returncode == 128 + number


@pytest.mark.parametrize("ignored", [signal.SIGHUP, signal.SIGINT])
def test_signals_that_are_ignored_stay_so(ignored):
    """SIGHUP by nohup, SIGINT by a shell that starts a program in the background."""
    command = ["env", f"--ignore-signal={ignored.name}", SCRIPTS / "fairseq-train", "DATA"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())
    wait_until_caught(process.pid, signal.SIGTERM)
    process.send_signal(ignored)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=300)
    assert said.startswith("\nfairseq-train: ended by SIGTERM. ")
    assert process.returncode == 128 + signal.SIGTERM


BEGIN = """
import logging, os, signal, sys, threading, time
import _fairseq_posenc_hook as hook
logging.basicConfig(stream=sys.stdout)
hook.end_with("program", lambda: "All is kept.")
"""
END = "os.kill(os.getpid(), signal.SIGTERM)"
HARD_TO_END = {
    "what follows is not said": f"try: {END}\nfinally: print('late', file=sys.stderr); logging.warning('late')",
    "a thread that does not end": f"threading.Thread(target=time.sleep, args=(9999,)).start()\n{END}",
    "an exception that is caught": f"try: {END}\nexcept SystemExit: time.sleep(9999)",
    "a library that aborts at the end": f"class Late:\n def __del__(self, abort=os.abort): abort()\nlate = Late()\n{END}",
    "results": f"print('a result', end='')\n{END}",
}


@pytest.mark.parametrize("case", HARD_TO_END)
def test_whatever_the_program_does(case):
    ran = subprocess.run([sys.executable, "-c", BEGIN + HARD_TO_END[case]], capture_output=True, text=True, timeout=300)
    assert (ran.stderr, ran.returncode) == ("\nprogram: ended by SIGTERM. All is kept.\n", 128 + signal.SIGTERM)
    assert ran.stdout == ("a result" if case == "results" else "")


@pytest.mark.parametrize(
    ("number", "saves"),
    [
        (signal.SIGTERM, False),
        *(pytest.param(number, True, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_training(number, saves, world, tmp_path):
    """With processes that read data; they end with it."""
    folder = tmp_path / "checkpoints"
    saving = ["--save-dir", folder, "--save-interval-updates" if saves else "--save-interval", 1 if saves else 999999]
    with running(
        SCRIPTS / "fairseq-train", world.data_bin, *ENDLESS, *saving, "--log-interval", 1, log=tmp_path / "log"
    ) as train:
        train.wait_for(lambda: "num_updates=3" in train.said() and (folder / "checkpoint_last.pt").exists() == saves)
        assert len(train.session()) >= 3
        os.kill(train.pid, number)
        last = (
            f"The same command resumes from {folder}/checkpoint_last.pt."
            if saves
            else "No checkpoint was saved; the same command "
        )
        ended(train, number, f"fairseq-train: {cause(number)}. {last}")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(other, marks=pytest.mark.slow) for other in (signal.SIGINT, signal.SIGHUP))]
)
def test_prepare(number, world, tmp_path, run):
    """While two processes encode."""
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text((world.text / "train.txt").read_text("utf-8") * 1500, "utf-8")
    flags = ["--valid", world.text / "valid.txt", "--vocabulary", world.prepared, "--out", out, "--workers", 2]
    with running(SCRIPTS / "fairseq-posenc", "prepare", text, *flags, log=tmp_path / "log") as prepare:
        prepare.wait_for(lambda: list(out.glob("train.bin*")) and len(prepare.session()) >= 3)
        os.kill(prepare.pid, number)
        ended(
            prepare,
            number,
            f"fairseq-posenc prepare: {cause(number)}. What is complete is in {out}; the same command does the rest.",
        )
    assert not (out / "train.idx").exists()


STARTED = {
    "fairseq-train": [SCRIPTS / "fairseq-train"],
    "fairseq-hydra-train": [SCRIPTS / "fairseq-hydra-train"],
    "fairseq_posenc.train": MODULE,
    "torchrun": [SCRIPTS / "torchrun", "--standalone", "--nproc-per-node", "2", "-m", "fairseq_posenc.train"],
    "processes": [*MODULE, "--distributed-world-size", "2"],
}


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("launcher", STARTED)
def test_training_however_it_is_started(launcher, number, world, tmp_path):
    folder, hydra = tmp_path / "checkpoints", launcher == "fairseq-hydra-train"
    flags = [f"--config-dir={EXAMPLES}", "--config-name=tiny", f"task.data={world.data_bin}", f"checkpoint.save_dir={folder}"]
    flags = [*flags, "common.cpu=true"] if hydra else [world.data_bin, *ENDLESS, "--save-dir", folder]
    with running(*STARTED[launcher], *flags, log=tmp_path / "log", forked=False, cwd=tmp_path) as train:
        train.wait_for((folder / "checkpoint_last.pt").exists)
        os.killpg(train.pid, number) if number == signal.SIGINT else os.kill(train.pid, number)  # as a terminal does
        name = launcher if launcher.startswith("fairseq") else "fairseq_posenc.train"
        ended(train, number, f"{name}: {cause(number)}. The same command resumes from {folder}/checkpoint_last.pt.")
