"""Conversion of a checkpoint to transformers: to its own model if that computes the same function, else to this project's."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from ..base.errors import InputError
from ..core.transformer import EncoderConfig
from ..plugin.checkpoint.state_dict import CLASSIFICATION, HEADS, LANGUAGE_MODEL, MASK_POSITIONS
from ..plugin.models.checkpoint import Checkpoint
from .causal import PosencForCausalLM
from .configuration import PosencConfig
from .model_types import MODEL_TYPES
from .new_positions import same_function
from .types.base import TOKEN_TYPES, Head

PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
"""transformers' types of problems: of fairseq's heads, those with one output and with more have the first two."""


def to_transformers(checkpoint: Checkpoint) -> tuple[PreTrainedModel, list[str]]:
    """Return the checkpoint's model in transformers, and what is not part of it: parameters' names, and options of training.

    Raises:
        InputError: the checkpoint has parameters that no export has a place for.
    """
    if checkpoint.is_causal:
        return _causal_to_transformers(checkpoint), []
    head, state, dictionary = checkpoint.head, checkpoint.model.state_dict(), checkpoint.vocabulary.dictionary
    function: dict[str, Any] = {"attention_backend": "auto", "checkpoint_activations": False}
    if head.kind != "MaskedLM":
        function |= {"mask_decoder_steps": 0, "masked_next_token": False}
    encoder = replace(checkpoint.config, **function)  # without what does not change it, or is of another head
    exported_head = LANGUAGE_MODEL if head.name is None else f"{CLASSIFICATION}{head.name}."
    left_out = [name for name in state if name.startswith(HEADS) and not name.startswith(exported_head)]
    left_out += [name for name in state if name == MASK_POSITIONS and not encoder.mask_decoder_steps]
    ending = f"{head.name}."  # of a classification head, which has no name in transformers
    state = {name.replace(CLASSIFICATION + ending, CLASSIFICATION): state[name] for name in state if name not in left_out}
    config = _config(checkpoint, encoder)
    kind = MODEL_TYPES[config.model_type]
    renamed, others = kind.to_transformers(state, config)
    model = kind.model_class(head.kind)(config)
    found = model.load_state_dict(renamed, strict=False)
    if others := others + found.unexpected_keys:
        raise InputError(f"{checkpoint.path} has parameters that an export has no place for: {', '.join(others)}")
    for name in found.missing_keys:
        if name.endswith(TOKEN_TYPES):
            model.get_parameter(name).data.zero_()
    kept = kind.encoder_config(config, dictionary)
    of_training = [field.name for field in fields(EncoderConfig) if not field.metadata.get("affects_output", True)]
    return model.eval(), left_out + [
        f"{name} {value}" for name in of_training if (value := getattr(encoder, name)) != getattr(kept, name)
    ]


def _causal_to_transformers(checkpoint: Checkpoint) -> PreTrainedModel:
    """Return the model of a language model that reads from left to right; transformers has none with its positions."""
    values = {field.name: getattr(checkpoint.config, field.name) for field in fields(EncoderConfig)}
    values |= {"attention_backend": "auto", "checkpoint_activations": False}
    tied, start = checkpoint.model.decoder.config.share_output, checkpoint.start
    model = PosencForCausalLM(PosencConfig(**values, tie_word_embeddings=tied, is_decoder=True, bos_token_id=start))
    model.load_state_dict(checkpoint.model.state_dict())
    return model.eval()


def _config(checkpoint: Checkpoint, encoder: EncoderConfig) -> PretrainedConfig:
    """Return the configuration in transformers: of its own type where that describes the same encoder and has the same head."""
    model, head, dictionary = checkpoint.model, checkpoint.head, checkpoint.vocabulary.dictionary
    width = None if head.name is None else len(checkpoint.state[f"{CLASSIFICATION}{head.name}.dense.weight"])
    shared = getattr(model.encoder.lm_head, "weight", None) is model.encoder.sentence_encoder.embed_tokens.weight
    tied = shared or head.kind != "MaskedLM"
    common: dict[str, Any] = {"tie_word_embeddings": tied}
    if head.name is not None:
        names = dict(enumerate(checkpoint.labels))
        problem = checkpoint.task_state.get("problem_type")  # of an import
        common |= {
            "id2label": names,
            "label2id": {label: i for i, label in names.items()},
            "problem_type": problem if problem in PROBLEMS else PROBLEMS[head.outputs > 1],
            "fairseq_head": head.name,
        }
    pooler = Head(head.kind, tied, width, str(model.args.pooler_activation_fn), model.args.pooler_dropout)
    special = {"bos_token_id": dictionary.bos(), "eos_token_id": encoder.separator_idx, "pad_token_id": encoder.padding_idx}
    options = {"vocab_size": encoder.vocab_size, **special, **common}
    for kind in MODEL_TYPES.values():
        if (described := kind.describe(encoder, pooler)) is not None:
            config = kind.new_config(encoder, options | described)
            if same_function(encoder, kind.encoder_config(config, dictionary)):
                return config
    return PosencConfig(
        **asdict(encoder), **common, pooler_activation=pooler.activation, pooler_dropout=pooler.dropout, pooler_dim=width
    )
