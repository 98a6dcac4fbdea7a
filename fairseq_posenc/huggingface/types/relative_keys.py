"""BERT and its kin with ``position_embedding_type`` ``relative_key`` or ``relative_key_query``, which transformers 5 ignores.

Their scores are ``(q_i·k_j + q_i·a_{i-j}) / √d``, which is ``shaw`` with a^K alone, or, with ``k_j·a_{i-j}`` as a third product,
``m4``; both have the offset j - i here. They have no absolute positions.
"""

import re
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig, PreTrainedModel
from transformers.masking_utils import eager_mask

from ...base.errors import InputError
from ...plugin.checkpoint.state_dict import ABSOLUTE, POSITIONS, WORDS, StateDict
from .base import Options

SCHEMES = {"relative_key": ("shaw.keys", {"shaw_terms": "keys"}), "relative_key_query": ("m4.weight", {})}
"""The scheme's table, and its options, by the type."""
TABLE = "distance_embedding.weight"
NAME = "posenc_relative_keys"


def fields(config: PretrainedConfig) -> Options:
    """Return the fields of EncoderConfig that describe positions by offset; none if they are absolute.

    Raises:
        InputError: they are of another type, which transformers 5 ignores.
    """
    kind = getattr(config, "position_embedding_type", None) or "absolute"
    if kind == "absolute":
        return {}
    if kind not in SCHEMES:
        raise InputError(f"position_embedding_type {kind!r} cannot be imported, only absolute, {' and '.join(SCHEMES)}")
    table, options = SCHEMES[kind]
    return {"positions": table.partition(".")[0], "position_options": dict(options)}


def restore(model: PreTrainedModel, weights: StateDict, scaled: bool) -> None:
    """Give a model of transformers 5 the attention of transformers 4, with the tables among the weights; in place.

    ``scaled``: whether the products with tables are divided by √d, as those of queries and keys.

    Raises:
        InputError: the tables are not there, or of other sizes.
    """
    model.base_model.embeddings.position_embeddings.weight.data.zero_()
    attentions = [module for module in model.modules() if hasattr(module, "query") and hasattr(module, "key")]
    if hasattr(attentions[0], "distance_embedding"):  # transformers 4
        return
    names = sorted((name for name in weights if name.endswith(TABLE)), key=lambda name: [*map(int, re.findall(r"\d+", name))])
    d = model.config.hidden_size // model.config.num_attention_heads
    shape = 2 * model.config.max_position_embeddings - 1, d
    if [weights[name].shape for name in names] != [shape] * len(attentions):
        raise InputError(
            f"position_embedding_type {model.config.position_embedding_type!r} needs a {TABLE} of {shape} in each layer"
        )
    for attention, name in zip(attentions, names, strict=True):
        attention.distance_embedding = nn.Embedding.from_pretrained((1.0 if scaled else d**0.5) * weights[name].float())
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


def to_scheme(state: StateDict, config: PretrainedConfig, unused: int) -> None:
    """Replace the layers' tables (2n - 1, d), if there are any, and the absolute positions by the scheme's table, in place.

    The rows of the table of absolute positions are zero, but for the vector of token type 0, which goes into the word embeddings.
    ``unused`` is the number of positions that no token has.
    """
    if tables := [state.pop(name) for name in [*state] if name.endswith("offsets.weight")]:
        state[WORDS] = state[WORDS] + state.pop(ABSOLUTE)[0]
        table, _ = SCHEMES[config.position_embedding_type]
        state[POSITIONS + table] = torch.stack(tables)[:, None, unused : len(tables[0]) - unused].flip(2)
