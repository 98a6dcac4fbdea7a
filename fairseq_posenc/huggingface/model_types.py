"""The types of models that transformers and this project share: their parameters' names and their configurations.

fairseq's names are this project's. A model has the same tensors on both sides, with five exceptions: RoBERTa's position table
begins with rows that no token uses; BERT and types like it add the vector of a token type to every embedding; DeBERTa's
table of offsets has no dimensions for layers and heads; some projections are one tensor here and several there, or the reverse;
and tied weights have two names in transformers, or one for both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.data import Dictionary
from transformers import PretrainedConfig

from ..core.transformer import EncoderConfig
from ..core.transformer.config import TRANSFORMERS
from ..plugin.checkpoint.state_dict import ABSOLUTE, CLASSIFICATION, ENCODER, LANGUAGE_MODEL, POSITIONS, SPANS, WORDS, StateDict
from .configuration import PosencConfig
from .relative_keys import SCHEMES, TABLE, to_scheme
from .rotary_types import GATED, MODERNBERT_NAMES, QKV, Joined, join, modernbert_options, split, values_of

Pairs = tuple[tuple[str, str], ...]
"""Beginnings of parameter names, fairseq's and transformers'; # is a number."""

OURS = PosencConfig.model_type
LAYER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2",
         "final_layer_norm")  # fmt: skip
"""The parts of a layer in fairseq."""
PROJECTION = f"{ENCODER}project_in_dim."
RELATIVE = f"{POSITIONS}deberta.weight"
GELU_NEW, GELU_ACCURATE = "gelu_new", "gelu_accurate"
"""transformers' name and this project's of GELU's approximation by tanh, which ALBERT has."""
ACTIVATIONS = {GELU_NEW: GELU_ACCURATE, "gelu_pytorch_tanh": GELU_ACCURATE, "swish": "silu"}
"""This project's names of activations that transformers has other names for."""
SINUSOIDS = "roformer.encoder.embed_positions.weight"
"""Of RoFormer, from which it computes its rotations."""
ALIASES = {"roberta": "lm_head", "bert": "cls.predictions", "albert": "predictions", "roformer": "cls.predictions"}
"""Types whose language model's bias has a second name, and the module of that name."""


def _encoder(model: str, layer: str, parts: Sequence[str]) -> Pairs:
    """Return the embeddings and the layers, whose parts are in the order of :data:`LAYER`."""
    return (
        (WORDS, f"{model}.embeddings.word_embeddings.weight"),
        (ABSOLUTE, f"{model}.embeddings.position_embeddings.weight"),
        (f"{ENCODER}layernorm_embedding.", f"{model}.embeddings.LayerNorm."),
        *_layers(layer, parts),
    )


def _layers(layer: str, parts: Sequence[str]) -> Pairs:
    return tuple((f"{ENCODER}layers.#.{ours}.", f"{layer}.{theirs}.") for ours, theirs in zip(LAYER, parts, strict=True))


def _bert_encoder(model: str, projection: str = "") -> Pairs:
    attention = (f"attention.self.{name}{projection}" for name in ("query", "key", "value"))
    others = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")
    return _encoder(model, f"{model}.encoder.layer.#", (*attention, *others))


def _language_model(transform: str, norm: str, decoder: str) -> Pairs:
    return (
        (f"{LANGUAGE_MODEL}dense.", f"{transform}.dense."),
        (f"{LANGUAGE_MODEL}layer_norm.", f"{transform}.{norm}."),
        (f"{LANGUAGE_MODEL}weight", f"{decoder}.weight"),
        (f"{LANGUAGE_MODEL}bias", f"{decoder}.bias"),
    )


def _other_heads(pooler: str) -> Pairs:
    return (f"{CLASSIFICATION}dense.", f"{pooler}."), (f"{CLASSIFICATION}out_proj.", "classifier."), (SPANS, "qa_outputs.")


_ROBERTA_HEADS = (
    *_language_model("lm_head", "layer_norm", "lm_head.decoder"),
    (CLASSIFICATION, "classifier."),
    (SPANS, "qa_outputs."),
)
_BERT_HEAD = _language_model("cls.predictions.transform", "LayerNorm", "cls.predictions.decoder")


