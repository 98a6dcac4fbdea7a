"""``fairseq-train`` itself, timed by its log: data loading, logging and optimizer included."""

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..data.databin import DatabinWriter, files_of
from ..errors import InputError
from ..ownership import own
from ..runs.grid import Progress
from ..runs.process import execute
from . import results_table
from .flags import Options
from .steps import WORDS, Contender
from .work import Machine, Shape, timing

INTERVAL = 5  # updates per line of the log, each of which has the speed since the line before
WARM_UP = 2  # lines left out: the first includes the start, the second includes compilation and filling caches
MIN_UPDATES = INTERVAL * (WARM_UP + 1)  # with one line to time
MAX_DIFFERENCE = 0.01  # of the tokens per update from the baseline's, relative
LINE = 512  # tokens of a line of the generated data
PROGRAM = "from fairseq_cli.train import cli_main; cli_main()"
OPTIMIZATION = """
    --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1.0
    --lr-scheduler polynomial_decay --lr 1e-4 --warmup-updates 100 --total-num-update 10000
    --task masked_lm --criterion masked_lm --sample-break-mode none --seed 1
    --no-save --disable-validation --log-format json --valid-subset train
"""


class Speed(NamedTuple):
    """The speed of one run, without its warm-up."""

    seconds: float  # per update
    tokens: float  # per update
    memory: float | None  # bytes: the peak on a GPU; on a CPU the whole process's


class Trainings:
    """Times ``fairseq-train`` of a contender and of the baseline in turn, each run in a separate process."""

    def __init__(self, baseline: Contender, machine: Machine, options: Options, data: Path, locks: Sequence[int]) -> None:
        self._baseline, self._machine, self._options, self._data, self._locks = baseline, machine, options, data, locks

    def __call__(self, contender: Contender, shape: Shape, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return ``ran``, ``refused`` and ``timings`` of a :data:`.results_table.Result`."""
        both = ((contender, folder / "train.log"), (self._baseline, folder / "baseline.log"))
        runs = []
        for _ in range(self._options.repeats):
            runs.append([self._train(model, shape, log, progress) for model, log in both])
            tokens, others = (speed.tokens for speed in runs[0])
            if abs(tokens / others - 1) > MAX_DIFFERENCE:
                raise InputError(
                    f"--train-flags {shlex.join(self._options.train_flags)}: an update of {contender.model} has {tokens:,.0f} "
                    f"tokens, and one of {self._baseline.model} {others:,.0f}. Leave out what changes the batches."
                )
        memory = max((speed.memory for speed, _ in runs if speed.memory is not None), default=None)
        seconds = [(speed.seconds, baseline.seconds) for speed, baseline in runs]
        flops = contender.step_flops(shape)
        found = timing(seconds, round(tokens), flops and flops * tokens / shape.batch, memory, self._machine.peak)
        return {"ran": contender.backend, "refused": None, "timings": {results_table.TRAINING: found}}

    def _train(self, contender: Contender, shape: Shape, log: Path, progress: Progress) -> Speed:
        gpu = torch.cuda.get_device_properties(self._machine.device).total_memory if self._machine.on_gpu else None
        device = ["--cpu"] if gpu is None else ["--device-id", self._machine.device.index or 0, "--distributed-world-size", 1]
        ours = [] if contender.expression is None else ["--attention-backend", contender.backend, *self._options.train_flags]
        flags = [
            *("--arch", contender.model, "--encoder-layers", shape.layers, "--encoder-attention-heads", shape.heads),
            *("--encoder-embed-dim", shape.dim, "--encoder-ffn-embed-dim", shape.ffn_dim, "--max-positions", shape.tokens),
            *("--tokens-per-sample", shape.tokens, "--batch-size", shape.sequences),
            *("--max-update", self._options.updates, "--log-interval", INTERVAL),
            *device,
            *(["--bf16"] if self._options.bf16 else []),
            *ours,
        ]
        progress(f"fairseq-train --arch {contender.model}")
        return run([str(self._data), *OPTIMIZATION.split(), *map(str, flags)], log, gpu, self._locks)


def run(flags: Sequence[str], log: Path, device_bytes: int | None, locks: Sequence[int]) -> Speed:
    """Run ``fairseq-train`` in a separate process.

    Args:
        log: its output is appended to this file.
        device_bytes: a GPU's memory; None on a CPU.
        locks: file descriptors that the process holds open.

    Raises:
        ChildProcessError: it failed; the message has the end of its output.
    """
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}  # fairseq's own, about future releases of PyTorch
    status, output, usage = execute([sys.executable, "-c", PROGRAM, *flags], log, quiet, locks)
    if status:
        last = "\n".join(output.rstrip().splitlines()[-5:])
        raise ChildProcessError(f"fairseq-train ended with status {status} ({log}):\n{last}")
    return read(output, usage.ru_maxrss * 1024 if device_bytes is None else None, device_bytes)


def read(output: str, process_bytes: int | None, device_bytes: int | None) -> Speed:
    """Return the speed that a run has logged.

    Raises:
        ChildProcessError: it has logged too little.
    """
    lines: list[dict[str, Any]] = [json.loads(found) for found in re.findall(r"train_inner\b[^{\n]*(\{.*\})", output)]
    timed = lines[WARM_UP:]
    if not timed:
        raise ChildProcessError(f"fairseq-train has logged {len(lines)} of the {WARM_UP + 1} lines that are needed")
    per_update = [float(line["wpb"]) / float(line["wps"]) for line in timed]
    free = [float(line["gb_free"]) for line in lines if "gb_free" in line]
    used = device_bytes - min(free) * 2**30 if free and device_bytes is not None else process_bytes
    tokens = sum(float(line["wpb"]) for line in timed) / len(timed)
    return Speed(sum(per_update) / len(per_update), tokens, used)


def write_data(folder: Path, symbols: int, tokens: int) -> None:
    """Write a data-bin of ``tokens`` tokens drawn at random from ``symbols`` symbols: training data in lines of ``LINE``."""
    from ..models.building import dictionary_of

    folder.mkdir(exist_ok=True)
    own(folder / "dict.txt", *files_of(folder / "train"))
    dictionary = dictionary_of(symbols - 1)  # the task adds <mask>
    dictionary.save(str(folder / "dict.txt"))
    lines = -(-tokens // LINE)
    ids = np.random.default_rng(1).integers(WORDS, symbols - 1, (lines, LINE))
    ids[:, -1] = dictionary.eos()
    with DatabinWriter(folder / "train", np.dtype(np.uint16 if symbols < 65500 else np.uint32), symbols) as writer:
        writer.add(ids.reshape(-1), np.full(lines, LINE))
        writer.finish()
