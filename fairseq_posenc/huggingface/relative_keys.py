"""Models with ``position_embedding_type`` ``relative_key`` or ``relative_key_query``, which transformers 5 ignores.

Their scores are ``(q_i·k_j + q_i·a_{i-j}) / √d``, which is ``shaw`` with a^K alone, or, with ``k_j·a_{i-j}`` as a third product,
``m4``; both have the offset j - i here. They have no absolute positions.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from ..base.errors import InputError
from ..plugin.checkpoint.state_dict import ABSOLUTE, POSITIONS, WORDS, StateDict

SCHEMES = {"relative_key": ("shaw", "keys"), "relative_key_query": ("m4", "weight")}
"""The scheme, and the name of its table, by the type."""
TABLE = "distance_embedding.weight"
NAME = "posenc_relative_keys"


def restore(model: PreTrainedModel, weights: StateDict) -> None:
    """Give a model of transformers 5 the attention of transformers 4, with the tables among the weights; in place.

    Raises:
        InputError: the tables are not there, or of other sizes.
    """
    model.base_model.embeddings.position_embeddings.weight.data.zero_()
    attentions = [module for module in model.modules() if hasattr(module, "query") and hasattr(module, "key")]
    if hasattr(attentions[0], "distance_embedding"):  # transformers 4
        return
    names = sorted((name for name in weights if name.endswith(TABLE)), key=lambda name: [*map(int, re.findall(r"\d+", name))])
    d = model.config.hidden_size // model.config.num_attention_heads
    factor = d**0.5 if model.config.model_type == "albert" else 1.0  # ALBERT's products with tables are not scaled
    shape = 2 * model.config.max_position_embeddings - 1, d
    if [weights[name].shape for name in names] != [shape] * len(attentions):
        raise InputError(
            f"position_embedding_type {model.config.position_embedding_type!r} needs a {TABLE} of {shape} in each layer"
        )
    for attention, name in zip(attentions, names, strict=True):
        attention.distance_embedding = nn.Embedding.from_pretrained(factor * weights[name].float())
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, eager_mask)
    model.config._attn_implementation = NAME


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor]:
    """(B, H, n, d) each -> (B, n, H, d), and the weights (B, H, n, n)."""
    places, table = torch.arange(query.shape[2]), module.distance_embedding.weight
    a = table[places[:, None] - places + len(table) // 2]  # (n, n, d)
    e = query @ key.transpose(-1, -2) + torch.einsum("bhid,ijd->bhij", query, a)
    if module.config.position_embedding_type == "relative_key_query":
        e = e + torch.einsum("bhjd,ijd->bhij", key, a)
    e = e * query.shape[-1] ** -0.5
    p = (e if attention_mask is None else e + attention_mask).softmax(-1)
    return (p @ value).transpose(1, 2), p


def to_scheme(state: StateDict, tables: list[Tensor], kind: str, token_type: Tensor, unused: int) -> StateDict:
    """Return parameters under fairseq's names with the tables, by layer, in place of absolute positions.

    The vector of token type 0, for which there are no absolute positions, goes into the word embeddings. ``unused`` is the
    number of positions that no token has.
    """
    state = {name: value for name, value in state.items() if name != ABSOLUTE}
    state[WORDS] = state[WORDS] + token_type
    return state | {POSITIONS + ".".join(SCHEMES[kind]): torch.stack(tables)[:, None, unused : len(tables[0]) - unused].flip(2)}
