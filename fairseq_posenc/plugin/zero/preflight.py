"""Check every host before a run on several, and print one table.

By ssh, as the run will be started, it checks that each host answers; that Python, PyTorch, DeepSpeed, fairseq and this package
are installed and the same; that PyTorch sees a GPU for each slot, of the same model everywhere, or that no host has any; that
the data exist and are the same; that --save-dir is one shared folder with room; and that all hosts together can sum numbers, and
how fast. The exit status is 0 if a run can start.

    fairseq-posenc preflight --hostfile hosts --data /data/bin --save-dir /shared/checkpoints

This module is also the program of each check on a host; the last line of its output is JSON. TOKEN is a file in --save-dir.

    python -m fairseq_posenc.plugin.zero.preflight look DATA TOKEN
    python -m fairseq_posenc.plugin.zero.preflight all-reduce RANK ADDRESS PORT HOSTS SECONDS
"""

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from tabulate import tabulate

from ...base.commands import option, show
from ...base.errors import InputError
from ...base.version import __version__

SUMMED_BYTES = 64 * 10**6
NVIDIA = "0x10de"  # the vendor's number on the PCI bus
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
SAME_ON_ALL = {"python": "Python", "torch": "PyTorch", "deepspeed": "DeepSpeed", "fairseq": "fairseq",
               "package": "fairseq_posenc", "gpu": "GPU", "data": "data"}  # fmt: skip
REQUIRED = ("deepspeed", "fairseq")
ANSWER_KEYS = {*SAME_ON_ALL, "gpus", "has_nvidia", "missing", "shared", "free_gb"}
COLUMNS = {"host": "host", **SAME_ON_ALL, "gpus": "GPUs", "free_gb": "free GB", "all_reduce": "all-reduce"}


class Host(NamedTuple):
    """A line of the hostfile."""

    name: str
    slots: int


@dataclass
class Options:
    """The command's flags."""

    hostfile: Path = option("as for deepspeed: one line 'HOST slots=N' per host", metavar="FILE")
    data: str = option("on every host: the data-bin, several as fairseq-train takes them, or the folder of 'prepare --shards'",
                       metavar="DIR[:DIR…]")  # fmt: skip
    save_dir: Path = option("the run's folder of checkpoints; made if it does not exist", metavar="DIR")
    cpu: bool = option("the run will use --cpu too: slots are processes, and GPUs are ignored", False)
    need_gb: float = option("room required in --save-dir", 50, metavar="GB")
    master_addr: str | None = option("where the hosts connect (default: the first of the hostfile)", None, metavar="ADDRESS")
    master_port: int = option("port of --master-addr", 29501, metavar="PORT")
    timeout: float = option("for each check of a host", 120, metavar="SECONDS")


def main(options: Options) -> None:
    """Run the command."""
    hosts = read_hostfile(options.hostfile)
    token = Path(options.save_dir.absolute(), f".preflight-{uuid.uuid4().hex}")
    token.parent.mkdir(parents=True, exist_ok=True)
    token.touch()
    try:
        data = os.pathsep.join(str(Path(path).absolute()) for path in options.data.split(os.pathsep))
        answers = _check(hosts, [["look", data, str(token)]] * len(hosts), options)
    finally:
        token.unlink(missing_ok=True)
    if len(hosts) > 1 and not any("error" in answer for answer in answers):
        address = options.master_addr or hosts[0].name
        meeting = [address, str(options.master_port), str(len(hosts)), str(options.timeout / 2)]
        timed = _check(hosts, [["all-reduce", str(rank), *meeting] for rank in range(len(hosts))], options)
        for answer, result in zip(answers, timed, strict=True):
            answer.update(result)
    show(table(hosts, answers))
    if faults := problems(hosts, answers, options):
        raise InputError("a run cannot start yet:\n" + "\n".join(f"  {fault}" for fault in faults))
    if not options.cpu and not any(answer["gpus"] for answer in answers):
        show("\nwarning: no host has a GPU, so slots are processes on CPUs, and training needs --cpu")
    show(f"\nready; hosts: {len(hosts)}, processes: {sum(host.slots for host in hosts)}")


