"""Checkpoint files: read safely, asked for by name, copied atomically."""

import functools
import os
import shutil

import torch

from fairseq_posenc.compat import loading
from fairseq_posenc.compat.view import View
from fairseq_posenc.files import partial_of


def load_weights_only() -> None:
    """Let fairseq read its own checkpoints, and run nothing from them.

    PyTorch 2.6 and later read nothing but tensors and plain containers unless types are allowed, which fairseq does not do;
    earlier releases run whatever the file says. The modules of fairseq that read checkpoints get a ``torch`` whose ``load``
    is :func:`.loading.load`. Can go when fairseq allows its own types.
    """
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils as distributed_utils

    checkpoint_utils.torch = distributed_utils.torch = View(torch, load=loading.load)


def require_named_restore_file() -> None:
    """Make a missing ``--restore-file`` (or ``--continue-once``) an error.

    fairseq logs one line and trains from scratch. Only the default, checkpoint_last.pt in ``--save-dir``, may be absent.
    Can go when fairseq refuses it.
    """
    from fairseq.file_io import PathManager
    from fairseq.trainer import Trainer

    load_checkpoint = Trainer.load_checkpoint

    @functools.wraps(load_checkpoint)
    def checked(self, filename, *args, **kwargs):
        default = os.path.join(self.cfg.checkpoint.save_dir, f"checkpoint_last{self.checkpoint_suffix}.pt")
        # Only one process a node may see the file; the others receive its contents.
        if filename != default and self.data_parallel_rank == 0 and not PathManager.isfile(filename):
            raise FileNotFoundError(
                f"--restore-file {filename} does not exist. Correct the path, or leave the flag out: then training continues "
                f"from {default} where that exists and starts from scratch where it does not."
            )
        return load_checkpoint(self, filename, *args, **kwargs)

    Trainer.load_checkpoint = checked


def copy_atomically() -> None:
    """Copy checkpoint_best.pt and checkpoint_last.pt to a temporary file and rename that.

    fairseq writes one file atomically and copies it over the others in place, so that a kill meanwhile leaves a truncated
    checkpoint_last.pt, from which no run can continue. Can go when fairseq copies atomically.
    """
    from fairseq.file_io import PathManager

    copy = PathManager.copy

    @functools.wraps(copy)
    def atomic_copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if PathManager.path_requires_pathmanager(dst_path):
            return copy(src_path, dst_path, overwrite)
        temporary = partial_of(dst_path)
        shutil.copyfile(src_path, temporary)
        os.replace(temporary, dst_path)
        return True

    PathManager.copy = staticmethod(atomic_copy)


def refuse_sharded_optimizer() -> None:
    """Say how to continue a checkpoint that fairseq_posenc.train has written with ZeRO.

    Its plain file has the name of a folder in place of the optimizer's state. fairseq finds out when it asserts that the
    optimizer has the same class, and says only that it does not.
    """
    from fairseq.trainer import Trainer

    load_checkpoint = Trainer.load_checkpoint

    @functools.wraps(load_checkpoint)
    def checked(self, filename, *args, **kwargs):
        try:
            return load_checkpoint(self, filename, *args, **kwargs)
        except AssertionError as error:
            if "EngineOptimizer vs" not in str(error):
                raise
            raise ValueError(
                f"the optimizer of {filename} is sharded, which only ZeRO continues: fairseq_posenc.train with "
                "--deepspeed-config zero1, zero2 or zero3. To start from its weights: --finetune-from-model, or "
                "--restore-file with --reset-optimizer."
            ) from None

    Trainer.load_checkpoint = checked


PATCHES = (load_weights_only, require_named_restore_file, copy_atomically, refuse_sharded_optimizer)
