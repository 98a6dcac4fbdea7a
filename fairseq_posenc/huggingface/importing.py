"""A model of transformers, or fairseq's released RoBERTa, as a fairseq checkpoint with its own positions or others."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq import options as fairseq_options
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import BaseFairseqModel
from omegaconf import DictConfig
from torch import Tensor

from .. import ownership
from ..commands import show
from ..errors import InputError, flag_of
from ..families import ALBERT, ROBERTA, architectures
from ..files import atomic_write, full_disk_named
from ..models.checkpoint import untrained, write
from ..models.option_set import DEFAULTS, ENCODER_OPTIONS, naming_flags, to_options
from ..models.state import LANGUAGE_MODEL, WORDS, StateDict, head_names, load_into
from ..transformer import EncoderConfig
from ..vocabulary import DICTIONARY, TOKENIZER_FILES, fingerprint, load_dictionary
from .parity import TOLERANCE
from .positions import Converted, convert
from .sources import Source, read

TRAINING = shlex.split(
    "--sample-break-mode complete --batch-size 8 --optimizer adam --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 "
    "--clip-norm 1.0 --lr-scheduler polynomial_decay --lr 5e-5 --warmup-updates 1000 --total-num-update 50000 --max-update 50000"
)


def import_model(
    name: str,
    out: Path,
    positions: str | None = None,
    options: Mapping[str, Any] | None = None,
    max_positions: int | None = None,
    seed: int = 1,
    tolerance: float = TOLERANCE,
    overwrite: bool = False,
) -> None:
    """Write a checkpoint, its dictionary and its tokenizer's files, and print how the source was converted.

    Args:
        name: of the source; see :func:`.sources.read`.
        out: the checkpoint.
        positions: the expression; the source's own by default.
        options: of its schemes, by full name.
        max_positions: of schemes that learn each position; the source's by default.
        seed: of new parameters.
        tolerance: greatest difference of an output where the positions stay.
        overwrite: replace a checkpoint that is there.

    Raises:
        InputError, OSError: what is wrong with the source, the positions or the output, or that the two models differ.
    """
    require_free(name, out, overwrite)
    source = read_encoder(name)
    expression = positions or source.config.positions
    with naming_flags():
        converted = convert(source.config, source.state, expression, options or {}, max_positions, seed)
    write_converted(name, source, converted, out, seed, tolerance)


def read_encoder(name: str) -> Source:
    """A source that has an equal here, whose attention sees all of a sequence.

    Raises:
        InputError, OSError: it has none, or as :func:`.sources.read`.
    """
    source = read(name)
    if source.max_length is not None:
        raise InputError(
            f"{name} sees only a window of a sequence (Longformer), and encoders here see all of it: it cannot be imported, only "
            "looked at, by fairseq-posenc analyze"
        )
    source.encoder()
    return source


def require_free(name: str, out: Path, overwrite: bool) -> None:
    """That ``out`` may be written, and is no file of the source's.

    Raises:
        InputError, OSError: it may not.
    """
    files = [path for path in (Path(name), *Path(name).glob("*")) if path.is_file()]
    ownership.require_free(out, "--out", overwrite, [("SOURCE's", path) for path in files])


def write_converted(name: str, source: Source, converted: Converted, out: Path, seed: int, tolerance: float) -> None:
    """The end of :func:`import_model`: a checkpoint of the converted model, its vocabulary beside it, and what to do next.

    Raises:
        InputError, OSError: another vocabulary stands there, the checkpoint cannot be written, or the two models differ.
    """
    vocabulary = _vocabulary(source)
    _require_free_for(vocabulary, out.parent)
    flags = model_flags(converted.config, source.model_flags)
    with full_disk_named(out):
        _write(vocabulary, out.parent)
    cfg, model = build(converted.config, flags, out.parent, source.kind, converted.state, seed)

    show(f"{name}: {source.kind}, {source.config.positions} -> {converted.config.positions}")
    for remark in converted.remarks:
        show(remark)
    own = model.state_dict()
    new_head = [name for name in own if name not in converted.state]
    if new_head:
        show(f"new, at random (seed {seed}): the language model's head, which the source does not have")
    if source.left_out:
        show(f"left out: {', '.join(source.left_out)}")
    if converted.same_function:
        parity = source.compare(source.outputs, _outputs(source.kind, model), tolerance)
        show(f"outputs differ from the source's by {parity}")
    else:
        show("The positions differ from the source's, and so do the outputs until it is trained.")
    with full_disk_named(out):
        write(out, untrained(cfg, model, fingerprint(load_dictionary(out.parent), out.parent)))
    show(f"{out}: continue from it with")
    for command in _commands(source, out, flags, converted.config.max_positions):
        show(f"  {shlex.join(command)}")


def _commands(source: Source, out: Path, flags: list[str], tokens: int) -> list[list[str]]:
    """The next commands from the checkpoint on: complete except for the name of the data."""
    folder, data = str(out.parent), str(out.parent / "data-bin")
    if source.kind == "QuestionAnswering":
        files = ["--checkpoint", str(out), "--data-bin", folder, "--out", str(out.parent / "squad")]
        return [["fairseq-posenc", "squad", "--data", "SQUAD", "--version", "1.1", *files]]
    if source.vocabulary.files:
        prepare = ["fairseq-posenc", "prepare", "TEXT", "--vocabulary", folder, "--out", data]
    else:  # nothing is known that cuts text into its symbols
        names = ["--trainpref", "TRAIN", "--validpref", "VALID", "--srcdict", str(out.parent / DICTIONARY)]
        prepare = ["fairseq-preprocess", "--only-source", *names, "--destdir", data]
    start = ["--finetune-from-model", str(out), "--save-dir", str(out.parent / "checkpoints")]
    task = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", str(tokens)]
    return [prepare, ["fairseq-train", data, *start, *task, *flags, *TRAINING]]


def model_flags(config: EncoderConfig, others: dict[str, Any]) -> list[str]:
    """The flags of fairseq-train that describe a model of this config, where they are not its architecture's."""
    arch = (ALBERT if config.layer_groups else ROBERTA).model
    values = {"arch": arch, **to_options(config), **config.position_options, **others}
    defaults = {**DEFAULTS, **architectures()[arch].options}
    declared = ENCODER_OPTIONS.fields()
    flags = []
    for name, value in values.items():
        if value == defaults.get(name) and name != "positions":
            continue
        flag = flag_of(name)
        if name in declared and declared[name][0] is bool:
            flags += [flag] if value else []
        else:
            flags += [flag, str(value).lower() if isinstance(value, bool) else str(value)]
    return flags


