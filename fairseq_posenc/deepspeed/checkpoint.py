"""Sharded checkpoints.

A checkpoint is a plain fairseq file and a folder of shards::

    save_dir/checkpoint_last.pt                fairseq's: weights, config, position in the data, meters; and the folder's name
    save_dir/shards/update00000050-1f0c9a3e/   master weights and optimizer states, one file per process

Folders are written under another name, renamed when complete, and never written to again; only then the plain file appears,
also by a rename. So a kill at any moment leaves every earlier checkpoint intact. Several plain files (``checkpoint_best.pt``,
``checkpoint_last.pt``) may name the same folder. A folder that no file names is removed before the next is written, if it carries
the record that it was made here (:mod:`..ownership`).

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

from .. import ownership
from ..compat import loading
from ..errors import InputError, Refused
from ..files import atomic_write
from . import communication, partition

logger = logging.getLogger(__name__)

FOLDER = "shards"
PARTIAL = ".partial"
FOLDER_NAME = re.compile(r"update\d{8,}-[0-9a-f]{8}")  # as save() names them; nothing else is followed, such as ../elsewhere
MAKER = "train"  # in the folders' record
LABEL = "shard"  # in a file: which checkpoint it belongs to
MAX_PROCESSES = 10**6
PARTS = {"parameters", "groups", "scaler", "shared"}  # of a file, as :func:`.partition.collect` returns them
ZIP = b"PK"  # the first bytes of every file that torch.save writes in its default format


@dataclass(frozen=True)
class Shards:
    """What a plain file records about its folder of shards; plain values, since they are written into the file."""

    folder: str  # within save_dir/shards
    processes: int
    optimizer: str  # fairseq's name

    @classmethod
    def of(cls, optimizer_state: Any) -> Shards | None:
        """From the optimizer state of a fairseq checkpoint; None if that state is unsharded or missing.

        Raises:
            Refused: it names shards that :func:`save` has not written.
        """
        if not is_sharded(optimizer_state):
            return None
        match optimizer_state["shards"]:
            case {"folder": str(folder), "processes": int(processes), "optimizer": str(optimizer), **rest} if (
                not rest and FOLDER_NAME.fullmatch(folder) and 0 < processes < MAX_PROCESSES
            ):
                return cls(folder, processes, optimizer)
        raise Refused(
            f"the checkpoint names shards that this package has not written ({reprlib.repr(optimizer_state['shards'])}), so "
            "nothing was read. It is damaged or has been changed: use another."
        )

    def as_optimizer_state(self) -> dict[str, Any]:
        """What the plain file holds in place of the optimizer's state."""
        return {"shards": asdict(self)}

    def files(self, save_dir: Path) -> list[Path]:
        """One per process."""
        return [save_dir / FOLDER / self.folder / _name(rank) for rank in range(self.processes)]

    def label(self, rank: int) -> dict[str, Any]:
        """What the file of one process says about where it belongs; the folder's name includes the update and is unique."""
        return {"folder": self.folder, "processes": self.processes, "rank": rank}


def is_sharded(optimizer_state: Any) -> bool:
    """Whether the optimizer state of a fairseq checkpoint refers to shards."""
    return isinstance(optimizer_state, dict) and "shards" in optimizer_state


def require_shared(save_dir: Path) -> None:
    """Check, before a run, that all processes see the same ``save_dir``; called by all of them together.

    Raises:
        Refused: it is not, or cannot be written; says which hosts do not see it.
    """
    token, failure = Path(f".shared-{uuid.uuid4().hex}"), None
    if distributed.get_rank() == 0:
        try:
            save_dir.mkdir(parents=True, exist_ok=True)
            (save_dir / token).touch()
        except OSError as error:
            failure = f"--save-dir {save_dir} cannot be written on {platform.node()}: {error.strerror}"
    token, failure = _from_first_process((token, failure))
    if failure is not None:
        raise Refused(failure)
    answers = communication.gather((platform.node(), os.path.exists(save_dir / token)))
    if distributed.get_rank() == 0:
        (save_dir / token).unlink(missing_ok=True)
    blind = sorted({host for host, sees in answers if not sees})
    if blind:
        raise Refused(_not_shared(save_dir, f"what the first host writes there is not seen by {', '.join(blind)}"))


def _not_shared(save_dir: Path, sign: str) -> str:
    return (
        f"--save-dir {save_dir} is not shared by all hosts: {sign}. Name a folder on a file system that every host mounts at the "
        "same path."
    )


def save(engine: Any, optimizer: str, save_dir: Path, updates: int) -> Shards:
    """Write a folder of shards; called by all processes together.

    Args:
        optimizer: fairseq's name of the one that the engine was given.

    Raises:
        InputError: not all processes see the same ``save_dir``.
        OSError, RuntimeError: it cannot be written (a full disk); earlier checkpoints are unchanged.
    """
    root, processes = save_dir / FOLDER, distributed.get_world_size()
    name = f"update{updates:08d}-{uuid.uuid4().hex[:8]}"
    if distributed.get_rank() == 0:
        remove_unnamed(save_dir)
        ownership.claim(root / (name + PARTIAL), MAKER)
        ownership.own(*(root / (name + PARTIAL) / _name(rank) for rank in range(processes)))
    name = _from_first_process(name)
    shards = Shards(name, processes, optimizer)
    part = partition.collect(engine)
    partial = root / (name + PARTIAL)
    partial.mkdir(parents=True, exist_ok=True)
    with atomic_write(partial / _name(distributed.get_rank()), "wb") as stream:
        torch.save({**part, LABEL: shards.label(distributed.get_rank())}, stream)
    distributed.barrier()
    written = len(list(partial.glob("*.pt")))
    if written != processes:
        raise InputError(_not_shared(save_dir, f"this process sees the shards of {written} of {processes} processes"))
    distributed.barrier()
    if distributed.get_rank() == 0:
        os.rename(partial, root / name)
    distributed.barrier()
    return shards


