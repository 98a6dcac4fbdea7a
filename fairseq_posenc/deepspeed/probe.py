"""What preflight runs on each host; its last line of output is JSON.

python -m fairseq_posenc.deepspeed.probe look DATA TOKEN                 (TOKEN is a file in the folder of checkpoints)
python -m fairseq_posenc.deepspeed.probe all-reduce RANK ADDRESS PORT HOSTS MB SECONDS
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..version import __version__

NVIDIA = "0x10de"  # the vendor's number on the PCI bus


def look(data: str, token: str) -> dict[str, Any]:
    """Versions, GPUs, the data, and whether the folder of checkpoints is the one that ``token`` was put into."""
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
        "gpu": f"{gpus} × {torch.cuda.get_device_name(0)}" if gpus else "none",
        "has_nvidia": any(path.read_text().strip() == NVIDIA for path in Path("/sys/bus/pci/devices").glob("*/vendor")),
        "data": "missing" if missing else fingerprint(bins),
        "missing": missing,
        "shared": Path(token).exists(),
        "free_gb": round(shutil.disk_usage(folder).free / 1e9, 1) if folder.is_dir() else 0.0,
    }


def data_bins(data: str) -> list[Path]:
    """The data-bins that DATA names: one, several separated by ``:``, or a folder with prepare's ``shards.txt``."""
    shards = Path(data, "shards.txt")
    listed = shards.read_text(encoding="utf-8").strip() if shards.is_file() else data
    return [Path(path) for path in listed.split(os.pathsep)]


def is_data_bin(folder: Path) -> bool:
    """Whether fairseq finds a dictionary and training data there."""
    return (folder / "dict.txt").is_file() and any(folder.glob("train*.bin"))


def fingerprint(bins: Sequence[Path]) -> str:
    """Names and sizes of data-bins' files and the content of their dictionaries, as 8 hexadecimal digits."""
    digest = hashlib.sha256()
    for folder in bins:
        digest.update((folder / "dict.txt").read_bytes())
        for path in sorted(folder.iterdir()):
            if path.suffix in (".bin", ".idx"):
                digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()[:8]


def all_reduce(rank: str, address: str, port: str, hosts: str, megabytes: str, seconds: str) -> dict[str, Any]:
    """Average numbers over all hosts, once to connect and once timed; the rate is what each host sends."""
    import torch
    from torch import distributed

    cuda = torch.cuda.is_available()
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"tcp://{address}:{port}",
        rank=int(rank),
        world_size=int(hosts),
        timeout=timedelta(seconds=float(seconds)),
    )
    numbers = torch.ones(int(float(megabytes) * 1e6 / 4), device="cuda" if cuda else "cpu")
    distributed.all_reduce(numbers)
    _wait(cuda)
    start = time.perf_counter()
    distributed.all_reduce(numbers)
    _wait(cuda)
    duration = time.perf_counter() - start
    if numbers[0].item() != int(hosts) ** 2:
        raise ArithmeticError(f"averaging over {hosts} hosts gave {numbers[0].item()} in place of {int(hosts) ** 2}")
    distributed.barrier()
    distributed.destroy_process_group()
    sent = 2 * (int(hosts) - 1) / int(hosts) * numbers.nbytes
    return {"all_reduce": f"{duration * 1000:.0f} ms, {sent / duration / 1e9:.2f} GB/s"}


def _wait(cuda: bool) -> None:
    if cuda:
        import torch

        torch.cuda.synchronize()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # what is only on PYTHONPATH has no version
        return "unknown" if find_spec(package) else "missing"


def main(arguments: Sequence[str]) -> None:
    """Answer one question."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    question, *rest = arguments
    questions: dict[str, Callable[..., Any]] = {"look": look, "all-reduce": all_reduce}
    print(json.dumps(questions[question](*rest)))


if __name__ == "__main__":
    main(sys.argv[1:])
