"""A fairseq model as one of transformers: RoBERTa, ALBERT or DeBERTa v2 where that is the same function, else this project's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from transformers import AlbertConfig, DebertaV2Config, PretrainedConfig, PreTrainedModel, RobertaConfig

from ..errors import InputError
from ..models.checkpoint import Checkpoint
from ..models.state import CLASSIFICATION, LANGUAGE_MODEL, MASK_POSITIONS
from ..transformer import EncoderConfig
from ..transformer.config import TRANSFORMERS
from . import names
from .auto import model_class
from .configuration import PosencConfig

LAYOUT: dict[str, Any] = {"normalize_before": False, "layernorm_embedding": True, "mask_decoder_steps": 0}
"""Of transformers' own classes."""
PLAIN = {**LAYOUT, "embed_dim": 0, "layer_groups": 0}
"""Of those but ALBERT, whose embeddings are narrower and whose layers share their weights."""


def to_transformers(checkpoint: Checkpoint) -> tuple[PreTrainedModel, list[str]]:
    """The checkpoint's model in transformers, and the names of parameters that it has no place for."""
    head = checkpoint.head
    state, left_out = names.unname_head(checkpoint.model.state_dict(), head.name)
    if head.kind == "SequenceClassification":
        left_out += [name for name in state if name.startswith(LANGUAGE_MODEL)]
        state = {name: value for name, value in state.items() if name not in left_out}
    if not _config(checkpoint).mask_decoder_steps and state.pop(MASK_POSITIONS, None) is not None:
        left_out.append(MASK_POSITIONS)
    config: PretrainedConfig
    if is_plain_roberta(checkpoint):
        config, (renamed, others) = _roberta_config(checkpoint), names.to_roberta(state, _config(checkpoint).padding_idx)
    elif is_albert(checkpoint):
        config, (renamed, others) = _albert_config(checkpoint), names.to_albert(state)
    elif is_deberta(checkpoint):
        config, (renamed, others) = _deberta_config(checkpoint), names.to_deberta(state)
    else:
        config, (renamed, others) = _posenc_config(checkpoint), names.to_posenc(state)
    if others:
        raise InputError(f"{checkpoint.path} has parameters that an export has no place for: {', '.join(others)}")
    model = model_class(config.model_type, head.kind)(config)
    model.load_state_dict(renamed, strict=True)
    return model.eval(), left_out


def is_plain_roberta(checkpoint: Checkpoint) -> bool:
    """Whether transformers' own RoBERTa is the same model."""
    return _is_usual(checkpoint, activation="gelu", **PLAIN) and _config(checkpoint).padding_idx == 1


def is_albert(checkpoint: Checkpoint) -> bool:
    """Whether transformers' own ALBERT is the same model."""
    return bool(_config(checkpoint).embed_dim and _config(checkpoint).layer_groups) and _is_usual(checkpoint, **LAYOUT)


def _is_usual(checkpoint: Checkpoint, **layout: Any) -> bool:
    """Whether it has absolute positions, this layout, and a head that transformers' own classes have too."""
    config = _config(checkpoint)
    factor = config.position_options.get("position_scale_factor", 1.0)
    same_head = checkpoint.head.name is None or (
        str(checkpoint.model.args.pooler_activation_fn) == "tanh" and _pooler_dim(checkpoint) == config.dim
    )
    return config == dataclasses.replace(config, positions="absolute", **layout) and factor == 1.0 and same_head


def is_deberta(checkpoint: Checkpoint) -> bool:
    """Whether transformers' own DeBERTa v2 is the same model."""
    config = _config(checkpoint)
    if config != dataclasses.replace(config, positions="deberta", **PLAIN):
        return False
    positions = _positions(checkpoint)
    wanted = {**names.ORIGINAL_DEBERTA, "deberta_norm_eps": config.layer_norm_eps}
    if wanted.items() - positions.complete_options.items() or positions.settings.factor != positions.deberta.scale_factor:
        return False
    return _tied(checkpoint) if checkpoint.head.kind == "MaskedLM" else _pooler_dim(checkpoint) in (None, config.dim)


def _posenc_config(checkpoint: Checkpoint) -> PosencConfig:
    args = checkpoint.model.args
    return PosencConfig(
        **dataclasses.asdict(_config(checkpoint)),
        **_common_config(checkpoint),
        pooler_activation=str(args.pooler_activation_fn),
        pooler_dropout=args.pooler_dropout,
        pooler_dim=_pooler_dim(checkpoint),
    )


