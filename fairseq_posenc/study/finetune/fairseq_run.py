"""One run of fairseq's trainer in this process, as ``fairseq-train`` would do it, and the outputs of the model that it saves."""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.models import BaseFairseqModel
from omegaconf import DictConfig, open_dict
from torch import Tensor, nn
from torch.multiprocessing import ProcessRaisedException

from ...plugin.models.building import parse
from ...plugin.models.checkpoint import Checkpoint
from ..engine.grid import DIVERGENCE, LOG, Diverged, Progress

MAX_TOKENS = 8192  # of a batch of inference, padding included


def configure(arch: str, model: DictConfig, arguments: Sequence[str]) -> DictConfig:
    """Return the configuration of ``fairseq-train ARGUMENTS --arch ARCH``, but with a model's complete options.

    Raises:
        InputError: fairseq-train rejects the arguments; names them.
    """
    cfg = parse(["--arch", arch, *arguments])
    with open_dict(cfg):
        cfg.model = model
    return cfg


def options_set(arch: str, arguments: Sequence[str], flags: Sequence[str]) -> dict[str, Any]:
    """Return the options, by name, that ``flags`` of ``fairseq-train ARGUMENTS --arch ARCH`` set; one may have several flags."""
    parser = options.get_training_parser()
    known = options.parse_args_and_arch(parser, ["--arch", arch, *arguments])  # which declares the flags of the task and others
    parser.set_defaults(**dict.fromkeys(vars(known)))
    for action in parser._actions:
        action.required = False
    return {name: value for name, value in vars(parser.parse_args([*flags])).items() if value is not None}


def train(cfg: DictConfig, progress: Progress) -> None:
    """Train; fairseq's log is written to :data:`.LOG` in the save directory. A killed run resumes from its last epoch.

    Raises:
        Diverged: the gradients are no longer finite.
        Exception: any that fairseq raises for another reason.
    """
    from fairseq_cli import train as command

    folder = Path(cfg.checkpoint.save_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        several = cfg.distributed_training.distributed_world_size > 1
        in_each = {"after_distributed_init_fn": partial(_log_of_process, folder / LOG)} if several else {}
        with _logging_to(folder / LOG, progress, cfg.optimization.max_epoch):
            distributed_utils.call_main(cfg, command.main, **in_each)
    except (FloatingPointError, ProcessRaisedException) as error:  # the latter with one process per GPU
        reason = DIVERGENCE.search(str(error))
        if reason is None:
            raise
        (folder / "crash.pt").unlink(missing_ok=True)  # fairseq's copy of the useless model
        raise Diverged(f"{reason[0]}; see {LOG}") from error


def load(checkpoint: Path) -> BaseFairseqModel:
    """Return a model that :func:`train` has saved, for inference, or raise InputError or OSError if the file is damaged."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)  # which would go through the progress bar
    try:
        return Checkpoint(checkpoint).model
    finally:
        logging.disable(before)


class _Reporter(logging.Handler):
    """Turns the statistics that fairseq logs as JSON into a few words and the share of the epochs that is done."""

    def __init__(self, progress: Progress, epochs: int) -> None:
        super().__init__(logging.INFO)
        self._progress, self._epochs = progress, max(epochs, 1)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name in ("train_inner", "train", "valid"):
            with suppress(ValueError, KeyError, TypeError):  # a message of another kind
                statistics = json.loads(record.getMessage())
                loss = statistics.get("loss", statistics.get("train_loss", statistics.get("valid_loss")))
                part = "validation" if record.name == "valid" else "training"
                done = float(statistics.get("update", statistics["epoch"])) / self._epochs
                self._progress(f"epoch {statistics['epoch']}, {part} loss {loss}", min(done, 0.99))


class _LogFile(logging.FileHandler):
    """A log that ends when the disk is full, without a traceback per line; checkpoints and results raise their own error."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")
        self.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def _log_of_process(path: Path, cfg: DictConfig) -> DictConfig:
    """Write the log of a process that fairseq has started to the same file; returns ``cfg``."""
    root = logging.getLogger()
    if not any(isinstance(handler, _LogFile) for handler in root.handlers):
        root.handlers = [_LogFile(path)]
    return cfg


@contextmanager
def _logging_to(path: Path, progress: Progress, epochs: int) -> Iterator[None]:
    """In this context, Python's log is written to a file and to ``progress`` instead of the terminal."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    to_file = _LogFile(path)
    root.handlers = [to_file, _Reporter(progress, epochs)]
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        to_file.close()
        root.handlers = handlers
        root.setLevel(level)


@torch.inference_mode()
def infer(model: nn.Module, sequences: Sequence[np.ndarray], forward: Callable[[Tensor], Tensor], pad: int) -> list[np.ndarray]:
    """Return ``forward`` of every sequence, in their order, computed in batches of similar lengths.

    Args:
        model: in evaluation mode; moved to the GPU if there is one.
        sequences: ids of tokens, each of its own length.
        forward: (B, n) int64, padded on the right -> (B, …), or (B, n, …), of which each sequence gets its own n.

    Raises:
        Diverged: a number is not finite.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    results: list[np.ndarray] = [np.empty(0)] * len(sequences)
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
    while order:
        longest = max(1, len(sequences[order[0]]))
        batch = order[: max(1, MAX_TOKENS // longest)]
        order = order[len(batch) :]
        tokens = torch.full((len(batch), longest), pad, dtype=torch.int64)
        for row, i in enumerate(batch):
            tokens[row, : len(sequences[i])] = torch.from_numpy(sequences[i].astype(np.int64))
        output = forward(tokens.to(device)).float().cpu().numpy()
        for row, i in enumerate(batch):
            results[i] = output[row, : len(sequences[i])] if output.ndim == 3 else output[row]
            if not np.isfinite(results[i]).all():
                raise Diverged("the trained model's scores are not finite")
    return results