@dataclass(frozen=True)
class ModelType:
    """A type of transformers' models.

    Attributes:
        prefix: the beginning of its classes' names.
        key_map: the names of its parameters, fairseq's and transformers'.
        title: the name of the type in text.
        joined: parameters that it has as one, and fairseq as several.
        separate: parameters that it has as several, and fairseq as one.
    """

    prefix: str
    key_map: Pairs
    title: str = ""
    joined: Joined | None = None
    separate: Joined | None = None


MODEL_TYPES = {
    "roberta": ModelType("Roberta", (*_bert_encoder("roberta"), *_ROBERTA_HEADS), "RoBERTa"),
    "bert": ModelType("Bert", (*_bert_encoder("bert"), *_BERT_HEAD, *_other_heads("bert.pooler.dense"))),
    "albert": ModelType(
        "Albert",
        (
            *_encoder(
                "albert",
                "albert.encoder.albert_layer_groups.#.albert_layers.0",
                (
                    *("attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm"),
                    *("ffn", "ffn_output", "full_layer_layer_norm"),
                ),
            ),
            (PROJECTION, "albert.encoder.embedding_hidden_mapping_in."),
            *_language_model("predictions", "LayerNorm", "predictions.decoder"),
            *_other_heads("albert.pooler"),
        ),
        "ALBERT",
    ),
    "electra": ModelType("Electra", (*_bert_encoder("electra"), (PROJECTION, "electra.embeddings_project."))),
    "deberta-v2": ModelType(
        "DebertaV2",
        (
            *_bert_encoder("deberta", "_proj"),
            (RELATIVE, "deberta.encoder.rel_embeddings.weight"),
            (f"{POSITIONS}deberta.layer_norm.", "deberta.encoder.LayerNorm."),
            *_language_model("lm_predictions.lm_head", "LayerNorm", "lm_predictions.lm_head"),
            *_BERT_HEAD,  # as transformers first had it
            *_other_heads("pooler.dense"),
        ),
        "DeBERTa v2",
    ),
    "modernbert": ModelType(
        "ModernBert",
        (
            (WORDS, "model.embeddings.tok_embeddings.weight"),
            (f"{ENCODER}layernorm_embedding.", "model.embeddings.norm."),
            *_layers("model.layers.#", (*QKV[1], "attn.Wo", "attn_norm", "mlp.Wi", "mlp.Wo", "mlp_norm")),
            (f"{ENCODER}layer_norm.", "model.final_norm."),
            (f"{LANGUAGE_MODEL}dense.", "head.dense."),
            (f"{LANGUAGE_MODEL}layer_norm.", "head.norm."),
            (f"{LANGUAGE_MODEL}weight", "decoder.weight"),
            (f"{LANGUAGE_MODEL}bias", "decoder.bias"),
        ),
        "ModernBERT",
        joined=QKV,
    ),
    "nomic_bert": ModelType(
        "NomicBert",
        (
            *_encoder(
                "nomic_bert",
                "nomic_bert.layers.#",
                (
                    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
                    *("post_attention_layernorm", GATED[0], "mlp.down_proj", "post_mlp_layernorm"),
                ),
            ),
            *_language_model("cls.predictions.transform", "layer_norm", "cls.predictions.decoder"),
            *_other_heads("nomic_bert.pooler.dense"),
        ),
        separate=GATED,
    ),
    "eurobert": ModelType(
        "EuroBert",
        (
            (WORDS, "model.embed_tokens.weight"),
            *_layers(
                "model.layers.#",
                (
                    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
                    *("input_layernorm", GATED[0], "mlp.down_proj", "post_attention_layernorm"),
                ),
            ),
            (f"{ENCODER}layer_norm.", "model.norm."),
            (f"{LANGUAGE_MODEL}weight", "lm_head.weight"),
            (f"{LANGUAGE_MODEL}bias", "lm_head.bias"),
        ),
        separate=GATED,
    ),
    "roformer": ModelType(
        "RoFormer",
        (
            *_bert_encoder("roformer"),
            (PROJECTION, "roformer.embeddings_project."),
            *_BERT_HEAD,
            (CLASSIFICATION, "classifier."),
            (SPANS, "qa_outputs."),
        ),
        "RoFormer",
    ),
    OURS: ModelType("Posenc", ((ENCODER, "model.encoder."), *_ROBERTA_HEADS)),
}
"""By transformers' names of the types. Models are exported to those with a title."""
ROBERTA_LIKE = ("xlm-roberta", "camembert", "longformer")
"""Types that are imported as RoBERTa, whose parameters they have."""


