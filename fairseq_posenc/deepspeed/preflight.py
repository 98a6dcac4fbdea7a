"""Check every host before a run on several, and print one table.

It checks by ssh, as the run will be started: that each host answers; that Python, PyTorch, DeepSpeed, fairseq and this package
are installed and the same; that PyTorch sees a GPU for each slot, or that no host has any; that the data are there and the
same; that --save-dir is one shared folder with room; and that all hosts together can average numbers, and how fast. The exit
status is 0 if a run can start.

    fairseq-posenc preflight --hostfile hosts --data /data/bin --save-dir /shared/checkpoints
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from ..commands import show
from ..errors import InputError

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
SAME_ON_ALL = {"python": "Python", "torch": "PyTorch", "deepspeed": "DeepSpeed", "fairseq": "fairseq",
               "package": "fairseq_posenc", "gpu": "GPUs", "data": "data"}  # fmt: skip
REQUIRED = ("deepspeed", "fairseq")
ANSWER_KEYS = {*SAME_ON_ALL, "gpus", "has_nvidia", "missing", "shared", "free_gb"}
COLUMNS = {"host": "host", **SAME_ON_ALL, "free_gb": "free GB", "all_reduce": "all-reduce"}


class Host(NamedTuple):
    """A line of the hostfile."""

    name: str
    slots: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    add = parser.add_argument
    add("--hostfile", type=Path, required=True, metavar="FILE", help="as for deepspeed: one line 'HOST slots=N' per host")
    add("--data", required=True, metavar="DIR[:DIR…]",
        help="on every host: the data-bin, several as fairseq-train takes them, or the folder of 'prepare --shards'")  # fmt: skip
    add("--save-dir", type=Path, required=True, metavar="DIR", help="the run's folder of checkpoints; made if it does not exist")
    add("--cpu", action="store_true", help="the run will use --cpu too: slots are processes, and GPUs are ignored")
    add("--need-gb", type=float, default=50, metavar="GB", help="room required in --save-dir (default: %(default)s)")
    add("--all-reduce-mb", type=float, default=64, metavar="MB", help="size of the timed average (default: %(default)s)")
    add("--master-addr", metavar="ADDRESS", help="where the hosts meet (default: the first host of the hostfile)")
    add("--master-port", type=int, default=29501, help="default: %(default)s")
    add("--ssh-port", type=int, help="default: ssh's own")
    add("--timeout", type=float, default=120, metavar="SECONDS", help="for each check of a host (default: %(default)s)")


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        InputError, OSError: a bad hostfile, or what is wrong with the hosts.
    """
    hosts = read_hostfile(args.hostfile)
    token = Path(args.save_dir.absolute(), f".preflight-{uuid.uuid4().hex}")
    token.parent.mkdir(parents=True, exist_ok=True)
    token.touch()
    try:
        data = os.pathsep.join(str(Path(path).absolute()) for path in args.data.split(os.pathsep))
        question = ["look", data, str(token)]
        answers = _ask(args, hosts, [question] * len(hosts), "looking at each host")
    finally:
        token.unlink(missing_ok=True)
    if len(hosts) > 1 and not any("error" in answer for answer in answers):
        address = args.master_addr or hosts[0].name
        meet = [address, str(args.master_port), str(len(hosts)), str(args.all_reduce_mb), str(args.timeout / 2)]
        timed = _ask(args, hosts, [["all-reduce", str(rank), *meet] for rank in range(len(hosts))], "averaging over all hosts")
        for answer, result in zip(answers, timed, strict=True):
            answer.update(result)
    show(table(hosts, answers))
    found = problems(hosts, answers, args)
    if found:
        raise InputError("a run cannot start yet:\n" + "\n".join(f"  {problem}" for problem in found))
    if not args.cpu and not any(answer["gpus"] for answer in answers):
        show("\nwarning: no host has a GPU, so that slots are processes on CPUs, and training needs --cpu")
    show(f"\nready; hosts: {len(hosts)}, processes: {sum(host.slots for host in hosts)}")


