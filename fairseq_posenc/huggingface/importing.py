"""A model of transformers, or fairseq's released RoBERTa, as a fairseq checkpoint with its own positions or others."""

import shlex
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base import ownership
from ..base.commands import show
from ..base.errors import InputError, flag_of, flag_value
from ..base.files import LOCK, report_full_disk, sole_writer
from ..core.families import ALBERT, MODERNBERT, ROBERTA, architectures
from ..core.transformer import Encoder, EncoderConfig
from ..plugin.checkpoint.checkpoint_file import untrained, write
from ..plugin.checkpoint.model import EncoderModel
from ..plugin.checkpoint.state_dict import LANGUAGE_MODEL, WORDS, StateDict, class_sizes, load_into
from ..plugin.checkpoint.trust import user_dir
from ..plugin.options.option_set import DEFAULTS, opposite, to_options
from ..text.vocabulary import DICTIONARY, fingerprint, load_dictionary
from . import TOLERANCE
from .new_positions import Converted
from .source_models import Source, read

TRAINING = shlex.split(
    "--sample-break-mode complete --batch-size 8 --optimizer adam --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 "
    "--clip-norm 1.0 --lr-scheduler polynomial_decay --lr 5e-5 --warmup-updates 1000 --total-num-update 50000 --max-update 50000"
)


def read_encoder(name: str, tolerance: float = TOLERANCE) -> tuple[Source, Encoder]:
    """Read a source that has an equivalent here and attends to all of a sequence; return it, and its encoder.

    Raises:
        InputError, OSError: it has no equivalent, or as :func:`.source_models.read`.
    """
    source = read(name)
    if source.max_length is not None:
        raise InputError(
            f"{name} attends to a window of a sequence (Longformer), and encoders here attend to all of it: it cannot be "
            "imported, only analyzed by fairseq-posenc analyze"
        )
    return source, source.encoder(tolerance)


def require_free(name: str, out: Path, overwrite: bool) -> None:
    """Raise InputError or OSError if ``out`` may not be written or is a file of the source."""
    files = [path for path in (Path(name), *Path(name).glob("*")) if path.is_file()]
    ownership.require_free(out, "--out", overwrite, [("SOURCE's", path) for path in files])


def write_converted(
    name: str, source: Source, converted: Converted, out: Path, overwrite: bool, seed: int, tolerance: float = TOLERANCE
) -> None:
    """Write a checkpoint of the converted model and its vocabulary, and print what was converted and the next commands.

    The source and its equivalent here, which has its own positions, are compared before anything is written.

    Raises:
        InputError, OSError: the folder has another vocabulary, the checkpoint cannot be written, or the two models differ.
    """
    model = build(source, converted.config, converted.state, seed)
    equivalent = model if converted.same_function else build(source, source.config, source.state, seed)
    head, length = next(iter(equivalent.classification_heads), None), min(converted.config.max_positions, 128)

    def outputs(tokens: Tensor) -> Tensor:
        encoder = equivalent.encoder.sentence_encoder
        return encoder(tokens).last_hidden_state if source.kind == "Model" else equivalent(tokens, head=head)

    parity = source.compare(source.outputs, outputs, tolerance, length)
    with report_full_disk(out), sole_writer(out.parent, lock := f"{LOCK}-{out.name}"):
        try:
            require_free(name, out, overwrite)
            source.vocabulary.write(out.parent)
            cfg = configuration(source, model, out.parent)
            content = untrained(cfg, model, fingerprint(load_dictionary(out.parent), out.parent))
            content["task_state"] |= source.task_state
            write(out, content)
        finally:
            (out.parent / lock).unlink()

    show(f"{name}: {source.kind}, {source.config.positions} -> {converted.config.positions}")
    for remark in filter(None, [*converted.remarks, source.vocabulary.remark]):
        show(remark)
    if model.state_dict().keys() - converted.state.keys():
        show(f"new, at random (seed {seed}): the language model's head, which the source does not have")
    if source.left_out:
        show(f"left out: {', '.join(source.left_out)}")
    if converted.same_function:
        show(f"outputs differ from the source's by {parity}")
    else:
        show("The positions differ from the source's, and so do the outputs until the model is trained.")
        show(f"with the source's positions, they differ by {parity}")
    show(f"{out}: continue from it with")
    for command in _commands(source, out, converted.config):
        show(f"  {shlex.join(command)}")


