"""Checkpoint files: read safely, written and copied atomically."""

import ast
import shutil
from pathlib import Path

import torch

from ...base.files import atomic_write, require_writable
from ..checkpoint import loading
from .patching import ModuleProxy, wrap

LEARNING_RATES = "lr", "lr_old"
"""The options of an optimizer's group that training changes: the learning rate, and with NAG that of the update before."""


def load_weights_only() -> None:
    """Let fairseq read its own checkpoints, without running code from them.

    ``torch.load`` since PyTorch 2.6 reads nothing but tensors and plain containers unless types are allowed, which fairseq does
    not do. The modules of fairseq that read checkpoints get a ``torch`` whose ``load`` is :func:`.loading.load`. Can be removed
    when fairseq allows its own types.
    """
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils as distributed_utils

    checkpoint_utils.torch = distributed_utils.torch = ModuleProxy(torch, load=loading.load)


def read_literals() -> None:
    """Read options that are lists, dictionaries or booleans in a string as literals, which ``fairseq.utils`` evaluates as Python.

    A checkpoint's model has such options as well (``adaptive_softmax_cutoff``, ``xformers_att_config``). What is no literal is a
    ValueError, which argparse reports. Can be removed when fairseq does the same.
    """
    from fairseq import utils
    from fairseq.dataclass import utils as dataclass_utils

    def literal(text):
        if not isinstance(text, str):
            raise TypeError(f"a string is needed, not {type(text).__name__}")  # as eval, which eval_bool relies on
        try:
            return ast.literal_eval(text.strip())
        except SyntaxError:
            raise ValueError(text) from None

    utils.eval = literal
    dataclass_utils.ast = ModuleProxy(ast, literal_eval=literal)


def write_atomically() -> None:
    """Write every checkpoint to a temporary file and rename it, without following links.

    fairseq writes one file to FILE.tmp, even if that is a link, and copies it over the others in place, so that a kill can leave
    a truncated checkpoint_last.pt. To test ``--save-dir``, it empties and removes a file ``dummy`` there. Can be removed when
    fairseq does none of this.
    """
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    copy = PathManager.copy

    @wrap(checkpoint_utils, "torch_persistent_save")
    def atomic_save(save, obj, filename, async_write=False):
        if async_write or PathManager.path_requires_pathmanager(filename):
            return save(obj, filename, async_write)
        with atomic_write(filename, "wb") as stream:
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
