"""One run of fairseq's trainer in this process, as ``fairseq-train`` would do it."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.models import BaseFairseqModel
from omegaconf import DictConfig, open_dict

Progress = Callable[[str], None]
"""Is told, a few times a minute, how far a run is."""


def configure(arch: str, model: DictConfig, arguments: Sequence[str], extra: str = "") -> DictConfig:
    """fairseq's configuration for ``fairseq-train ARGUMENTS EXTRA --arch ARCH`` with a model's complete options.

    Args:
        arch: the registered architecture.
        model: the model's options; they replace what the architecture fills in.
        arguments: flags of fairseq-train, without a shell's quoting.
        extra: more of them, in one string, as a user gave them.
    """
    parser = options.get_training_parser()
    namespace = options.parse_args_and_arch(parser, [*arguments, *shlex.split(extra), "--arch", arch])
    cfg = convert_namespace_to_omegaconf(namespace)
    with open_dict(cfg):
        cfg.model = model
    return cfg


def build(cfg: DictConfig) -> BaseFairseqModel:
    """The model that a configuration describes, freshly initialised."""
    with _quiet():
        return tasks.setup_task(cfg.task).build_model(cfg.model)


def train(cfg: DictConfig, log: Path, progress: Progress) -> None:
    """Train; what fairseq logs goes to ``log``. A run that was killed goes on from its last epoch.

    Raises:
        Whatever fairseq raises; the log then ends in the reason.
    """
    with _logging_to(log, progress):
        from fairseq_cli import train as command

        distributed_utils.call_main(cfg, command.main)


def load(checkpoint: Path) -> BaseFairseqModel:
    """A model that :func:`train` has saved, for inference."""
    with _quiet():
        (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    return model.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what fairseq logs, warnings excepted, from the terminal, where a progress bar is."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


class _Reporter(logging.Handler):
    """Turns the statistics that fairseq logs as JSON into a few words."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.name not in ("train_inner", "train", "valid") or not message.startswith("{"):
            return
        try:
            statistics: dict[str, Any] = json.loads(message)
        except json.JSONDecodeError:  # somebody else's message
            return
        loss = statistics.get("loss", statistics.get("train_loss", statistics.get("valid_loss")))
        part = "validation" if record.name == "valid" else "training"
        self._progress(f"epoch {statistics['epoch']}, {part} loss {loss}")


@contextmanager
def _logging_to(path: Path, progress: Progress) -> Iterator[None]:
    """While this is open, Python's log goes to a file and to ``progress`` rather than to the terminal."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    to_file = logging.FileHandler(path, encoding="utf-8")
    to_file.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    root.handlers = [to_file, _Reporter(progress)]
    root.setLevel(logging.INFO)
    try:
        yield
    except Exception:
        logging.getLogger(__name__).exception("stopped by an error")
        raise
    finally:
        to_file.close()
        root.handlers = handlers
        root.setLevel(level)