def to_transformers(state: StateDict, model_type: str, padding_idx: int) -> tuple[StateDict, list[str]]:
    """Return a state dict under transformers' names, and the names of parameters that a model of that type has no place for.

    The model is one of the type, :func:`transformers_options`. The name of a classification head is left out:
    ``classification_heads.out_proj.weight``.
    """
    if model_type == "deberta-v2":  # its language model's head scores by the word embeddings
        state = {name: value for name, value in state.items() if name != f"{LANGUAGE_MODEL}weight"}
        state[RELATIVE] = state[RELATIVE][0, 0]
    kind = MODEL_TYPES[model_type]
    renamed, others = _rename(state, kind.key_map)
    if kind.joined is not None:
        renamed = join(renamed, kind.joined)
    if model_type == "roberta":
        table = "roberta.embeddings.position_embeddings.weight"
        unused = renamed[table].new_zeros(padding_idx + 1, renamed[table].shape[1])
        renamed[table] = torch.cat([unused, renamed[table]])
    if head := ALIASES.get(model_type):
        words = renamed[f"{model_type}.embeddings.word_embeddings.weight"]
        renamed[f"{model_type}.embeddings.token_type_embeddings.weight"] = torch.zeros_like(words[:1])  # which adds nothing
        if f"{head}.decoder.bias" in renamed:
            renamed[f"{head}.bias"] = renamed[f"{head}.decoder.bias"]
    return renamed, others


def to_fairseq(state: StateDict, model_type: str, padding_idx: int, relative: str | None = None) -> tuple[StateDict, list[str]]:
    """Return a state dict of transformers' model under fairseq's names, and the names of parameters that have no place here.

    The reverse of :func:`to_transformers`. The vector of token type 0, which every token has here, goes into the position table,
    or into the word embeddings, which the output projection then differs from. ``relative`` is the type of positions where it is
    one of :data:`.relative_keys.SCHEMES`.
    """
    tables = [value for name, value in state.items() if name.endswith(TABLE)]
    state = {name: value for name, value in state.items() if not name.endswith(TABLE)}
    kind = MODEL_TYPES[model_type]
    aliases = {*(f"{head}.bias" for head in ALIASES.values()), SINUSOIDS} - {theirs for _, theirs in kind.key_map}
    state = {name: value for name, value in state.items() if name not in aliases}
    state = state if kind.joined is None else split(state, kind.joined)
    state = state if kind.separate is None else join(state, kind.separate)
    renamed, others = _rename(state, [(theirs, ours) for ours, theirs in kind.key_map])
    if model_type == OURS:
        return renamed, others
    if model_type == "deberta-v2":
        renamed[RELATIVE] = renamed[RELATIVE][None, None]
        if f"{LANGUAGE_MODEL}dense.weight" in renamed:
            renamed.setdefault(f"{LANGUAGE_MODEL}weight", renamed[WORDS])
        return renamed, others
    if f"{CLASSIFICATION}out_proj.weight" not in renamed:  # a pooler without a head
        others += [name for name in state if ".pooler." in name]
        renamed = {name: value for name, value in renamed.items() if not name.startswith(CLASSIFICATION)}
    if model_type == "roberta":
        renamed[ABSOLUTE] = renamed[ABSOLUTE][padding_idx + 1 :]
    types = f"{model_type}.embeddings.token_type_embeddings.weight"
    if types in others:
        others.remove(types)
    if relative is not None:
        unused = padding_idx + 1 if model_type == "roberta" else 0
        return to_scheme(renamed, tables, relative, state[types][0], unused), others
    if types in state:
        table = ABSOLUTE if ABSOLUTE in renamed else WORDS
        renamed[table] = renamed[table] + state[types][0]
    return renamed, others


def activation_of(name: str) -> str:
    """Return this project's name of an activation in transformers."""
    return ACTIVATIONS.get(name, name)