def _commands(source: Source, out: Path, config: EncoderConfig) -> list[list[str]]:
    folder, data = str(out.parent), str(out.parent / "data-bin")
    if source.kind == "QuestionAnswering":
        files = ["--checkpoint", str(out), "--data-bin", folder, "--out", str(out.parent / "squad")]
        return [["fairseq-posenc", "squad", "--data", "SQUAD", "--version", "1.1", *files]]
    if source.vocabulary.files:
        prepare = ["fairseq-posenc", "prepare", "TEXT", "--vocabulary", folder, "--out", data]
    else:  # the source has no tokenizer
        names = ["--trainpref", "TRAIN", "--validpref", "VALID", "--srcdict", str(out.parent / DICTIONARY)]
        prepare = ["fairseq-preprocess", "--only-source", *names, "--destdir", data]
    start = ["--finetune-from-model", str(out), "--save-dir", str(out.parent / "checkpoints")]
    task = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", str(config.max_positions)]
    return [prepare, ["fairseq-train", data, *user_dir(), *start, *task, *model_flags(config, source.model_options), *TRAINING]]


def model_flags(config: EncoderConfig, others: dict[str, Any]) -> list[str]:
    """Return the flags of fairseq-train for a model of this config: those whose values are not the architecture's."""
    arch = architecture(config)
    defaults = {**DEFAULTS, **architectures()[arch].options, "positions": None}
    flags = ["--arch", arch]
    for name, value in {**to_options(config), **config.position_options, **others}.items():
        if value == defaults.get(name) or (value is False and not defaults.get(name)):
            continue
        if isinstance(value, bool) and name not in config.position_options:
            flags += [flag_of(name if value else opposite(name))]
        else:
            flags += [flag_of(name), flag_value(value)]
    return flags


def build(source: Source, config: EncoderConfig, state: StateDict, seed: int) -> EncoderModel:
    """Return a source's model with this encoder and these parameters.

    Args:
        seed: of the language model's head, the only part of which parameters may be missing.

    Raises:
        InputError: others are missing, or some are left over.
    """
    torch.manual_seed(seed)
    spans, tied = source.kind == "QuestionAnswering", not source.model_options.get("untie_weights_roberta")
    activation = source.model_options.get("pooler_activation_fn", "tanh")
    model = EncoderModel(config, spans, tied, class_sizes(state), activation)
    if not any(name.startswith(LANGUAGE_MODEL) for name in state):
        state = state | {name: value for name, value in model.state_dict().items() if name.startswith(LANGUAGE_MODEL)}
        if tied and not spans:
            state[f"{LANGUAGE_MODEL}weight"] = state[WORDS]
    load_into(model, state, f"{source.name} does not fit its own configuration")
    return model.float().eval()


def configuration(source: Source, model: EncoderModel, folder: Path) -> dict[str, Any]:
    """Return the sections of fairseq's configuration that say what a model is, with the dictionary in this folder."""
    task, length = ("squad", "max_positions") if source.kind == "QuestionAnswering" else ("masked_lm", "tokens_per_sample")
    encoder = model.encoder.sentence_encoder
    config, positions = encoder.config, encoder.positions.complete_options
    flags = {name: flag_value(value) if isinstance(value, bool) else value for name, value in positions.items()}
    return {
        "model": {"_name": architecture(config), **DEFAULTS, **to_options(config), **flags, **source.model_options},
        "task": {"_name": task, "data": str(folder), length: config.max_positions},
        "criterion": {"_name": task},
    }


def architecture(config: EncoderConfig) -> str:
    """Return the architecture of any positions whose options a config has, but for those that are given."""
    modern = config.gated_ffn and config.normalize_before
    return (ALBERT if config.layer_groups else MODERNBERT if modern else ROBERTA).model
