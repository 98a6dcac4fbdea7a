"""Conversion of state dicts between fairseq's stock RoBERTa and ours with ``absolute`` positions.

Both are the same model. Ours omits what stock fairseq 0.12.2 stores twice in every layer for PyTorch's fused inference path
(``in_proj_weight`` … ``fc2_bias``), and the rows of the position table that no token uses.
"""

import re
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from torch.nn.functional import pad

from ...base.errors import InputError
from ...core.families import ROBERTA
from .state_dict import ABSOLUTE, StateDict

DEAD_COPIES = re.compile(r"\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")
STOCK_TABLE = "sentence_encoder.embed_positions.weight"
OUR_TABLE = ABSOLUTE.removeprefix("encoder.")  # a state dict may be of a part of the model


def our_options(options: Mapping[str, Any]) -> Namespace:
    """Convert the complete options of a stock RoBERTa to those of our model."""
    no_layernorm = not options.get("layernorm_embedding", True)
    return Namespace(**{**options, "positions": "absolute", "no_layernorm_embedding": no_layernorm})


def is_leftover(name: str) -> bool:
    """Return whether stock fairseq 0.12.2 saves a parameter of this name that it does not need."""
    return DEAD_COPIES.search(name) is not None or name.endswith("sentence_encoder.version")


def from_stock(state: StateDict, padding_idx: int = 1) -> StateDict:
    """Rename a state dict of stock RoBERTa. One of ours is returned with the same content."""
    ours = {}
    for name, value in state.items():
        if is_leftover(name):
            continue
        if name.endswith(STOCK_TABLE):
            # fairseq counts positions from padding_idx + 1 and keeps the rows before it.
            name, value = name.replace(STOCK_TABLE, OUR_TABLE), value[padding_idx + 1 :]
        ours[name] = value
    return ours


def to_stock(state: StateDict, padding_idx: int = 1) -> StateDict:
    """Convert a state dict of ours for stock RoBERTa, whose layers add their second copies when they load it.

    Raises:
        InputError: the positions are not ``absolute``.
    """
    stock = {}
    for name, value in state.items():
        if name.endswith(OUR_TABLE):
            name, value = name.replace(OUR_TABLE, STOCK_TABLE), pad(value, (0, 0, padding_idx + 1, 0))
            stock[name.replace("embed_positions.weight", "version")] = value.new_tensor([3.0])
        elif ".positions." in name:
            same = ROBERTA.architecture("absolute")
            raise InputError(f"stock RoBERTa has no place for {name}: only {same} is the same model")
        stock[name] = value
    return stock
