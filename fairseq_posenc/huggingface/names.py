"""Parameter names: fairseq's, which the project uses, beside those of transformers' models.

A model has the same tensors on both sides, with four exceptions that :func:`from_transformers`, :func:`to_roberta`,
:func:`to_albert` and :func:`to_deberta` see to: RoBERTa's position table begins with rows that no token uses, BERT, ALBERT and
ELECTRA add a token type's vector to every embedding, DeBERTa's relative table has no dimensions for layers and heads, and tied
weights have two names in transformers, or one for both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from ..models.state import ABSOLUTE, CLASSIFICATION, ENCODER, LANGUAGE_MODEL, POSITIONS, SPANS, WORDS, StateDict

Pairs = Sequence[tuple[str, str]]  # beginnings of names, fairseq's and transformers'; # stands for a number

LANGUAGE_MODEL_HEAD = (
    (f"{LANGUAGE_MODEL}dense.", "lm_head.dense."),
    (f"{LANGUAGE_MODEL}layer_norm.", "lm_head.layer_norm."),
    (f"{LANGUAGE_MODEL}weight", "lm_head.decoder.weight"),
    (f"{LANGUAGE_MODEL}bias", "lm_head.decoder.bias"),
)
HEADS = (*LANGUAGE_MODEL_HEAD, (CLASSIFICATION, "classifier."), (SPANS, "qa_outputs."))
POSENC: Pairs = ((ENCODER, "model.encoder."), *HEADS)


def _embeddings(model: str) -> Pairs:
    return (
        (WORDS, f"{model}.embeddings.word_embeddings.weight"),
        (ABSOLUTE, f"{model}.embeddings.position_embeddings.weight"),
        (f"{ENCODER}layernorm_embedding.", f"{model}.embeddings.LayerNorm."),
    )


LAYER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2",
         "final_layer_norm")  # fmt: skip
"""The parts of one of our layers."""


def _layers(theirs: str, *parts: str) -> Pairs:
    """Our layers and theirs, whose parts are in the order of ``LAYER``."""
    return tuple((f"{ENCODER}layers.#.{our}.", f"{theirs}.{their}.") for our, their in zip(LAYER, parts, strict=True))


def _bert_layout(model: str, projection: str = "") -> Pairs:
    own = (f"attention.self.{name}{projection}" for name in ("query", "key", "value"))
    rest = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")
    return (*_embeddings(model), *_layers(f"{model}.encoder.layer.#", *own, *rest))


def _bert_head(transform: str, decoder: str) -> Pairs:
    return (
        (f"{LANGUAGE_MODEL}dense.", f"{transform}.dense."),
        (f"{LANGUAGE_MODEL}layer_norm.", f"{transform}.LayerNorm."),
        (f"{LANGUAGE_MODEL}weight", f"{decoder}.weight"),
        (f"{LANGUAGE_MODEL}bias", f"{decoder}.bias"),
    )


ROBERTA: Pairs = (*_bert_layout("roberta"), *HEADS)
BERT_HEAD = _bert_head("cls.predictions.transform", "cls.predictions.decoder")
BERT: Pairs = (
    *_bert_layout("bert"),
    *BERT_HEAD,
    (f"{CLASSIFICATION}dense.", "bert.pooler.dense."),
    (f"{CLASSIFICATION}out_proj.", "classifier."),
    (SPANS, "qa_outputs."),
)
PROJECTION = f"{ENCODER}project_in_dim."
ALBERT: Pairs = (
    *_embeddings("albert"),
    (PROJECTION, "albert.encoder.embedding_hidden_mapping_in."),
    *_layers(
        "albert.encoder.albert_layer_groups.#.albert_layers.0",
        "attention.query",
        "attention.key",
        "attention.value",
        "attention.dense",
        "attention.LayerNorm",
        "ffn",
        "ffn_output",
        "full_layer_layer_norm",
    ),
    *_bert_head("predictions", "predictions.decoder"),
    (f"{CLASSIFICATION}dense.", "albert.pooler."),
    (f"{CLASSIFICATION}out_proj.", "classifier."),
    (SPANS, "qa_outputs."),
)
ELECTRA: Pairs = (*_bert_layout("electra"), (PROJECTION, "electra.embeddings_project."))
BY_TYPE = {"roberta": ROBERTA, "bert": BERT, "albert": ALBERT, "electra": ELECTRA}
"""Of models with absolute positions, by transformers' name of the type."""
ALIASES = {"roberta": "lm_head", "bert": "cls.predictions", "albert": "predictions"}
"""Where the language model's bias stands, beside ``decoder.bias``, by the same."""
RELATIVE = f"{POSITIONS}deberta.weight"
DEBERTA: Pairs = (
    *_bert_layout("deberta", "_proj"),
    (RELATIVE, "deberta.encoder.rel_embeddings.weight"),
    (f"{POSITIONS}deberta.layer_norm.", "deberta.encoder.LayerNorm."),
    (f"{LANGUAGE_MODEL}dense.", "lm_predictions.lm_head.dense."),
    (f"{LANGUAGE_MODEL}layer_norm.", "lm_predictions.lm_head.LayerNorm."),
    (f"{LANGUAGE_MODEL}bias", "lm_predictions.lm_head.bias"),
    (f"{CLASSIFICATION}dense.", "pooler.dense."),
    (f"{CLASSIFICATION}out_proj.", "classifier."),
    (SPANS, "qa_outputs."),
)