def load(engine: Any, shards: Shards, save_dir: Path) -> None:
    """Give the engine the master weights and optimizer states of a folder of shards.

    Raises:
        FileNotFoundError: it is not there.
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
    """Every trained parameter in float32, flat, merged from a folder of shards; tied ones under each of their names.

    Args:
        model: the allowed names.

    Raises:
        FileNotFoundError, RuntimeError: the folder is missing, damaged, or of another model.
    """
    parts = _read(shards, save_dir)
    try:
        names, shared = dict.fromkeys(name for part in parts for name in part["parameters"]), parts[0]["shared"]
        others = sorted({*names, *shared, *shared.values()} - model)
        if others:
            raise RuntimeError(f"it has the parameter {others[0]}, which the model in the plain file has not")
        weights = {name: partition.whole(parts, name, partition.MASTER) for name in names}
    except Exception as error:
        raise RuntimeError(f"{save_dir / FOLDER / shards.folder} is damaged: {error}. Use another checkpoint.") from error
    return weights | {name: weights[first] for name, first in shared.items() if first in weights}


def _read(shards: Shards, save_dir: Path, together: bool = False) -> list[dict[str, Any]]:
    """What each process wrote; tensors stay on disk until they are used.

    Of processes that read ``together``, one compares the checksums of each file.
    """
    files = shards.files(save_dir)
    if not files[0].parent.is_dir():
        raise FileNotFoundError(
            f"The checkpoint keeps its optimizer in {files[0].parent}, which is not there. Copy that folder too when you copy a "
            "checkpoint, or take only the weights: --finetune-from-model, or --restore-file with --reset-optimizer."
        )
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise RuntimeError(f"{files[0].parent} is incomplete: {missing[0].name} is not there. Use another checkpoint.")
    rank, processes = (distributed.get_rank(), distributed.get_world_size()) if together else (0, 1)
    parts = [_read_one(file, verify=number % processes == rank) for number, file in enumerate(files)]
    for rank, (file, part) in enumerate(zip(files, parts, strict=True)):
        if part.get(LABEL) != shards.label(rank):
            raise RuntimeError(
                f"{file} is not of this checkpoint, but another's that was put in its place: its label is "
                f"{reprlib.repr(part.get(LABEL))}. Use another checkpoint, or put the right file back."
            )
        if any(part[common] != parts[0][common] for common in ("groups", "scaler", "shared")):
            raise RuntimeError(f"{file} and {files[0]} are not of one checkpoint, for their settings differ. Use another.")
    return parts


def _read_one(file: Path, verify: bool) -> dict[str, Any]:
    try:
        part = loading.peek(file, verify)
        if not isinstance(part, dict) or not part.keys() >= PARTS:
            raise TypeError("it does not hold what a process writes")
    except Exception as error:  # a damaged file can raise almost any exception
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise RuntimeError(f"{file} is truncated, damaged or no shard ({reason}). Use another checkpoint.") from error
    return part


def optimizer_state_of(file: Path) -> Any:
    """The optimizer state in a plain file, without reading tensors into memory.

    Raises:
        Exception: whatever a damaged file raises; callers decide what that means.
    """
    state = loading.peek(file)
    return state.get("last_optimizer_state") if isinstance(state, dict) else None


def names_shards(file: Path) -> bool:
    """Whether a file is there, can be read, and is a sharded checkpoint."""
    try:
        return is_sharded(optimizer_state_of(file))
    except Exception:  # whatever another kind of file raises
        return False


def remove_unnamed(save_dir: Path) -> None:
    """Remove the folders of shards that no .pt file names and that :func:`save` made, by their names and by their record.

    A file of any name may be a checkpoint that somebody keeps, so nothing is removed beside one that cannot be read. Files of
    another kind, which cannot be sharded checkpoints, are skipped, and so are links. If ``shards`` itself is a link, nothing is
    removed, since the folders behind it may also belong to another run.
    """
    root = save_dir / FOLDER
    if not root.is_dir():
        return
    if root.is_symlink():
        _warn_once(f"no old shards are removed from {root}, a link to where other checkpoints may have theirs")
        return
    named = set()
    for file in save_dir.glob("*.pt"):
        try:
            with file.open("rb") as stream:
                if stream.read(len(ZIP)) != ZIP:
                    continue
            shards = Shards.of(optimizer_state_of(file))
        except Exception as error:
            reason = str(error).partition("\n")[0]
            logger.warning(f"no old shards are removed from {root} while {file} cannot be read; move that away ({reason})")
            return
        if shards is not None:
            named.add(shards.folder)
    for folder in root.iterdir():
        if folder.name not in named and FOLDER_NAME.fullmatch(folder.name.removesuffix(PARTIAL)) and not folder.is_symlink():
            _remove_own(folder)


def _remove_own(folder: Path) -> None:
    if ownership.made_by(folder) != MAKER:
        _warn_once(f"{folder}, which no checkpoint needs, has no record of who made it: remove it if it is not wanted")
        return
    try:
        ownership.remove(folder)
    except OSError as error:  # perhaps a network file system; the next checkpoint tries again
        logger.warning(f"{folder}, which no checkpoint needs, could not be removed: {error}")


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning(text)


def _name(rank: int) -> str:
    return f"process{rank:05d}.pt"


def _from_first_process(value: Any) -> Any:
    """The first process's ``value``, on all processes."""
    values = [value]
    distributed.broadcast_object_list(values, src=0)
    return values[0]
