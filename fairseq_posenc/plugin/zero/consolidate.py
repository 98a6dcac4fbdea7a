"""Merge a sharded checkpoint into one plain fairseq checkpoint with all weights in float32, without the optimizer's state.

fairseq-validate, fine-tuning (--restore-file, --finetune-from-model) and the export to Hugging Face read the result. DIR is a
--save-dir, or one checkpoint in it:

    fairseq-posenc consolidate checkpoints --out model.pt
    fairseq-posenc consolidate checkpoints/checkpoint_best.pt --out best.pt
"""

from dataclasses import dataclass
from pathlib import Path

from ...base import ownership
from ...base.commands import existing, option, show
from ...base.errors import InputError

MADE_BY = "made_by"


@dataclass
class Options:
    """The command's flags: the sharded checkpoint, and the file to write."""

    source: Path = option(
        "a --save-dir (then its checkpoint_last.pt), or a .pt file in it", names=("source",), parse=existing, metavar="DIR"
    )
    out: Path = option("the .pt file to write", metavar="FILE")
    overwrite: bool = option("replace an existing file", False)


def main(options: Options) -> None:
    """Merge the shards and print the number of parameters; raises InputError or OSError if a file cannot be used."""
    source, out = options.source, options.out
    source = source / "checkpoint_last.pt" if source.is_dir() else source
    if not source.is_file():
        raise FileNotFoundError(f"there is no checkpoint {source}; name a --save-dir of a training, or a .pt file in it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no folder {out.parent}; make it first")
    try:
        parameters = write(source, out, options.overwrite)
    except RuntimeError as error:  # a damaged file
        raise InputError(str(error)) from error
    show(f"{out}: {parameters:,} parameters in float32")


def made(path: Path) -> bool:
    """Return whether :func:`write` made this file."""
    from ..checkpoint.checkpoint_file import peek

    return MADE_BY in peek(path)


def write(source: Path, out: Path, overwrite: bool = False) -> int:
    """Write the plain form of the checkpoint ``source`` to ``out``, atomically; return the number of parameters.

    Raises:
        OSError, RuntimeError: ``source`` or its shards are missing or damaged, or ``out`` exists and ``overwrite`` is false.
        InputError: ``source`` has no shards, or ``out`` is one of them, or a sharded checkpoint, which would lose its optimizer.
    """
    from ..checkpoint import checkpoint_file
    from . import sharded_checkpoint
    from .partition import unchanged

    if sharded_checkpoint.is_sharded(checkpoint_file.peek(out).get("last_optimizer_state")):
        raise InputError(f"--out {out} is itself a sharded checkpoint, from which training continues; name another file")
    ownership.require_free(out, "--out", overwrite)
    ownership.require_apart(out, [("the folder of shards", source.parent / sharded_checkpoint.FOLDER)])
    state = checkpoint_file.load(source)
    shards = sharded_checkpoint.Shards.of(state.pop("last_optimizer_state", None))
    if shards is None:
        raise InputError(f"{source} is a plain checkpoint already, which fairseq reads.")
    master = sharded_checkpoint.master_weights(shards, source.parent, state["model"].keys())
    for name, weight in master.items():  # buffers and frozen parameters have none
        tensor = state["model"][name]
        same = weight.numel() == tensor.numel()
        if not same or not unchanged(weight, tensor.flatten().float()).all():
            raise RuntimeError(
                f"{source} and its shards are not of one model and update: {name} has {tensor.numel():,} numbers in the file, "
                f"and {'others' if same else f'{weight.numel():,}'} in the shards. Use another checkpoint."
            )
        state["model"][name] = weight.view_as(tensor)
    state["model"] = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state["model"].items()}
    checkpoint_file.write(out, {**state, MADE_BY: "consolidate"})
    return sum(tensor.numel() for tensor in {tensor.data_ptr(): tensor for tensor in master.values()}.values())