ALBERT_ACTIVATIONS = {"gelu_new": "gelu_accurate"}
"""transformers' names of activations, and this project's."""
ORIGINAL_DEBERTA = {"deberta_projections": "content", "deberta_indexing": "original"}
"""Options of DeBERTa's positions as its authors and transformers have them."""


def rename(state: StateDict, pairs: Pairs) -> tuple[StateDict, list[str]]:
    """The tensors whose names begin as the first of a pair, beginning as the second instead; and the other names."""
    patterns = [(re.compile(re.escape(old).replace(r"\#", r"(\d+)")), new) for old, new in pairs]
    renamed, others = {}, []
    for name, value in state.items():
        for pattern, new in patterns:
            if found := pattern.match(name):
                renamed[new.replace("#", found[1]) + name[found.end() :] if "#" in new else new + name[found.end() :]] = value
                break
        else:
            others.append(name)
    return renamed, others


def reverse(pairs: Pairs) -> Pairs:
    """From transformers' names to fairseq's."""
    return [(theirs, ours) for ours, theirs in pairs]


def to_posenc(state: StateDict) -> tuple[StateDict, list[str]]:
    """fairseq's state dict for our models in transformers, and what has no place there.

    Classification heads come without their name: ``classification_heads.out_proj.weight``.
    """
    return rename(state, POSENC)


def to_roberta(state: StateDict, padding_idx: int) -> tuple[StateDict, list[str]]:
    """fairseq's state dict with ``absolute`` positions for transformers' RoBERTa, and what has no place there."""
    renamed, others = rename(state, ROBERTA)
    table = "roberta.embeddings.position_embeddings.weight"
    unused = renamed[table].new_zeros(padding_idx + 1, renamed[table].shape[1])
    return renamed | {table: torch.cat([unused, renamed[table]])} | _what_only_transformers_has(renamed, "roberta"), others


def to_albert(state: StateDict) -> tuple[StateDict, list[str]]:
    """fairseq's state dict of an ALBERT with ``absolute`` positions for transformers' own, and what has no place there."""
    renamed, others = rename(state, ALBERT)
    return renamed | _what_only_transformers_has(renamed, "albert"), others


def _what_only_transformers_has(state: StateDict, model_type: str) -> StateDict:
    """A token type, which adds nothing, and the other name of the language model's bias."""
    words, head = state[f"{model_type}.embeddings.word_embeddings.weight"], ALIASES[model_type]
    found = {f"{model_type}.embeddings.token_type_embeddings.weight": torch.zeros_like(words[:1])}
    if f"{head}.decoder.bias" in state:
        found[f"{head}.bias"] = state[f"{head}.decoder.bias"]
    return found


def to_deberta(state: StateDict) -> tuple[StateDict, list[str]]:
    """fairseq's state dict with ``deberta`` positions for transformers' DeBERTa v2, and what has no place there.

    Its language model's head scores by the word embeddings.
    """
    flat = {RELATIVE: state[RELATIVE][0, 0]}
    return rename({name: value for name, value in (state | flat).items() if name != f"{LANGUAGE_MODEL}weight"}, DEBERTA)


def from_transformers(state: StateDict, model_type: str, padding_idx: int) -> tuple[StateDict, list[str]]:
    """A state dict of transformers' model under fairseq's names, and what was left out.

    The model is of the type fairseq_posenc, deberta-v2 or one of :data:`BY_TYPE`, which get ``absolute`` positions. The vector
    of token type 0, which every token has here, goes into the position table.
    """
    if model_type == "fairseq_posenc":
        return rename(state, reverse(POSENC))
    aliases = {f"{head}.bias" for head in ALIASES.values()}
    state = {name: value for name, value in state.items() if name not in aliases}
    if model_type == "deberta-v2":
        renamed, others = rename(state, reverse((*DEBERTA, *BERT_HEAD)))
        if f"{LANGUAGE_MODEL}dense.weight" in renamed:
            renamed.setdefault(f"{LANGUAGE_MODEL}weight", renamed[WORDS])
        return renamed | {RELATIVE: renamed[RELATIVE][None, None]}, others
    renamed, others = rename(state, reverse(BY_TYPE[model_type]))
    if f"{CLASSIFICATION}out_proj.weight" not in renamed:  # a pooler that no head goes with
        others += [name for name in state if ".pooler." in name]
        renamed = {name: value for name, value in renamed.items() if not name.startswith(CLASSIFICATION)}
    types = f"{model_type}.embeddings.token_type_embeddings.weight"
    unused_rows = padding_idx + 1 if model_type == "roberta" else 0
    renamed[ABSOLUTE] = renamed[ABSOLUTE][unused_rows:]
    if types in others:
        others.remove(types)
        renamed[ABSOLUTE] = renamed[ABSOLUTE] + state[types][0]
    return renamed, others


def name_head(state: StateDict, name: str) -> StateDict:
    """``classification_heads.dense.…`` -> ``classification_heads.NAME.dense.…``."""
    return {re.sub(f"^{re.escape(CLASSIFICATION)}", f"{CLASSIFICATION}{name}.", key): value for key, value in state.items()}


def unname_head(state: StateDict, name: str | None) -> tuple[StateDict, list[str]]:
    """The reverse for one classification head, and the names of the other heads' parameters, which are left out."""
    own = f"{CLASSIFICATION}{name}."
    others = [key for key in state if key.startswith(CLASSIFICATION) and not key.startswith(own)]
    kept = {re.sub(f"^{re.escape(own)}", CLASSIFICATION, key): value for key, value in state.items() if key not in others}
    return kept, others
