"""A checkpoint as a folder that transformers loads: config, safetensors weights, tokenizer, modelling code and model card."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..base import ownership
from ..base.commands import show
from ..base.errors import InputError
from ..base.files import LOCK
from ..plugin.checkpoint.checkpoint import Checkpoint
from ..text.vocabulary import DICTIONARY, TOKENIZER_FILES
from . import fast_tokenizer, translation
from .assemble import FILE_NAME, load_exported
from .card import NO_TOKENIZER, card, fine_tuned_on, usual_length
from .conversion import to_transformers
from .parity import MASKED, Parity, compare, head_output, token_batches
from .vocabularies import FAIRSEQ_FOLDER

if TYPE_CHECKING:
    from .export_command import Options

SAMPLE_LENGTH = 512  # tokens of the samples on which the models are compared
MAKER = "export-hf"  # in the folders' record
PARTIAL = ".partial"
FILES = (
    *("config.json", "generation_config.json", "model.safetensors", FILE_NAME),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *(f"{FAIRSEQ_FOLDER}/{name}" for name in (DICTIONARY, *TOKENIZER_FILES)),
    "README.md",
)
"""All files that an export may have; the model card is written last."""


class DifferentOutputs(InputError):
    """Raised if the exported model is not the checkpoint's."""


def export(options: Options) -> dict[str, Parity]:
    """Export a checkpoint: its files are written to a temporary folder, compared with the checkpoint, and moved to ``out``.

    Returns:
        The result of the comparison for each implementation of attention.

    Raises:
        InputError, OSError: the checkpoint, the data-bin or the output folder cannot be used, or the two models differ.
    """
    path, out = options.path, options.out
    with_tokenizer = not options.no_tokenizer
    checkpoint = Checkpoint(path, options.data, options.head, with_tokenizer, may_be_causal=True, may_translate=True)
    if options.data is None and fine_tuned_on(checkpoint):
        raise InputError(f"{path} is fine-tuned, and does not record the data-bin of its pretraining: name it with --data")
    data = options.data or checkpoint.vocabulary.folder
    with _replacing(out, [("CHECKPOINT", path), ("--data", data / "dict.txt")], options.overwrite) as partial:
        translates = checkpoint.translates
        exported = (translation.to_transformers if translates else to_transformers)(checkpoint, options.remote_code)
        model = exported.model
        length = min(checkpoint.config.max_positions, checkpoint.max_length, SAMPLE_LENGTH)
        masked = 0 if checkpoint.has_decoder else MASKED
        sides = [form.format(*checkpoint.languages) for form in (".{0}-{1}.{0}", ".{1}-{0}.{0}")] if translates else [""]
        batches = token_batches(data, checkpoint.vocabulary.dictionary, length, checkpoint.start, masked, sides)
        model.save_pretrained(partial, max_shard_size="1TB")  # one file, of a name that is known
        for weights in partial.glob("*.safetensors"):  # safetensors makes them readable by their owner only
            shutil.copymode(partial / "config.json", weights)
        usual = usual_length(checkpoint, exported.any_length)
        remark = NO_TOKENIZER if options.no_tokenizer else _export_tokenizer(checkpoint, batches, usual, partial)
        (partial / FAIRSEQ_FOLDER).mkdir(exist_ok=True)
        for source in checkpoint.vocabulary.files():
            name = source.name if source.name in TOKENIZER_FILES else DICTIONARY  # of one language, but it is that of both
            shutil.copyfile(source, partial / FAIRSEQ_FOLDER / name)
        differences = _check(checkpoint, partial, type(model), batches)
        for implementation, parity in differences.items():
            show(f"{implementation}: outputs differ by {parity}")
        worst = max(parity.difference for parity in differences.values())
        if not worst <= options.tolerance:
            raise DifferentOutputs(
                f"the exported model is not the checkpoint's: outputs differ by {worst:.3g}, and --tolerance is "
                f"{options.tolerance:g}. "
                f"The files are in {partial}, without a model card; {out} is unchanged."
            )
        text = card(options, checkpoint, data, differences, exported, remark)
        (partial / "README.md").write_text(text, "utf-8")
    if exported.left_out:
        show(f"left out: {', '.join(exported.left_out)}")
    code = f"with remote code: {exported.reason}" if exported.reason else "transformers' own class"
    show(f"{out}: {type(model).__name__}, {code}")
    show(f"{checkpoint.config.positions}; {remark}")
    return differences


