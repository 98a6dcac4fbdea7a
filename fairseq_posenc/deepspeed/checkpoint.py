"""Sharded checkpoints.

A checkpoint is a plain fairseq file and a folder of shards::

    save_dir/checkpoint_last.pt                fairseq's: weights, config, position in the data, meters; and the folder's name
    save_dir/shards/update00000050-1f0c9a3e/   DeepSpeed's: master weights and optimizer states, one file a process

Folders are written under another name, renamed when complete, and never written to again; only then the plain file appears,
by a rename too. So a kill at any moment leaves every checkpoint there was. Several plain files (``checkpoint_best.pt``,
``checkpoint_last.pt``) may name one folder, and a folder that no file names is removed before the next is written.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import uuid
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from ..compat import loading
from . import safe_loading
from .config import require_deepspeed

logger = logging.getLogger(__name__)

FOLDER = "shards"
PARTIAL = ".partial"
UNIVERSAL = "_universal"  # the same content in a form that any number of processes can load


@dataclass(frozen=True)
class Shards:
    """What a plain file says of its folder; plain values, since it is written into the file."""

    folder: str  # within save_dir/shards
    stage: int
    processes: int
    deepspeed: str  # its release

    @classmethod
    def of(cls, optimizer_state: Any) -> Shards | None:
        """From what a fairseq checkpoint has as its optimizer's state; None where that is a whole one, or none."""
        found = optimizer_state.get("shards") if isinstance(optimizer_state, dict) else None
        return None if found is None else cls(**found)

    def as_optimizer_state(self) -> dict[str, Any]:
        """What the plain file has in place of the optimizer's state."""
        return {"shards": asdict(self)}


def save(engine: Any, save_dir: Path, updates: int) -> Shards:
    """Write a folder of shards; called by all processes together.

    Raises:
        ValueError: ``save_dir`` is not one folder to all processes.
        OSError, RuntimeError: it cannot be written (a full disk); the checkpoints there were are as they were.
    """
    import deepspeed

    root = save_dir / FOLDER
    if distributed.get_rank() == 0:
        remove_unnamed(save_dir)
    name = _agreed(f"update{updates:08d}-{uuid.uuid4().hex[:8]}")
    engine.save_checkpoint(str(root), tag=name + PARTIAL, save_latest=False)
    processes = distributed.get_world_size()
    written = len(list((root / (name + PARTIAL)).glob("*_optim_states.pt")))
    if written != processes:
        raise ValueError(
            f"--save-dir {save_dir} is not shared by all hosts: this process sees the shards of {written} of {processes} "
            "processes. Name a folder on a file system that every host mounts at the same path."
        )
    distributed.barrier()
    if distributed.get_rank() == 0:
        os.rename(root / (name + PARTIAL), root / name)
    distributed.barrier()
    return Shards(name, int(engine.zero_optimization_stage()), processes, deepspeed.__version__)


def load(engine: Any, folder: Path) -> None:
    """Load master weights and optimizer states from a folder of shards; called by all processes together.

    Raises:
        FileNotFoundError: it is not there.
        RuntimeError: it cannot be read, or belongs to another model.
    """
    require(folder)
    path, _ = engine.load_checkpoint(str(folder.parent), tag=folder.name, load_lr_scheduler_states=False)
    if path is None:
        raise RuntimeError(f"{folder} cannot be loaded: files are missing or damaged. Restore from another checkpoint.")


def require(folder: Path) -> None:
    """Refuse a plain file that has lost its folder."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"The checkpoint keeps its optimizer in {folder}, which is not there. Copy that folder too when you copy a "
            "checkpoint, or take the weights alone: --finetune-from-model, or --restore-file with --reset-optimizer."
        )


def universal(folder: Path) -> Path:
    """Convert a folder of shards into the form that any number of processes loads; called by one process.

    It is kept beside the folder, and not made again.

    Raises:
        FileNotFoundError, RuntimeError: the folder is missing, damaged, or of a kind DeepSpeed cannot convert.
    """
    converted = folder.with_name(folder.name + UNIVERSAL)
    if converted.is_dir():
        return converted
    require(folder)
    safe_loading.apply()
    from deepspeed.checkpoint import ds_to_universal

    partial = folder.with_name(folder.name + UNIVERSAL + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    options = Namespace(
        input_folder=str(folder),
        output_folder=str(partial),
        num_extract_workers=1,
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=True,
    )
    logger.info(f"converting {folder} for another number of processes")
    with _quiet():
        ds_to_universal.main(options)
    os.rename(partial, converted)
    return converted


def master_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every parameter in float32, put together from a folder of shards.

    Raises:
        Refused: DeepSpeed is not installed.
        FileNotFoundError, RuntimeError: the folder is missing or damaged.
    """
    require_deepspeed()
    require(folder)
    safe_loading.apply()
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    try:
        with _quiet():
            return get_fp32_state_dict_from_zero_checkpoint(str(folder.parent), folder.name)
    except (ValueError, FileNotFoundError, KeyError) as error:
        raise RuntimeError(f"{folder} is damaged or incomplete: {error}. Use another checkpoint.") from error


def optimizer_state_of(file: Path) -> Any:
    """What a plain file has as its optimizer's state, without reading tensors into memory.

    Raises:
        Exception: whatever damaged files give; callers decide what that means.
    """
    with loading.safe_globals(loading.allowed_types()):
        state = torch.load(str(file), map_location="cpu", mmap=True, weights_only=True)
    return state.get("last_optimizer_state")


def remove_unnamed(save_dir: Path) -> None:
    """Remove the folders of shards that no checkpoint names; none where a checkpoint cannot be read."""
    root = save_dir / FOLDER
    if not root.is_dir():
        return
    named = set()
    for file in save_dir.glob("*.pt"):
        try:
            shards = Shards.of(optimizer_state_of(file))
        except Exception as error:
            logger.warning(f"no shards were removed from {root}, because {file.name} cannot be read: {error}")
            return
        if shards is not None:
            named |= {shards.folder, shards.folder + UNIVERSAL}
    for folder in root.iterdir():
        if folder.is_dir() and folder.name not in named:
            shutil.rmtree(folder)


def _agreed(name: str) -> str:
    """The first process's ``name``, in all."""
    names = [name]
    distributed.broadcast_object_list(names, src=0)
    return names[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Swallow what DeepSpeed's conversions print about every step."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
