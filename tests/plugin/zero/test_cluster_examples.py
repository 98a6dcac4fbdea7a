"""The files of examples/multi_node for Slurm and Kubernetes, as far as they can be tried without either."""

import argparse
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from signals import wait_until_caught
from training_runs import SCRIPTS

from fairseq_posenc import train

FOLDER = Path(__file__).parents[3] / "examples" / "multi_node"
SRUN = """#!/usr/bin/env bash
trap 'echo told; sleep 0.2; exit 75' USR1
echo "runs $*"
for _ in $(seq {tenths}); do sleep 0.1; done
exit {status}
"""
SCONTROL = """#!/usr/bin/env bash
case $1 in show) echo node1 ;; *) echo "scontrol $*" ;; esac
"""


@pytest.fixture
def job(tmp_path):
    """``job(status, seconds)`` starts job.sbatch where srun takes so long and ends with that status, or with 75 when told."""

    def job(status=0, seconds=300.0, environment=Path(sys.prefix)):
        for name, text in {"srun": SRUN.format(status=status, tenths=int(10 * seconds)), "scontrol": SCONTROL}.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1", "SLURM_CPUS_PER_TASK": "1", "ENVIRONMENT": str(environment)}
        path = os.pathsep.join([str(tmp_path), str(SCRIPTS), os.environ["PATH"]])
        return subprocess.Popen(["bash", FOLDER / "job.sbatch", "DATA"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, env={**os.environ, **slurm, "PATH": path}, cwd=tmp_path)  # fmt: skip

    return job


def test_a_job_whose_time_is_up_lets_the_run_save_and_is_queued_again(job):
    started = job()
    assert started.stdout.readline() == "runs --kill-on-bad-exit=1 --cpus-per-task=1 python -m fairseq_posenc.train " \
                                        "--deepspeed-config zero0 DATA\n"  # fmt: skip
    wait_until_caught(started.pid, signal.SIGUSR1)
    started.send_signal(signal.SIGUSR1)
    output, _ = started.communicate(timeout=300)
    assert output.splitlines()[0] == "told"
    assert output.splitlines()[-1] == "scontrol requeue 7"
    assert started.returncode == 75


@pytest.mark.parametrize("status", [0, 1])
def test_a_job_that_ends_by_itself_is_not_queued_again(job, status):
    started = job(status=status, seconds=0.1)
    output, _ = started.communicate(timeout=300)
    assert "requeue" not in output
    assert started.returncode == status


def test_a_job_without_its_environment_says_what_to_edit(job, tmp_path):
    (tmp_path / "python").write_text("#!/usr/bin/env bash\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    started = job(environment=tmp_path / "none")
    output, _ = started.communicate(timeout=300)
    assert (
        output.splitlines()[-1]
        == f"job.sbatch: {tmp_path / 'python'} does not find fairseq_posenc. Edit ENVIRONMENT in job.sbatch."
    )
    assert started.returncode == 2


def test_the_kubernetes_job_is_a_command_that_there_is():
    """Its options are those of torchrun.sh and of training, its paths are on volumes, and its signal goes to the workers."""
    from fairseq.dataclass.configs import FairseqConfig
    from torch.distributed.run import get_args_parser

    job = yaml.safe_load((FOLDER / "pytorchjob.yaml").read_text())
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {each["restartPolicy"] for each in replicas.values()} == {"OnFailure"}
    assert replicas["Master"]["template"] == replicas["Worker"]["template"]
    pod = replicas["Master"]["template"]["spec"]
    (container,) = pod["containers"]

    script = (FOLDER / "torchrun.sh").read_text()
    shell, _, inline, _ = container["command"]
    assert shell == "bash"
    assert "bash examples/multi_node/torchrun.sh" in inline
    for variable in ("NODES", "NODE_RANK", "MASTER_ADDR"):
        assert f"${variable}" in script
    words = script[script.index("exec torchrun") :].replace("\\\n", " ").split()
    known = {flag for action in get_args_parser()._actions for flag in action.option_strings}
    assert {word for word in words[: words.index("-m")] if word.startswith("--")} <= known

    flags = [argument.partition("=")[0] for argument in container["args"] if argument.startswith("-")]
    parser = argparse.ArgumentParser(add_help=False)
    train.add_arguments(parser)
    assert all(flag in train.HYDRA_FLAGS or flag in parser._option_string_actions for flag in flags)
    given = dict(argument.lstrip("-").split("=", 1) for argument in container["args"])
    assert (FOLDER.parents[1] / given["config-dir"] / f"{given['config-name']}.yaml").is_file()
    assert hasattr(FairseqConfig().checkpoint, "save_dir")

    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert "persistentVolumeClaim" in volumes[mounts["/" + given["checkpoint.save_dir"].split("/")[1]]]
    assert "persistentVolumeClaim" in volumes[mounts["/" + given["task.data"].split("/")[1]]]
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"


def test_the_signal_of_the_kubernetes_job_reaches_the_processes_of_training_alone():
    (container,) = yaml.safe_load((FOLDER / "pytorchjob.yaml").read_text())["spec"]["pytorchReplicaSpecs"]["Master"]["template"][
        "spec"
    ]["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    pattern = re.search(r'pkill -USR1 -f -- "([^"]+)"', command[-1])[1]
    assert re.search(pattern, f"{sys.executable} -u -m fairseq_posenc.train --deepspeed-config zero2")  # as torchrun starts it
    assert not re.search(pattern, "python torchrun --nnodes 4 -m fairseq_posenc.train --deepspeed-config zero2")
    assert not re.search(pattern, " ".join(command))