def _roberta_config(checkpoint: Checkpoint) -> RobertaConfig:
    options = _bert_options(checkpoint)
    options["max_position_embeddings"] += _config(checkpoint).padding_idx + 1  # rows that no token uses
    return RobertaConfig(**options, classifier_dropout=checkpoint.model.args.pooler_dropout)


def _albert_config(checkpoint: Checkpoint) -> AlbertConfig:
    config, theirs = _config(checkpoint), {ours: name for name, ours in names.ALBERT_ACTIVATIONS.items()}
    options = _bert_options(checkpoint) | {
        "embedding_size": config.embed_dim,
        "num_hidden_groups": config.layer_groups,
        "hidden_act": theirs.get(config.activation, config.activation),
    }
    return AlbertConfig(**options, classifier_dropout_prob=checkpoint.model.args.pooler_dropout)


def _bert_options(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the configs of models in BERT's manner have in common."""
    config = _config(checkpoint)
    return {
        **{option: getattr(config, name) for name, option in TRANSFORMERS.items()},
        **_common_config(checkpoint),
        "vocab_size": config.vocab_size,
        "type_vocab_size": 1,
        "pad_token_id": config.padding_idx,
        "bos_token_id": checkpoint.vocabulary.dictionary.bos(),
        "eos_token_id": config.separator_idx,
    }


def _deberta_config(checkpoint: Checkpoint) -> DebertaV2Config:
    args, scheme = checkpoint.model.args, _positions(checkpoint).deberta
    return DebertaV2Config(
        **_bert_options(checkpoint) | {"type_vocab_size": 0},
        pooler_hidden_act=str(args.pooler_activation_fn),
        pooler_dropout=args.pooler_dropout,
        cls_dropout=args.pooler_dropout,
        legacy=False,  # the head that scores by the word embeddings
        max_relative_positions=scheme.clip,
        position_buckets=scheme.options.buckets or -1,
        pos_att_type=["c2p", "p2c"],
        norm_rel_ebd="layer_norm",
        position_biased_input=False,
        relative_attention=True,
        share_att_key=True,
    )


def _config(checkpoint: Checkpoint) -> EncoderConfig:
    """The encoder's, without what does not belong to its function or is of another head."""
    steps = checkpoint.config.mask_decoder_steps if checkpoint.head.kind == "MaskedLM" else 0
    return dataclasses.replace(
        checkpoint.config, attention_backend="auto", checkpoint_activations=False, mask_decoder_steps=steps
    )


def _tied(checkpoint: Checkpoint) -> bool:
    """Whether the language model's output projection is the word embeddings."""
    encoder = checkpoint.model.encoder
    return getattr(encoder.lm_head, "weight", None) is encoder.sentence_encoder.embed_tokens.weight


def _positions(checkpoint: Checkpoint) -> Any:
    return checkpoint.model.encoder.sentence_encoder.positions


def _common_config(checkpoint: Checkpoint) -> dict[str, Any]:
    common: dict[str, Any] = {"tie_word_embeddings": _tied(checkpoint) or checkpoint.head.kind != "MaskedLM"}
    if checkpoint.head.name is not None:
        names_of = dict(enumerate(labels(checkpoint)))
        regression = bool(getattr(checkpoint.section("criterion"), "regression_target", False))
        common |= {
            "id2label": names_of,
            "label2id": {label: i for i, label in names_of.items()},
            "problem_type": "regression" if regression else "single_label_classification",
            "fairseq_head": checkpoint.head.name,
        }
    return common


def labels(checkpoint: Checkpoint) -> list[str]:
    """The names of the classes: the checkpoint's, those of fairseq's own task if its data still exist, or LABEL_0 and so on."""
    outputs = checkpoint.head.outputs
    saved = checkpoint.task_state.get("labels")
    if isinstance(saved, list) and len(saved) == outputs and all(isinstance(label, str) for label in saved):
        return saved
    path = Path(str(getattr(checkpoint.task, "data", "")), "label", "dict.txt")
    if path.exists():
        dictionary = Dictionary.load(str(path))
        symbols = dictionary.symbols[dictionary.nspecial :][:outputs]
        if len(symbols) == outputs:
            return symbols
    return [f"LABEL_{i}" for i in range(outputs)]


def _pooler_dim(checkpoint: Checkpoint) -> int | None:
    if checkpoint.head.name is None:
        return None
    return len(checkpoint.state[f"{CLASSIFICATION}{checkpoint.head.name}.dense.weight"])