def encoder_config(config: PretrainedConfig, dictionary: Dictionary, padding_idx: int) -> EncoderConfig:
    """Return the encoder that a configuration of transformers describes.

    Args:
        config: of one of :data:`MODEL_TYPES`.
        dictionary: the model's vocabulary in fairseq.
        padding_idx: the number of the padding symbol in transformers.
    """
    if isinstance(config, PosencConfig):
        return config.encoder_config()
    rotary = values_of(config) or {}
    values = {ours: getattr(config, theirs) for ours, theirs in TRANSFORMERS.items() if ours not in rotary} | rotary
    values["activation"] = activation_of(values["activation"])
    relative = getattr(config, "position_embedding_type", None) or "absolute"
    if relative != "absolute":
        values["positions"] = SCHEMES[relative][0]
        values["position_options"] = {
            **({"shaw_terms": "keys"} if relative == "relative_key" else {}),
            **({"position_share_layers": True} if config.model_type == "albert" else {}),
        }
    if config.model_type == "deberta-v2":
        clip, buckets = config.max_relative_positions, config.position_buckets
        values["positions"] = "deberta"
        values["position_options"] = {
            "deberta_projections": "content",
            "deberta_indexing": "original",
            "deberta_norm_eps": config.layer_norm_eps,
            "max_relative_position": clip if clip > 0 else config.max_position_embeddings,
            **({"deberta_buckets": buckets} if buckets > 0 else {}),
        }
    elif config.model_type == "albert":
        values |= {"embed_dim": config.embedding_size, "layer_groups": config.num_hidden_groups}
    elif config.model_type == "electra":
        values["embed_dim"] = config.embedding_size if config.embedding_size != config.hidden_size else 0
    elif config.model_type == "roberta":  # whose table begins with rows that no token uses
        values["max_positions"] -= padding_idx + 1
    return EncoderConfig(vocab_size=len(dictionary), padding_idx=dictionary.pad(), separator_idx=dictionary.eos(), **values)


def transformers_options(
    config: EncoderConfig, model_type: str, positions: Any, pooler_activation: str, pooler_dropout: float
) -> dict[str, Any]:
    """Return transformers' options of an encoder, the reverse of :func:`encoder_config`, and of its classification head.

    Args:
        model_type: the type, one with a title.
        positions: the encoder's :class:`Positions`.
        pooler_activation, pooler_dropout: of the classification head.
    """
    names = MODERNBERT_NAMES if model_type == "modernbert" else TRANSFORMERS
    options: dict[str, Any] = {theirs: getattr(config, ours) for ours, theirs in names.items()}
    options[names["activation"]] = GELU_NEW if config.activation == GELU_ACCURATE else config.activation
    if model_type == "modernbert":
        return options | modernbert_options(config) | {"classifier_activation": options["hidden_activation"]}
    if model_type == "roformer":
        return options | {"embedding_size": config.embed_dim or config.dim, "type_vocab_size": 1}
    if model_type == "roberta":
        options["max_position_embeddings"] += config.padding_idx + 1
        return options | {"type_vocab_size": 1, "classifier_dropout": pooler_dropout}
    if model_type == "albert":
        return options | {
            "embedding_size": config.embed_dim,
            "num_hidden_groups": config.layer_groups,
            "type_vocab_size": 1,
            "classifier_dropout_prob": pooler_dropout,
        }
    return options | {
        "type_vocab_size": 0,
        "pooler_hidden_act": pooler_activation,
        "pooler_dropout": pooler_dropout,
        "cls_dropout": pooler_dropout,
        "legacy": False,  # the head that scores by the word embeddings
        "max_relative_positions": positions.deberta.clip,
        "position_buckets": positions.deberta.options.buckets or -1,
        "pos_att_type": ["c2p", "p2c"],
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
        "relative_attention": True,
        "share_att_key": True,
    }


def _rename(state: StateDict, pairs: Sequence[tuple[str, str]]) -> tuple[StateDict, list[str]]:
    """Return the tensors whose names begin as the first of a pair, beginning as the second instead; and the other names."""
    patterns = [(re.compile(re.escape(old).replace(r"\#", r"(\d+)")), new) for old, new in pairs]
    renamed, others = {}, []
    for name, value in state.items():
        for pattern, new in patterns:
            if match := pattern.match(name):
                renamed[new.replace("#", "".join(match.groups())) + name[match.end() :]] = value
                break
        else:
            others.append(name)
    return renamed, others