def read_hostfile(path: Path) -> list[Host]:
    """Parse DeepSpeed's hostfile.

    Raises:
        InputError: a line is malformed, or a host is listed twice; the message has the line's number.
        OSError: the file cannot be read.
    """
    hosts: dict[str, Host] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = re.fullmatch(r"(\S+)\s+slots=(0*[1-9]\d*)", text, re.ASCII)
        if not match:
            raise InputError(f"{path}, line {number}: expected 'HOST slots=N', found {line!r}")
        name = match[1]
        if name.startswith("-"):
            raise InputError(f"{path}, line {number}: ssh would take the host {name!r} for an option: correct its name")
        if name in hosts:
            raise InputError(f"{path}, line {number}: {name} is listed twice; give it one line with all its slots")
        hosts[name] = Host(name, int(match[2]))
    if not hosts:
        raise InputError(f"{path} names no host; write one line 'HOST slots=N' for each")
    return [*hosts.values()]


def table(hosts: Sequence[Host], answers: Sequence[dict[str, Any]]) -> str:
    """Return one row per host."""
    rows = [{"host": host.name, **answer} for host, answer in zip(hosts, answers, strict=True)]
    cells = [[str(row.get(key, "–")) for key in COLUMNS] for row in rows]
    return tabulate(cells, COLUMNS.values(), "plain", disable_numparse=True)


def problems(hosts: Sequence[Host], answers: Sequence[dict[str, Any]], options: Options) -> list[str]:
    """Return a sentence for each fault, with what to do."""
    found = [f"{host.name}: {answer['error']}" for host, answer in zip(hosts, answers, strict=True) if "error" in answer]
    answering = [(host, answer) for host, answer in zip(hosts, answers, strict=True) if "python" in answer]
    on_gpus = any(answer["gpus"] for _, answer in answering)
    for host, answer in answering:
        first, reference = answering[0]
        for key, name in SAME_ON_ALL.items():
            if answer[key] != reference[key]:
                found.append(f"{host.name} has {name} {answer[key]}, {first.name} has {reference[key]}: make them the same")
        found += [f"{host.name}: {SAME_ON_ALL[key]} is not installed" for key in REQUIRED if answer[key] == "missing"]
        for path in answer["missing"]:
            found.append(f"{host.name}: there is no data-bin {path} (with dict.txt and train.bin): copy or mount it")
        if not answer["shared"]:
            found.append(f"{host.name}: --save-dir {options.save_dir} is another folder on this host: share it (NFS, Lustre, …)")
        elif answer["free_gb"] < options.need_gb:
            found.append(f"{host.name}: {answer['free_gb']} GB are free in --save-dir, --need-gb is {options.need_gb:g}")
        if not answer["gpus"] and answer["has_nvidia"] and not options.cpu:
            found.append(
                f"{host.name}: PyTorch {answer['torch']} does not see this host's NVIDIA GPU: look at 'nvidia-smi' and at "
                "torch.version.cuda there (None means a PyTorch for CPUs), or give --cpu to train without"
            )
        elif on_gpus and answer["gpus"] < host.slots:
            found.append(f"{host.name}: the hostfile has slots={host.slots}, and PyTorch sees {answer['gpus']} GPUs")
    return found