def build(
    config: EncoderConfig, flags: list[str], folder: Path, kind: str, state: StateDict, seed: int
) -> tuple[DictConfig, BaseFairseqModel]:
    """A fairseq configuration and its model with these parameters. Only a language model's head may be missing.

    Raises:
        InputError: parameters are missing or left over.
    """
    task = "squad" if kind == "QuestionAnswering" else "masked_lm"
    sizes = (
        ["--max-positions", str(config.max_positions)] if task == "squad" else ["--tokens-per-sample", str(config.max_positions)]
    )
    parser = fairseq_options.get_training_parser()
    given = [str(folder), "--task", task, "--criterion", task, "--load-checkpoint-heads", *sizes, *flags]
    cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, input_args=given))
    torch.manual_seed(seed)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    state = dict(state)
    own = model.state_dict()
    if not any(name.startswith(LANGUAGE_MODEL) for name in state):
        state |= {name: value for name, value in own.items() if name.startswith(LANGUAGE_MODEL)}
        if not cfg.model.untie_weights_roberta and task == "masked_lm":
            state[f"{LANGUAGE_MODEL}weight"] = state[WORDS]
    load_into(model, state, "the source does not fit its own configuration")
    return cfg, model.float().eval()


def _vocabulary(source: Source) -> dict[str, bytes]:
    """What stands beside the checkpoint, by name."""
    text = io.StringIO()
    source.vocabulary.dictionary.save(text)
    return {DICTIONARY: text.getvalue().encode("utf-8"), **source.vocabulary.files}


def _require_free_for(vocabulary: dict[str, bytes], folder: Path) -> None:
    """That no other dictionary or tokenizer stands in the folder, to be written over or to be taken for this one's."""
    for path in (folder / name for name in (DICTIONARY, *TOKENIZER_FILES)):
        if path.exists() and path.read_bytes() != vocabulary.get(path.name):
            raise FileExistsError(f"{path} is of another model: name an --out in a folder of its own")


def _write(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in ((folder / name, content) for name, content in files.items()):
        if not path.exists():  # otherwise it is the same
            with atomic_write(path, "wb") as stream:
                stream.write(content)


def _outputs(kind: str, model: BaseFairseqModel) -> Callable[[Tensor], Tensor]:
    if kind == "Model":
        return lambda tokens: model(tokens, features_only=True)[0]
    if kind == "SequenceClassification":
        (name,) = head_names(model.state_dict())
        return lambda tokens: model(tokens, classification_head_name=name)[0]
    return lambda tokens: model(tokens)[0]