def read_hostfile(path: Path) -> list[Host]:
    """Parse DeepSpeed's hostfile.

    Raises:
        InputError: a malformed line, or a host listed twice; the message has the line's number.
        OSError: it cannot be read.
    """
    hosts: list[Host] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, slots = words[0], words[1].removeprefix("slots=") if len(words) == 2 else ""
        if not slots.isdecimal() or int(slots) == 0 or not words[1].startswith("slots="):
            raise InputError(f"{path}, line {number}: expected 'HOST slots=N', found {line!r}")
        if name.startswith("-"):
            raise InputError(f"{path}, line {number}: ssh would take the host {name!r} for an option: correct its name")
        if name in (host.name for host in hosts):
            raise InputError(f"{path}, line {number}: {name} is there twice; give it one line with all its slots")
        hosts.append(Host(name, int(slots)))
    if not hosts:
        raise InputError(f"{path} names no host; write one line 'HOST slots=N' for each")
    return hosts


def table(hosts: Sequence[Host], answers: Sequence[dict[str, Any]]) -> str:
    """One row per host."""
    rows = [tuple(COLUMNS.values())]
    for host, answer in zip(hosts, answers, strict=True):
        shown = {"host": host.name, **answer}
        rows.append(tuple(str(shown.get(key, "–")) for key in COLUMNS))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def problems(hosts: Sequence[Host], answers: Sequence[dict[str, Any]], args: argparse.Namespace) -> list[str]:
    """What is wrong, one sentence each, with what to do."""
    found = [f"{host.name}: {answer['error']}" for host, answer in zip(hosts, answers, strict=True) if "error" in answer]
    answering = [(host, answer) for host, answer in zip(hosts, answers, strict=True) if "python" in answer]
    if not answering:
        return found
    first, reference = answering[0]
    on_gpus = not args.cpu and any(answer["gpus"] for _, answer in answering)
    for host, answer in answering:
        for key, name in SAME_ON_ALL.items():
            if answer[key] != reference[key]:
                found.append(f"{host.name} has {name} {answer[key]}, {first.name} has {reference[key]}: make them the same")
        found += [f"{host.name}: {SAME_ON_ALL[key]} is not installed there" for key in REQUIRED if answer[key] == "missing"]
        for path in answer["missing"]:
            found.append(f"{host.name}: there is no data-bin {path} (with dict.txt and train.bin): copy or mount it there")
        if not answer["shared"]:
            found.append(
                f"{host.name}: --save-dir {args.save_dir} is not the folder that this host sees: share it (NFS, Lustre, …)"
            )
        elif answer["free_gb"] < args.need_gb:
            found.append(f"{host.name}: {answer['free_gb']} GB are free in --save-dir, --need-gb is {args.need_gb:g}")
        if not answer["gpus"] and answer["has_nvidia"] and not args.cpu:
            found.append(
                f"{host.name}: it has an NVIDIA GPU that PyTorch {answer['torch']} does not see: look at 'nvidia-smi' and at "
                "torch.version.cuda there (None means a PyTorch for CPUs), or give --cpu to train without"
            )
        elif on_gpus and answer["gpus"] < host.slots:
            found.append(f"{host.name}: the hostfile says slots={host.slots}, PyTorch sees {answer['gpus']} GPUs there")
    return found


def parse(question: str, line: str) -> dict[str, Any]:
    """A host's answer; anything else becomes its ``error``."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    expected = ANSWER_KEYS if question == "look" else {"all_reduce"}
    if not isinstance(answer, dict) or not expected <= answer.keys():
        return {"error": f"'{question}' got an answer of another kind, as from another version of this package: {line[:200]!r}"}
    return answer


def _ask(args: argparse.Namespace, hosts: Sequence[Host], questions: list[list[str]], what: str) -> list[dict[str, Any]]:
    """Put a question to every host, all at once."""
    with ThreadPoolExecutor(len(hosts)) as pool:
        asked = pool.map(lambda pair: _ask_one(args, *pair), zip(hosts, questions, strict=True))
        return list(tqdm(asked, desc=what, total=len(hosts), leave=False, disable=None))


def _ask_one(args: argparse.Namespace, host: Host, question: list[str]) -> dict[str, Any]:
    port = () if args.ssh_port is None else ("-p", str(args.ssh_port))
    remote = shlex.join([sys.executable, "-m", "fairseq_posenc.deepspeed.probe", *question])
    command = [*SSH, *port, *shlex.split(os.environ.get("PDSH_SSH_ARGS_APPEND", "")), host.name, remote]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer to '{question[0]}' within {args.timeout:g} s (--timeout)"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return parse(question[0], lines[-1])
    said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
    if done.returncode == 255:  # ssh's own
        return {"error": f"ssh cannot reach it: {said}. 'ssh {host.name} true' must work without a password"}
    return {"error": f"'{question[0]}' failed: {said}"}
