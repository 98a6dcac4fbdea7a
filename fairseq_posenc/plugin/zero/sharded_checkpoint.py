"""Sharded checkpoints.

A checkpoint is a plain fairseq file and a folder of shards::

    save_dir/checkpoint_last.pt                weights, config, position in the data, meters; and the name of the folder
    save_dir/shards/update00000050-1f0c9a3e/   master weights and optimizer states, one file per process

A folder is written under another name, renamed when it is complete, and never written to again; only then does the plain file
appear, also by a rename. So a kill at any moment leaves every earlier checkpoint intact. Several plain files
(``checkpoint_best.pt``, ``checkpoint_last.pt``) may name the same folder. A folder that no file names is removed before the next
is written, if its record shows that training made it (:mod:`...base.ownership`).

A file in such a folder holds what :func:`.partition.collect` returns, so any number of processes at any ZeRO stage can read it.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import re
import reprlib
import uuid
from collections.abc import Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from ...base import ownership
from ...base.errors import InputError, first_line
from ...base.files import atomic_write
from ..checkpoint import loading
from ..processes.group import from_first_process, gather
from . import partition

logger = logging.getLogger(__name__)

FOLDER = "shards"
PARTIAL = ".partial"
FOLDER_NAME = re.compile(r"update\d{8,}-[0-9a-f]{8}")  # no other folder is read, such as ../elsewhere
MAKER = "train"  # in the folders' record
LABEL = "shard"  # in a file: which checkpoint it belongs to
MAX_PROCESSES = 10**6
PARTS = {"parameters", "groups", "scaler", "shared"}  # of a file, as :func:`.partition.collect` returns them
ZIP = b"PK"  # the first bytes of every file that torch.save writes in its default format


@dataclass(frozen=True)
class Shards:
    """What a plain file records about its folder of shards, in plain values."""

    folder: str  # within save_dir/shards
    processes: int
    optimizer: str  # fairseq's name
    format: int = 1

    @classmethod
    def of(cls, optimizer_state: Any) -> Shards | None:
        """Return the record in a fairseq checkpoint's optimizer state; None if that state is unsharded or missing.

        Raises:
            InputError: it is not a record of this format.
        """
        if not is_sharded(optimizer_state):
            return None
        match optimizer_state["shards"]:
            case {"folder": str(folder), "processes": int(processes), "optimizer": str(optimizer), "format": 1, **rest} if (
                not rest and FOLDER_NAME.fullmatch(folder) and 0 < processes < MAX_PROCESSES
            ):
                return cls(folder, processes, optimizer)
        raise InputError(
            f"the checkpoint names shards that this version has not written ({reprlib.repr(optimizer_state['shards'])}), so "
            "nothing was read. It is damaged, has been changed, or is of another version: use another checkpoint."
        )

    def as_optimizer_state(self) -> dict[str, Any]:
        """Return what the plain file holds in place of the optimizer's state."""
        return {"shards": asdict(self)}

    def files(self, save_dir: Path) -> list[Path]:
        """Return the files of all processes."""
        return [save_dir / FOLDER / self.folder / _name(rank) for rank in range(self.processes)]

    def label(self, rank: int) -> dict[str, Any]:
        """Return what the file of one process records about its checkpoint; the folder's name is unique."""
        return {"folder": self.folder, "processes": self.processes, "rank": rank}


def is_sharded(optimizer_state: Any) -> bool:
    """Return whether the optimizer state of a fairseq checkpoint refers to shards."""
    return isinstance(optimizer_state, dict) and "shards" in optimizer_state


def require_shared(save_dir: Path) -> None:
    """Check, before a run, that all processes see the same ``save_dir``; called by all of them together.

    Raises:
        InputError: they do not, or it cannot be written; the message names the hosts.
    """
    token, failure = Path(f".shared-{uuid.uuid4().hex}"), None
    if distributed.get_rank() == 0:
        try:
            save_dir.mkdir(parents=True, exist_ok=True)
            (save_dir / token).touch()
        except OSError as error:
            failure = f"--save-dir {save_dir} cannot be written on {platform.node()}: {error.strerror}"
    token, failure = from_first_process((token, failure))
    if failure is not None:
        raise InputError(failure)
    answers = gather((platform.node(), os.path.exists(save_dir / token)))
    if distributed.get_rank() == 0:
        (save_dir / token).unlink(missing_ok=True)
    if blind := sorted({host for host, sees in answers if not sees}):
        raise InputError(_not_shared(save_dir, f"{', '.join(blind)} cannot see what the first host writes there"))


def _not_shared(save_dir: Path, sign: str) -> str:
    return f"--save-dir {save_dir} is not shared by all hosts: {sign}. Name a folder that every host mounts at the same path."


def save(engine: Any, optimizer: str, save_dir: Path, updates: int) -> Shards:
    """Write a folder of shards; called by all processes together.

    Args:
        optimizer: fairseq's name of the one that the engine was given.

    Raises:
        InputError: not all processes see the same ``save_dir``.
        OSError, RuntimeError: it cannot be written (a full disk); earlier checkpoints are unchanged.
    """
    root, rank, processes = save_dir / FOLDER, distributed.get_rank(), distributed.get_world_size()
    name = from_first_process(f"update{updates:08d}-{uuid.uuid4().hex[:8]}")
    partial = root / (name + PARTIAL)
    shards = Shards(name, processes, optimizer)
    if rank == 0:
        remove_unnamed(save_dir)
        ownership.claim(partial, MAKER)
    distributed.barrier()
    partial.mkdir(parents=True, exist_ok=True)
    with atomic_write(partial / _name(rank), "wb") as stream:
        torch.save({**partition.collect(engine), LABEL: shards.label(rank)}, stream)
    distributed.barrier()
    if (written := len(list(partial.glob("*.pt")))) != processes:
        raise InputError(_not_shared(save_dir, f"process {rank} sees the shards of {written} of {processes} processes"))
    distributed.barrier()
    if rank == 0:
        os.rename(partial, root / name)
    distributed.barrier()
    return shards


