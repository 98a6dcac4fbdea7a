"""A checkpoint as a folder that transformers loads: config, safetensors weights, tokenizer, modelling code and model card."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path

import torch
from transformers import PreTrainedModel

from .. import ownership
from ..commands import show
from ..errors import InputError
from ..files import full_disk_named, sole_writer
from ..models.checkpoint import Checkpoint
from ..vocabulary import DICTIONARY, TOKENIZER_FILES
from . import tokenizer as tokenizers
from .assemble import FILE_NAME
from .auto import model_class
from .card import card
from .conversion import to_transformers
from .parity import Parity, compare, token_batches
from .vocabularies import FAIRSEQ_FOLDER

SAMPLE_LENGTH = 512  # of the samples that the models are compared on
MAKER = "export-hf"  # in the folders' record
PARTIAL = ".partial-"
FILES = (
    *("config.json", "generation_config.json", "model.safetensors", FILE_NAME),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *(f"{FAIRSEQ_FOLDER}/{name}" for name in (DICTIONARY, *TOKENIZER_FILES)),
    "README.md",
)
"""All files that an export may have, the last one last."""


class Differs(InputError):
    """The exported model is not the checkpoint's."""


def export(
    path: Path,
    data: Path,
    out: Path,
    head: str | None = None,
    tolerance: float = 1e-4,
    with_tokenizer: bool = True,
    overwrite: bool = False,
    language: str | None = None,
    license: str | None = None,
) -> dict[str, Parity]:
    """Export a checkpoint; its files are written to a folder of their own, and moved to ``out`` when everything agrees.

    Returns:
        The comparison's result for each implementation of attention.

    Raises:
        InputError, OSError: what is wrong with the checkpoint, the data-bin or the output folder, or that the two models differ.
    """
    ownership.require_apart(out, [("CHECKPOINT", path), ("--data", data / "dict.txt")])
    ownership.require_own(out, MAKER, "--out")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise FileExistsError(f"--out {out} is not empty: name another folder, or add --overwrite to replace that export")
    checkpoint = Checkpoint(path, data, head)
    model, left_out = to_transformers(checkpoint)
    length = min(checkpoint.config.max_positions, SAMPLE_LENGTH)
    batches = token_batches(data, checkpoint.vocabulary.dictionary, length)

    with full_disk_named(out), _replacing(out.resolve()) as partial:
        model.save_pretrained(partial, max_shard_size="1TB")  # one file, of a name that is known
        for weights in partial.glob("*.safetensors"):  # which only their owner may read otherwise
            shutil.copymode(partial / "config.json", weights)
        remark = _export_tokenizer(checkpoint, batches, partial) if with_tokenizer else "No tokenizer was exported."
        _copy_fairseq_files(checkpoint, partial)
        results = _check(checkpoint, partial, model.config.model_type, batches)
        for implementation, parity in results.items():
            show(f"{implementation}: outputs differ by {parity}")
        worst = max(parity.difference for parity in results.values())
        if not worst <= tolerance:
            raise Differs(
                f"the exported model is not the checkpoint's: outputs differ by {worst:.3g}, and --tolerance is {tolerance:g}. "
                f"What was written is in {partial}, without a model card; {out} is as it was."
            )
        text = card(out.resolve().name, checkpoint, data, results, tolerance, model.config.model_type, remark, language, license)
        (partial / "README.md").write_text(text, "utf-8")
    if left_out:
        show(f"left out: {', '.join(left_out)}")
    show(f"{out}: {type(model).__name__}, {checkpoint.config.positions}; {remark}")
    return results


def _export_tokenizer(checkpoint: Checkpoint, batches: list[torch.Tensor], folder: Path) -> str:
    """Write the tokenizer and compare it with the data-bin's own; returns a sentence about that."""
    vocabulary = checkpoint.vocabulary
    fast = tokenizers.build(vocabulary, checkpoint.config.max_positions)
    texts = [fast.decode(row, skip_special_tokens=True) for batch in batches for row in batch.tolist()]
    if difference := tokenizers.disagreement(fast, vocabulary, texts):
        raise InputError(
            f"the exported tokenizer does not cut text as {vocabulary.folder} does: {difference}. Export with --no-tokenizer, "
            "and use the data-bin's own."
        )
    tokenizers.save(fast, folder)
    return f"The tokenizer gives the ids of the training data's own on {sum(map(len, texts)):,} characters of its text."


def _copy_fairseq_files(checkpoint: Checkpoint, folder: Path) -> None:
    target = folder / FAIRSEQ_FOLDER
    target.mkdir()
    for source in checkpoint.vocabulary.files():
        shutil.copyfile(source, target / source.name)


def _check(checkpoint: Checkpoint, folder: Path, model_type: str, batches: list[torch.Tensor]) -> dict[str, Parity]:
    """Compare the checkpoint with what was written, by the code that was written, for each implementation of attention."""
    model = _load(folder, model_type, checkpoint.head.kind)
    default = model.config._attn_implementation
    pad = checkpoint.config.padding_idx
    results = {}
    for implementation in dict.fromkeys([default, "eager"]):
        model.set_attn_implementation(implementation)

        def outputs(tokens: torch.Tensor) -> torch.Tensor:
            output = model(tokens, attention_mask=tokens.ne(pad).long())
            if checkpoint.head.kind == "QuestionAnswering":
                return torch.stack([output.start_logits, output.end_logits], dim=-1)
            return output.logits

        results[implementation] = compare(checkpoint.logits, outputs, batches, pad)
    return results


class _Uncached(SourceFileLoader):
    """Leaves no ``__pycache__`` in the export."""

    def set_data(self, *_: object, **__: object) -> None:
        pass


def _load(folder: Path, model_type: str, kind: str) -> PreTrainedModel:
    if (folder / FILE_NAME).exists():
        loader = _Uncached("fairseq_posenc_exported", str(folder / FILE_NAME))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        written = getattr(module, f"PosencFor{kind}")
    else:
        written = model_class(model_type, kind)
    return written.from_pretrained(folder).float().eval()


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """A new folder next to ``out``, whose files replace those of an earlier export in ``out`` at the end of the block.

    An error removes it, except :class:`Differs`, after which somebody may want to inspect it; the next export removes the rest.

    Raises:
        InputError: ``out`` has a file of somebody else's under a name that is to be written.
    """
    for folder in out.parent.glob(f"{glob.escape(out.name)}{PARTIAL}*"):
        if ownership.made_by(folder) == MAKER:
            with suppress(BlockingIOError), sole_writer(folder):  # otherwise another export is writing to it
                ownership.remove(folder)
    partial = out.with_name(f"{out.name}{PARTIAL}{uuid.uuid4().hex[:8]}")
    with ownership.output(partial, MAKER):
        ownership.own(*(partial / name for name in FILES))
        try:
            yield partial
            ownership.claim(out, MAKER)
            _replace(partial, out)
            ownership.remove(partial)
        except Differs:
            raise
        except BaseException:
            ownership.remove(partial)
            raise


def _replace(partial: Path, out: Path) -> None:
    """Move what was exported to ``out``, the model card last."""
    names = [name for name in FILES if (partial / name).exists()]
    new = [out / name for name in names]
    ownership.own(*new)
    ownership.remove(out, keep=new)
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial / name, out / name)
    ownership.finish(out)
