"""Checkpoint files: read safely, written and copied atomically."""

import ast
import shutil
from pathlib import Path

import torch
from fairseq import checkpoint_utils, utils
from fairseq.dataclass import utils as dataclass_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.models.roberta import RobertaModel
from fairseq.optim import FairseqOptimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from ...base.errors import InputError, first_line
from ...base.files import atomic_write, require_writable
from ...base.patching import ModuleProxy, wrap
from ..checkpoint import checkpoint_file, loading, reading, stock
from ..checkpoint.state_dict import LEARNING_RATES, override, require_same_groups
from ..run import resume


def load_weights_only() -> None:
    """Let fairseq read its own checkpoints, without running code from them.

    ``torch.load`` since PyTorch 2.6 reads nothing but tensors and plain containers unless types are allowed, which fairseq does
    not do. The modules of fairseq that read checkpoints get a ``torch`` whose ``load`` is :func:`.loading.load`. Can be removed
    when fairseq allows its own types.
    """
    checkpoint_utils.torch = distributed_utils.torch = ModuleProxy(torch, load=loading.load)


def read_literals() -> None:
    """Read options that are lists, dictionaries or booleans in a string as literals, which ``fairseq.utils`` evaluates as Python.

    A checkpoint's model has such options as well (``adaptive_softmax_cutoff``, ``xformers_att_config``). What is no literal is a
    ValueError, which argparse reports. Can be removed when fairseq does the same.
    """

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

    def atomic_save(obj, filename, async_write=False):
        checkpoint_file.write(filename, obj)

    def verify(save_dir):
        require_writable(Path(save_dir))
        Path(save_dir).mkdir(parents=True, exist_ok=True)

    def atomic_copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        with open(src_path, "rb") as source, atomic_write(dst_path, "wb") as stream:
            shutil.copyfileobj(source, stream)
        return True

    PathManager.copy = staticmethod(atomic_copy)
    checkpoint_utils.torch_persistent_save = atomic_save
    checkpoint_utils.verify_checkpoint_directory = verify


def check_what_files_name() -> None:
    """Check what a file names before a model is built from it, and report a file that is no checkpoint in one sentence.

    Can be removed when fairseq evaluates nothing from a checkpoint's configuration.
    """
    wrap(checkpoint_utils, "load_model_ensemble_and_task")(reading.load_models)
    wrap(checkpoint_utils, "load_checkpoint_to_cpu")(reading.load_to_cpu)


def resume_the_same_model() -> None:
    """Resume only with the model and the vocabulary of the checkpoint, whose digests each checkpoint has.

    fairseq compares names and shapes of parameters alone, and begins anew if ``--restore-file`` does not exist. Can be removed
    when fairseq records and compares both.
    """
    wrap(Trainer, "load_checkpoint")(resume.load_checkpoint)
    wrap(FairseqTask, "state_dict")(resume.state_dict)
    wrap(FairseqTask, "load_state_dict")(resume.load_state_dict)


def options_of_this_training() -> None:
    """Load the optimizer's state of the parameters; of a group's options, only :data:`LEARNING_RATES` are the checkpoint's.

    fairseq's own docstring prefers the options of the training that continues, and its code takes those of the checkpoint. Can be
    removed when the code does as well.
    """

    @wrap(FairseqOptimizer, "load_state_dict")
    def load_state_dict(load, optimizer, state, optimizer_overrides=None):
        state_of_group = ("params", *LEARNING_RATES)
        given = [{name: value for name, value in group.items() if name not in state_of_group} for group in optimizer.param_groups]
        require_same_groups(state["param_groups"], given)
        try:
            load(optimizer, state)
        except ValueError as error:
            raise InputError(
                f"the optimizer's state in the checkpoint is not of this model's parameters: {first_line(error)}. Start from its "
                "weights: --finetune-from-model, with another --save-dir"
            ) from error
        for group, options in zip(optimizer.param_groups, given, strict=True):
            group.update(options)
            override(group, optimizer_overrides)


def float32_weights() -> None:
    """Save the float32 weights of ``--bf16`` and ``--fp16`` with the optimizer's state, and continue from them.

    fairseq saves the model's weights alone, which are rounded, so that a training that continues differs from one that was not
    interrupted. Can be removed when fairseq saves both.
    """
    wrap(_FP16OptimizerMixin, "state_dict")(resume.optimizer_state_dict)
    wrap(_FP16OptimizerMixin, "load_state_dict")(resume.load_optimizer_state_dict)


def stock_roberta_loads_ours() -> None:
    """Let fairseq's own RoBERTa load our ``absolute`` checkpoints. Can be removed when nobody needs both."""

    @wrap(RobertaModel, "upgrade_state_dict_named")
    def upgrade_state_dict_named(upgrade, model, state, name):
        is_stock = hasattr(model.encoder.sentence_encoder, "embed_positions")  # our model inherits this method
        if is_stock and any(key.endswith(stock.OUR_TABLE) for key in state):
            converted = stock.to_stock(state, model.encoder.dictionary.pad())
            state.clear()
            state.update(converted)
        upgrade(model, state, name)
