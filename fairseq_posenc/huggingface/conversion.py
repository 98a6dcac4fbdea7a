"""Conversion of a checkpoint to transformers: to its own model if that computes the same function, else to this project's."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from ..base.errors import InputError
from ..core.transformer import EncoderConfig
from ..plugin.checkpoint.state_dict import CLASSIFICATION, HEADS, LANGUAGE_MODEL, MASK_POSITIONS
from ..plugin.models.checkpoint import Checkpoint
from . import model_types
from .auto import model_class
from .configuration import PosencConfig
from .model_types import encoder_config, transformers_options
from .new_positions import same_function
from .rotary_types import modernbert_options

PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
"""transformers' types of problems: of fairseq's heads, those with one output and with more have the first two."""


def to_transformers(checkpoint: Checkpoint) -> tuple[PreTrainedModel, list[str]]:
    """Return the checkpoint's model in transformers, and what is not part of it: parameters' names, and options of training.

    Raises:
        InputError: the checkpoint has parameters that no export has a place for.
    """
    head, state = checkpoint.head, checkpoint.model.state_dict()
    steps = checkpoint.config.mask_decoder_steps if head.kind == "MaskedLM" else 0
    function: dict[str, Any] = {"attention_backend": "auto", "checkpoint_activations": False, "mask_decoder_steps": steps}
    encoder = replace(checkpoint.config, **function)  # without what does not change it, or is of another head
    exported_head = LANGUAGE_MODEL if head.name is None else f"{CLASSIFICATION}{head.name}."
    left_out = [name for name in state if name.startswith(HEADS) and not name.startswith(exported_head)]
    if not encoder.mask_decoder_steps and MASK_POSITIONS in state:
        left_out.append(MASK_POSITIONS)
    state = {name: value for name, value in state.items() if name not in left_out}
    if head.name is not None:
        state = {name.replace(exported_head, CLASSIFICATION): value for name, value in state.items()}
    config = _config(checkpoint, encoder)
    renamed, others = model_types.to_transformers(state, config.model_type, encoder.padding_idx)
    if others:
        raise InputError(f"{checkpoint.path} has parameters that an export has no place for: {', '.join(others)}")
    model = model_class(config.model_type, head.kind)(config)
    if config.model_type == "roformer":
        renamed[model_types.SINUSOIDS] = model.state_dict()[model_types.SINUSOIDS]
    model.load_state_dict(renamed, strict=True)
    kept = encoder_config(config, checkpoint.vocabulary.dictionary, encoder.padding_idx)
    of_training = [field.name for field in fields(EncoderConfig) if not field.metadata.get("affects_output", True)]
    return model.eval(), left_out + [
        f"{name} {value}" for name in of_training if (value := getattr(encoder, name)) != getattr(kept, name)
    ]


def _config(checkpoint: Checkpoint, encoder: EncoderConfig) -> PretrainedConfig:
    """Return the configuration in transformers: of its own type where that describes the same encoder and has the same head."""
    model, head, dictionary = checkpoint.model, checkpoint.head, checkpoint.vocabulary.dictionary
    activation, dropout = str(model.args.pooler_activation_fn), model.args.pooler_dropout
    width = None if head.name is None else len(checkpoint.state[f"{CLASSIFICATION}{head.name}.dense.weight"])
    tied = getattr(model.encoder.lm_head, "weight", None) is model.encoder.sentence_encoder.embed_tokens.weight
    common: dict[str, Any] = {"tie_word_embeddings": tied or head.kind != "MaskedLM"}
    if head.name is not None:
        names = dict(enumerate(checkpoint.labels))
        problem = checkpoint.task_state.get("problem_type")  # of an import
        common |= {
            "id2label": names,
            "label2id": {label: i for i, label in names.items()},
            "problem_type": problem if problem in PROBLEMS else PROBLEMS[head.outputs > 1],
            "fairseq_head": head.name,
        }
    narrow_and_shared = encoder.embed_dim and encoder.layer_groups
    types = {"deberta": "deberta-v2", "absolute": "albert" if narrow_and_shared else "roberta", "rope": "roformer"}
    model_type = "modernbert" if encoder.gated_ffn else types.get(encoder.positions)
    same_head = width in (None, encoder.dim)
    if model_type == "modernbert":
        same_head = head.kind == "MaskedLM"
    elif model_type == "roformer":
        same_head &= width is None or (activation, dropout) == (encoder.activation, encoder.dropout)
    elif model_type == "deberta-v2":
        same_head &= common["tie_word_embeddings"]
    else:
        same_head &= width is None or activation == "tanh"
    if model_type == "roberta":
        same_head &= encoder.activation == "gelu"  # its language model's head uses GELU for any configured activation
    if model_type is not None and same_head:
        positions = model.encoder.sentence_encoder.positions
        config = AutoConfig.for_model(
            model_type,
            **common,
            **transformers_options(encoder, model_type, positions, activation, dropout),
            vocab_size=encoder.vocab_size,
            pad_token_id=encoder.padding_idx,
            bos_token_id=dictionary.bos(),
            eos_token_id=encoder.separator_idx,
        )
        if model_type == "modernbert":  # transformers 4 reads the bases of RoPE by names that 5 does not keep
            config.update(modernbert_options(encoder))
        if model_type == "deberta-v2":  # else transformers 4 ties the inner layer of the head, which has no projection of its own
            config.tie_word_embeddings = False
        if same_function(encoder, encoder_config(config, dictionary, encoder.padding_idx)):
            return config
    return PosencConfig(**asdict(encoder), **common, pooler_activation=activation, pooler_dropout=dropout, pooler_dim=width)
