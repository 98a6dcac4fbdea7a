"""Conversion of a checkpoint to transformers: to its own model if that computes the same function, else to this project's."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel

from ..base.errors import FieldError, InputError
from ..core.transformer import EncoderConfig, PositionSampling, build_positions
from ..plugin.checkpoint.checkpoint import Checkpoint
from ..plugin.checkpoint.state_dict import CLASSIFICATION, ENCODER, HEADS, LANGUAGE_MODEL, MASK_POSITIONS, WORDS, StateDict
from ..text.vocabulary import MASK, Dictionary
from .auto import PosencConfig
from .forms import forms
from .model_types import CAUSAL_TYPES, MODEL_TYPES
from .new_positions import differing
from .types.base import ABSENT, CAUSAL, OUTPUT, Head, ModelType, Options

PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
"""transformers' types of problems: of fairseq's heads, those with one output and with more have the first two."""


class Exported(NamedTuple):
    """A checkpoint's model in transformers.

    Attributes:
        title: the name of its type in text; empty for this project's class.
        left_out: what is not part of it: parameters' names, and options of training.
        any_length: whether it takes longer texts than those of training.
        reason: why it is of this project's class, or empty.
    """

    model: PreTrainedModel
    title: str
    left_out: list[str]
    any_length: bool
    reason: str


def to_transformers(checkpoint: Checkpoint, remote_code: bool = False) -> Exported:
    """Return the checkpoint's model in transformers: of this project's class if ``remote_code``, or no other has its function.

    Raises:
        InputError: the checkpoint has parameters that no export has a place for.
    """
    head, dictionary = checkpoint.head, checkpoint.vocabulary.dictionary
    function: dict[str, Any] = {"attention_backend": "auto", "checkpoint_activations": False}
    if head.kind != "MaskedLM":
        function |= {"mask_decoder_steps": 0, "masked_next_token": False}
    encoder = replace(checkpoint.config, **function)  # without what does not change it, or is of another head
    state = {
        name.replace("decoder.output_projection.", LANGUAGE_MODEL).replace("decoder.", ENCODER): value
        for name, value in checkpoint.model.state_dict().items()
    }  # types have a language model's names as an encoder's
    exported_head = LANGUAGE_MODEL if head.name is None else f"{CLASSIFICATION}{head.name}."
    left_out = [name for name in state if name.startswith(HEADS) and not name.startswith(exported_head)]
    left_out += [name for name in state if name == MASK_POSITIONS and not encoder.mask_decoder_steps]
    ending = f"{head.name}."  # of a classification head, which has no name in transformers
    state = {name.replace(CLASSIFICATION + ending, CLASSIFICATION): state[name] for name in state if name not in left_out}
    described, options = _described(checkpoint), _options(checkpoint)
    kind, config, form, reason = choose(encoder, state, described, options, dictionary, remote_code)
    renamed, others = kind.to_transformers(form, config)
    model = kind.model_class(head.kind)(config)
    found = model.load_state_dict(renamed, strict=False)
    if others := others + found.unexpected_keys:
        raise InputError(f"{checkpoint.path} has parameters that an export has no place for: {', '.join(others)}")
    for name in found.missing_keys:
        if name.endswith(ABSENT):
            model.get_parameter(name).data.zero_()
    kept = kind.encoder_config(config, dictionary)
    of_training = [field.name for field in fields(EncoderConfig) if not field.metadata.get("affects_output", True)]
    left_out += [f"{name} {value}" for name in of_training if (value := getattr(encoder, name)) != getattr(kept, name)]
    sampling = PositionSampling.parse(kept.position_sampling, kept.position_evaluation)
    with torch.device("meta"):
        any_length = build_positions(kept).inductive and (sampling is None or sampling.max_length is None)
    return Exported(model.eval(), kind.title, left_out, any_length, reason)


def choose(
    encoder: EncoderConfig, state: StateDict, head: Head, options: Options, dictionary: Dictionary, remote_code: bool = False
) -> tuple[ModelType, PretrainedConfig, StateDict, str]:
    """Choose the first of transformers' own types that has the function of a model and its head, or this project's own.

    Args:
        encoder: the configuration of the encoder or decoder.
        state: its parameters, under the names of an encoder's.
        head: its head; the state says whether the output projection is the word embeddings.
        options: of the configuration in transformers, besides those that follow from the encoder.
        dictionary: the symbols.
        remote_code: whether to take this project's own.

    Returns:
        The type, the configuration, the parameters in the form that they have there, and the reason for this project's own.
    """
    types = CAUSAL_TYPES if head.kind in CAUSAL else MODEL_TYPES
    tried: list[tuple[str, list[str]]] = []
    for kind in () if remote_code else dict.fromkeys(types.values()):
        if not kind.title or head.kind not in kind.heads or not hasattr(kind.library, f"{kind.prefix}For{head.kind}"):
            continue
        for form, values in forms(encoder, state):
            tied = _tied(values)
            if (described := kind.describe(form, head._replace(tied=tied))) is None:
                continue
            config = kind.new_config(form, {**options, "tie_word_embeddings": tied, **described})
            try:
                different = differing(form, kind.encoder_config(config, dictionary))
            except FieldError:  # nothing of this type has such values
                continue
            if not different:
                return kind, config, values, ""
            tried.append((kind.title, different))
    reason = "--remote-code was given"
    if not remote_code:
        reason = f"no class of transformers {transformers.__version__} is the same model"
        reason += f"; {nearest(tried)}" if tried else ""
    own, tied = types[PosencConfig.model_type], _tied(state)
    config = own.new_config(encoder, {**options, "tie_word_embeddings": tied, **(own.describe(encoder, head) or {})})
    return own, config, state, reason


def nearest(tried: Sequence[tuple[str, list[str]]]) -> str:
    """Return in words, of the titles of types and the fields by which each differs from a model, the type that is nearest."""
    _, _, title, different = min(("positions" in fields, len(fields), title, ", ".join(fields)) for title, fields in tried)
    return f"the nearest, {title}, has other {different}"


def _tied(state: StateDict) -> bool:
    """Return whether the output projection, if there is any, is the word embeddings."""
    words, output = state.get(WORDS), state.get(OUTPUT)
    return words is None or output is None or words.data_ptr() == output.data_ptr()


def _described(checkpoint: Checkpoint) -> Head:
    """Return the head that a checkpoint is exported with."""
    head, options = checkpoint.head, checkpoint.options
    width = None if head.name is None else len(checkpoint.state[f"{CLASSIFICATION}{head.name}.dense.weight"])
    activation, dropout = getattr(options, "pooler_activation_fn", "tanh"), getattr(options, "pooler_dropout", 0.0)
    return Head(head.kind, True, width, str(activation), dropout)


def _options(checkpoint: Checkpoint) -> Options:
    """Return the symbols and classes of a checkpoint, as options of a configuration in transformers."""
    encoder, head, dictionary = checkpoint.config, checkpoint.head, checkpoint.vocabulary.dictionary
    options: Options = {"vocab_size": encoder.vocab_size, "bos_token_id": checkpoint.start, "pad_token_id": dictionary.pad()}
    options |= {"eos_token_id": encoder.separator_idx}
    if not checkpoint.is_causal:
        options["mask_token_id"] = dictionary.index(MASK)
    if head.name is not None:
        names = dict(enumerate(checkpoint.labels))
        problem = checkpoint.task_state.get("problem_type")  # of an import
        options |= {
            "id2label": names,
            "label2id": {label: i for i, label in names.items()},
            "problem_type": problem if problem in PROBLEMS else PROBLEMS[head.outputs > 1],
            "fairseq_head": head.name,
        }
    return options