def _export_tokenizer(checkpoint: Checkpoint, batches: list[Tensor], length: int, folder: Path) -> str:
    """Write the tokenizer and compare it with the data-bin's own; returns a sentence about that."""
    vocabulary = checkpoint.vocabulary
    fast = fast_tokenizer.build(vocabulary, length, checkpoint.head.kind, checkpoint.start)
    texts = [fast.decode(row, skip_special_tokens=True) for batch in batches for row in batch.tolist()]
    symbols = vocabulary.dictionary.symbols[vocabulary.dictionary.nspecial :: 7]
    texts += fast_tokenizer.raw_texts(fast.get_added_vocab(), vocabulary.tokenizer.tokens(symbols))

    lacking = {*filter(vocabulary.lacks_piece_of, texts)}

    def encode(text: str) -> list[int]:
        return vocabulary.encode(text).ids.tolist()

    if difference := fast_tokenizer.disagreement(fast, encode, [text for text in texts if text not in lacking]):
        raise InputError(
            f"the exported tokenizer does not cut text as {vocabulary.folder} does: {difference}. Export with --no-tokenizer, "
            "and use the data-bin's own."
        )
    fast_tokenizer.save(fast, folder)
    remark = f"The tokenizer gives the ids of the training data's own on {sum(map(len, texts)):,} characters of text."
    if fast_tokenizer.disagreement(fast, encode, lacking):
        remark += " Text with a piece that dict.txt lacks is an exception: fairseq reads <unk>, and the tokenizer other pieces."
    return remark


def _check(checkpoint: Checkpoint, folder: Path, exported_class: Any, batches: list[Tensor]) -> dict[str, Parity]:
    """Compare the checkpoint with what was written, by the code that was written, for each implementation of attention."""
    model = load_exported(folder, exported_class)
    default = model.config._attn_implementation
    pad = checkpoint.config.padding_idx
    results = {}
    for implementation in dict.fromkeys([default, "eager"]):
        model.set_attn_implementation(implementation)

        def outputs(tokens: Tensor) -> Tensor:
            target = {"decoder_input_ids": tokens} if checkpoint.translates else {}
            return head_output(model(tokens, attention_mask=tokens.ne(pad).long(), **target))

        results[implementation] = compare(checkpoint.logits, outputs, batches, pad)
    return results


@contextmanager
def _replacing(out: Path, inputs: ownership.Inputs, overwrite: bool) -> Iterator[Path]:
    """Yield a new folder in ``out``, whose files are moved there at the end of the block, under the lock of ``out``.

    Until all are there, ``out`` has no config.json, so that nothing loads a part of an export. An error leaves ``out`` as it was
    and removes the new folder, except :class:`DifferentOutputs`, after which a user may inspect it; the next export removes it.
    """
    with ownership.output(out, MAKER, inputs):
        target = out.resolve()
        partial = target / PARTIAL
        try:
            shutil.rmtree(partial, ignore_errors=True)
            if not overwrite and not ownership.is_empty(target):
                raise FileExistsError(f"--out {out} is not empty: name another folder, or add --overwrite to replace that export")
            partial.mkdir()
            yield partial
        except BaseException as error:
            if not isinstance(error, DifferentOutputs):
                shutil.rmtree(partial, ignore_errors=True)
                if ownership.is_empty(target):
                    shutil.rmtree(target)
            raise
        else:
            (target / "config.json").unlink(missing_ok=True)
            for name in reversed(FILES):
                (target / name).unlink(missing_ok=True)
                if (partial / name).exists():
                    (target / name).parent.mkdir(exist_ok=True)
                    (partial / name).replace(target / name)
            shutil.rmtree(partial)
        finally:
            (target / LOCK).unlink(missing_ok=True)  # which is no part of an export
