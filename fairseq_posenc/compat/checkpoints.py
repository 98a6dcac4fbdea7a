"""Checkpoint files: read safely, written and copied atomically."""

import ast
import shutil
from pathlib import Path

import torch

from fairseq_posenc.compat import loading
from fairseq_posenc.compat.view import View, wrap
from fairseq_posenc.files import atomic_write, full_disk_named, require_writable


def load_weights_only() -> None:
    """Let fairseq read its own checkpoints, and run nothing from them.

    PyTorch 2.6 and later read nothing but tensors and plain containers unless types are allowed, which fairseq does not do;
    earlier releases run whatever the file says. The modules of fairseq that read checkpoints get a ``torch`` whose ``load``
    is :func:`.loading.load`. Can be removed when fairseq allows its own types.
    """
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils as distributed_utils

    checkpoint_utils.torch = distributed_utils.torch = View(torch, load=loading.load)


def read_literals() -> None:
    """Make fairseq read options that are lists, dictionaries or booleans in a string as literals, not as arbitrary Python.

    ``fairseq.utils.eval_str_list`` and its like evaluate them, those of a checkpoint's model as well
    (``adaptive_softmax_cutoff``, ``xformers_att_config``). Can be removed when fairseq uses ``ast.literal_eval``
    there, as its ``dataclass.utils`` does.
    """
    from fairseq import utils

    def literal(text):
        if not isinstance(text, str):
            raise TypeError(f"a string is needed, not {type(text).__name__}")  # as eval, which eval_bool relies on
        return ast.literal_eval(text.strip())

    utils.eval = literal


def write_atomically() -> None:
    """Write every checkpoint to a temporary file and rename that, without following links.

    fairseq writes one file so, to FILE.tmp even if that is a link, and copies it over the others in place, so that a kill
    meanwhile leaves a truncated checkpoint_last.pt, from which no run can continue. To see whether it may write to
    ``--save-dir``, it empties and removes a file ``dummy`` there. Can be removed when fairseq does none of this.
    """
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    copy = PathManager.copy

    @wrap(checkpoint_utils, "torch_persistent_save")
    def atomic_save(save, obj, filename, async_write=False):
        if async_write or PathManager.path_requires_pathmanager(filename):
            return save(obj, filename, async_write)
        with full_disk_named(filename), atomic_write(filename, "wb") as stream:
            torch.save(obj, stream)

    def verify(save_dir):
        require_writable(Path(save_dir))
        Path(save_dir).mkdir(parents=True, exist_ok=True)

    def atomic_copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if PathManager.path_requires_pathmanager(dst_path):
            return copy(src_path, dst_path, overwrite)
        with open(src_path, "rb") as source, atomic_write(dst_path, "wb") as stream:
            shutil.copyfileobj(source, stream)
        return True

    PathManager.copy = staticmethod(atomic_copy)
    checkpoint_utils.verify_checkpoint_directory = verify


PATCHES = (load_weights_only, read_literals, write_atomically)
