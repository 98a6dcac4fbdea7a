"""Compiles the band kernels for a CUDA architecture, given as 80 or 90, as they are when a scheme trains; needs no GPU.

    python tests/core/attention/compile_band.py 90                      of one scheme, quickly
    python tests/core/attention/compile_band.py 90 tisa m4m --jobs 8
    python tests/core/attention/compile_band.py 90 all --dtypes bf16,fp16,fp32 --head-dims 32,64,128

Attention binds each scheme's own terms and runs forward and backward on the CPU, where the kernels, in place of being started,
are compiled for the arguments that they get. Prints what every program takes: shared memory, registers, bytes of a thread that
are in memory rather than in registers, and the products of its machine code. Fails where shared memory is more than there is, or
where another length or number of sequences makes another program. What is compiled is in Triton's cache, so that a GPU of this
architecture finds it there.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget

from fairseq_posenc.core.attention import BACKENDS, Call, Mask
from fairseq_posenc.core.attention.band import function
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import Positions, Settings
from fairseq_posenc.core.terms import Terms, Window
from fairseq_posenc.core.transformer import layers

SHARED = {80: 163, 86: 99, 89: 99, 90: 227}  # KiB that a program may take
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CASES = {  # padding, documents, causal, dropout
    "dropout": (False, False, False, 0.1),
    "padding": (True, False, False, 0.0),
    "packed": (True, True, False, 0.1),
    "causal": (True, False, True, 0.1),
}
PRODUCTS = {"wgmma": r"wgmma\.mma_async", "mma": r"mma\.sync", "fma": r"fma\.rn\.f32", "shuffles": r"shfl\.sync\.idx"}
BINARIES = Path(triton.__file__).parent / "backends/nvidia/bin"

Launch = tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]
"""A kernel, its grid, arguments and options."""


class Target:
    """Stands in for CUDA's driver, of which Triton asks what to compile for."""

    def __init__(self, architecture: int) -> None:
        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Recorder:
    """Stands in for a kernel, and remembers what it is started with."""

    def __init__(self, kernel: Any, launches: list[Launch]) -> None:
        self._kernel, self._launches = kernel, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments, **options: self._launches.append((self._kernel, grid, arguments, options))


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """The launches meanwhile."""
    launches: list[Launch] = []
    kernels = {name: Recorder(getattr(function, name), launches) for name in ("forward_kernel", "backward_kernel")}
    with mock.patch.multiple(function, **kernels):
        yield launches


def launches_of(
    name: str, case: str, dtype: torch.dtype, head_dim: int, heads: int = 12, batches: int = 2, n: int = 64
) -> list[Launch]:
    """What attention of a scheme starts in training; nothing where it is refused."""
    padded, packed, causal, dropout = CASES[case]
    try:
        positions = Positions(expressions().get(name, name), Settings(1, heads, heads * head_dim, n, 2)).to(dtype)
        own = positions.terms(Window(n, causal=causal))
    except ValueError:
        return []  # a scheme without a causal form
    x = torch.zeros(batches, n, heads * head_dim, dtype=dtype, requires_grad=True)
    terms: Terms = layers.Attention(heads * head_dim, heads).to(dtype).project(own.of(0, x))
    call = Call(torch.device("cuda"), dtype, head_dim, n, n, dropout)
    if BACKENDS["band"].objection(terms, call):
        return []
    documents = torch.zeros(batches, n, dtype=torch.int32) if packed else None
    mask = Mask(torch.zeros(batches, n, dtype=torch.bool) if padded else None, causal, documents)
    q, k, v = (torch.zeros(batches, heads, n, head_dim, dtype=dtype, requires_grad=True) for _ in "qkv")
    with recorded() as launches:
        BACKENDS["band"].bind(terms, mask, call)(q, k, v)[0].sum().backward()
    return launches


def compiled(launch: Launch) -> Any:
    """The program, or None where the hook leaves it out."""
    kernel, grid, arguments, options = launch
    return kernel.warmup(*arguments, grid=grid, **options)


def describe(built: Any, architecture: int) -> str:
    """What a program takes.

    Raises:
        AssertionError: more shared memory than there is.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        usage = subprocess.run([BINARIES / "cuobjdump", "-res-usage", file.name], stdout=subprocess.PIPE, text=True, check=True)
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", usage.stdout).groups()
    counts = {name: len(re.findall(mark, built.asm["ptx"])) for name, mark in PRODUCTS.items()}
    products = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    assert built.metadata.shared <= SHARED[architecture] * 1024, f"{built.metadata.shared} bytes of shared memory"
    return f"{built.metadata.shared / 1024:.0f} KiB shared, {registers} registers, {stack} bytes of stack; {products}"


def run(args: argparse.Namespace, rank: int) -> None:
    """Compile this process's share."""
    triton.runtime.driver.set_active(Target(args.architecture))
    knobs.runtime.jit_cache_hook = lambda *, key, **_: zlib.crc32(str(key).encode()) % args.jobs != rank
    names = {"": ["m4m"], "all": list(expressions())}.get(" ".join(args.names), args.names)
    seen: dict[str, str] = {}
    for name in names:
        for dtype in args.dtypes.split(","):
            for head_dim in map(int, args.head_dims.split(",")):
                for case in args.cases.split(","):
                    first = launches_of(name, case, DTYPES[dtype], head_dim)
                    other = launches_of(name, case, DTYPES[dtype], head_dim, batches=3, n=75)
                    for launch, again in zip(first, other, strict=True):
                        walk = next((argument for argument in launch[2] if isinstance(argument, str)), "forward")
                        built = compiled(launch)
                        if built is None or built.hash in seen:
                            continue
                        seen[built.hash] = f"{name}, {case}, {dtype}, {head_dim} features, {walk}"
                        print(f"{seen[built.hash]}: {describe(built, args.architecture)}", flush=True)
                        assert compiled(again) is built, "another length, or number of sequences, makes another program"


def main() -> None:
    """Read the arguments; start the processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("architecture", type=int, choices=SHARED)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtypes", default="bf16")
    parser.add_argument("--head-dims", default="64")
    parser.add_argument("--cases", default="dropout,padding")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rank", type=int)
    args = parser.parse_args()
    if args.rank is not None or args.jobs == 1:
        run(args, args.rank or 0)
        return
    children = [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank)]) for rank in range(args.jobs)]
    sys.exit(max([abs(child.wait()) for child in children]))


if __name__ == "__main__":
    assert os.environ.get("TRITON_INTERPRET") != "1", "TRITON_INTERPRET=1 is set, and nothing would be compiled"
    main()