def parse(check: str, line: str) -> dict[str, Any]:
    """Return the result of a check on a host; for a line that is not a result, its ``error``."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    expected = ANSWER_KEYS if check == "look" else {"all_reduce"}
    if not isinstance(answer, dict) or not expected <= answer.keys():
        return {"error": f"'{check}' printed an unknown result, perhaps of another version of this package: {line[:200]!r}"}
    return answer


def _check(hosts: Sequence[Host], checks: list[list[str]], options: Options) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(lambda host, check: _check_one(host, check, options.timeout, options.cpu), hosts, checks))


def _check_one(host: Host, check: list[str], timeout: float, cpu: bool) -> dict[str, Any]:
    without_gpus = ["env", "CUDA_VISIBLE_DEVICES="] if cpu else []
    remote = shlex.join([*without_gpus, sys.executable, "-m", "fairseq_posenc.plugin.zero.preflight", *check])
    command = [*SSH, *shlex.split(os.environ.get("PDSH_SSH_ARGS_APPEND", "")), host.name, remote]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer to '{check[0]}' within {timeout:g} s (--timeout)"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return parse(check[0], lines[-1])
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if done.returncode == 255:  # of ssh itself
        return {"error": f"ssh cannot reach it: {reason}. 'ssh {host.name} true' must work without a password"}
    return {"error": f"'{check[0]}' failed: {reason}"}


def look(data: str, token: str) -> dict[str, Any]:
    """Return versions, GPUs, the state of the data, and whether this host sees ``token``, a file in the folder of checkpoints."""
    import torch

    folder = Path(token).parent
    gpus = torch.cuda.device_count()
    bins = data_bins(data)
    missing = [str(path) for path in bins if not is_data_bin(path)]
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "deepspeed": _version("deepspeed"),
        "fairseq": _version("fairseq"),
        "package": __version__,
        "gpus": gpus,
        "gpu": torch.cuda.get_device_name(0) if gpus else "none",
        "has_nvidia": any(path.read_text().strip() == NVIDIA for path in Path("/sys/bus/pci/devices").glob("*/vendor")),
        "data": "missing" if missing else fingerprint(bins),
        "missing": missing,
        "shared": Path(token).exists(),
        "free_gb": round(shutil.disk_usage(folder).free / 1e9, 1) if folder.is_dir() else 0.0,
    }


def data_bins(data: str) -> list[Path]:
    """Return the data-bins that DATA names: one, several separated by ``:``, or a folder with prepare's ``shards.txt``."""
    shards = Path(data, "shards.txt")
    listed = shards.read_text(encoding="utf-8").strip() if shards.is_file() else data
    return [Path(path) for path in listed.split(os.pathsep)]


def is_data_bin(folder: Path) -> bool:
    """Return whether a folder has a dictionary and training data."""
    return (folder / "dict.txt").is_file() and any(folder.glob("train*.bin"))


def fingerprint(bins: Sequence[Path]) -> str:
    """Return a digest of the names and sizes of data-bins' files and of their dictionaries, as 8 hexadecimal digits."""
    digest = hashlib.sha256()
    for folder in bins:
        digest.update((folder / "dict.txt").read_bytes())
        for path in sorted(folder.iterdir()):
            if path.suffix in (".bin", ".idx"):
                digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()[:8]


def all_reduce(rank: str, address: str, port: str, hosts: str, seconds: str) -> dict[str, Any]:
    """Sum numbers over all hosts, once to connect and once timed; return the rate at which each host sends."""
    import torch
    from torch import distributed

    device = "cuda" if torch.cuda.is_available() else "cpu"
    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"tcp://{address}:{port}",
        rank=int(rank),
        world_size=int(hosts),
        timeout=timedelta(seconds=float(seconds)),
    )
    numbers = torch.ones(SUMMED_BYTES // 4, device=device)
    distributed.all_reduce(numbers)
    numbers[0].item()  # waits for the device
    start = time.perf_counter()
    distributed.all_reduce(numbers)
    total = numbers[0].item()
    duration = time.perf_counter() - start
    if total != int(hosts) ** 2:
        raise ArithmeticError(f"the sum over {hosts} hosts is {total} in place of {int(hosts) ** 2}")
    distributed.barrier()
    distributed.destroy_process_group()
    sent = 2 * (int(hosts) - 1) / int(hosts) * numbers.nbytes
    return {"all_reduce": f"{duration * 1000:.0f} ms, {sent / duration / 1e9:.2f} GB/s"}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a package that is only on PYTHONPATH has no version
        return "unknown" if find_spec(package) else "missing"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    checks: dict[str, Callable[..., Any]] = {"look": look, "all-reduce": all_reduce}
    print(json.dumps(checks[sys.argv[1]](*sys.argv[2:])))