def load(engine: Any, shards: Shards, save_dir: Path) -> None:
    """Set the engine's master weights and optimizer states from a folder of shards.

    Raises:
        FileNotFoundError: the folder does not exist.
        RuntimeError: it is damaged, or of another model.
    """
    parts = _read(shards, save_dir, together=True)
    try:
        partition.restore(engine, parts)
    except Exception as error:  # another model, or a file that holds something else
        raise RuntimeError(
            f"{save_dir / FOLDER / shards.folder} does not fit this run: {error}. Continue from another checkpoint, or start "
            "from the weights of this one: --finetune-from-model, or --restore-file with --reset-optimizer."
        ) from error


def master_weights(shards: Shards, save_dir: Path, model: Set[str]) -> dict[str, Tensor]:
    """Return every trained parameter in float32, flat, merged from a folder of shards; tied ones under each of their names.

    Args:
        model: the names that the model in the plain file has.

    Raises:
        FileNotFoundError, RuntimeError: the folder is missing, damaged, or of another model.
    """
    parts = _read(shards, save_dir)
    try:
        names, shared = dict.fromkeys(name for part in parts for name in part["parameters"]), parts[0]["shared"]
        if others := sorted({*names, *shared, *shared.values()} - model):
            raise RuntimeError(f"it has the parameter {others[0]}, which the model in the plain file lacks")
        weights = {name: partition.whole(parts, name, partition.MASTER) for name in names}
    except Exception as error:
        raise RuntimeError(f"{save_dir / FOLDER / shards.folder} is damaged: {error}. Use another checkpoint.") from error
    return weights | {name: weights[first] for name, first in shared.items() if first in weights}


def _read(shards: Shards, save_dir: Path, together: bool = False) -> list[dict[str, Any]]:
    """Return what each process wrote; tensors stay on disk until they are used.

    With ``together``, the processes of this run share the work of comparing checksums.
    """
    files = shards.files(save_dir)
    if not files[0].parent.is_dir():
        raise FileNotFoundError(
            f"the folder {files[0].parent}, which has the checkpoint's optimizer, does not exist. Copy it together with the "
            "checkpoint, or load only the weights: --finetune-from-model, or --restore-file with --reset-optimizer."
        )
    rank, processes = (distributed.get_rank(), distributed.get_world_size()) if together else (0, 1)
    parts = [_read_one(file, verify=number % processes == rank) for number, file in enumerate(files)]
    for number, (file, part) in enumerate(zip(files, parts, strict=True)):
        if part.get(LABEL) != shards.label(number):
            raise RuntimeError(
                f"{file} is a file of another checkpoint; its label is {reprlib.repr(part.get(LABEL))}. Put the right file back, "
                "or use another checkpoint."
            )
    return parts


def _read_one(file: Path, verify: bool) -> dict[str, Any]:
    if not file.is_file():
        raise RuntimeError(f"{file.parent} is incomplete: {file.name} is missing. Use another checkpoint.")
    try:
        part = loading.peek(file, verify)
        if not isinstance(part, dict) or not part.keys() >= PARTS:
            raise TypeError("it does not hold what a process writes")
    except Exception as error:  # a damaged file can raise almost any exception
        reason = first_line(error).partition(". ")[0]
        raise RuntimeError(f"{file} is truncated, damaged or no shard ({reason}). Use another checkpoint.") from error
    return part


def remove_unnamed(save_dir: Path) -> None:
    """Remove the folders of shards that no .pt file names and that :func:`save` made, by their names and by their record.

    A file of any name may be a checkpoint that somebody keeps, so nothing is removed while one cannot be read. Files of another
    kind, which cannot be sharded checkpoints, are skipped, and so are links. If ``shards`` itself is a link, nothing is removed,
    since the folders behind it may also belong to another run.
    """
    root = save_dir / FOLDER
    if not root.is_dir():
        return
    if root.is_symlink():
        _warn_once(f"no old shards are removed from {root}, a link to a folder where other checkpoints may have theirs")
        return
    named = set()
    for file in save_dir.glob("*.pt"):
        try:
            with file.open("rb") as stream:
                if stream.read(len(ZIP)) != ZIP:
                    continue
            content = loading.peek(file)
            shards = Shards.of(content.get("last_optimizer_state")) if isinstance(content, dict) else None
        except Exception as error:
            reason = first_line(error)
            logger.warning(f"no old shards are removed from {root} while {file} cannot be read; move that away ({reason})")
            return
        if shards is not None:
            named.add(shards.folder)
    for folder in root.iterdir():
        if folder.name in named or folder.is_symlink() or not FOLDER_NAME.fullmatch(folder.name.removesuffix(PARTIAL)):
            continue
        if ownership.made_by(folder) != MAKER:
            _warn_once(f"{folder}, which no checkpoint needs, has no record of what made it: remove it if you do not need it")
            continue
        try:
            for file in (*folder.glob("process*.pt*"), folder / ownership.RECORD):
                file.unlink()
            folder.rmdir()
        except OSError as error:  # perhaps a network file system; the next checkpoint tries again
            logger.warning(f"{folder}, which no checkpoint needs, could not be removed: {error}")


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning(text)


def _name(rank: int) -> str:
    return f"process{rank:05d}.pt"
