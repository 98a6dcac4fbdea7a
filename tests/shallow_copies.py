"""Copies of OmegaConf 2.0's nodes without the nodes above them, as in OmegaConf 2.1.

2.0 copies the whole tree with each node, which is most of the time that fairseq's programs take to start.
"""

import copy
from collections import defaultdict

from omegaconf import DictConfig, ListConfig, nodes


def install() -> None:
    kinds = (nodes.AnyNode, nodes.StringNode, nodes.IntegerNode, nodes.FloatNode, nodes.BooleanNode, nodes.EnumNode)
    for kind in (DictConfig, ListConfig, *kinds):
        kind.__deepcopy__ = _deepcopy


def _deepcopy(node, memo):
    copied = memo[id(node)] = object.__new__(type(node))
    metadata = object.__new__(type(node._metadata))
    metadata.__dict__.update(node._metadata.__dict__, flags=dict(node._metadata.flags))
    metadata.resolver_cache = defaultdict(dict, copy.deepcopy(dict(node._metadata.resolver_cache), memo))
    parent = node.__dict__["_parent"]
    copied.__dict__.update(node.__dict__, _metadata=metadata, _parent=memo.get(id(parent), parent))
    value = "_val" if "_val" in node.__dict__ else "_content"
    copied.__dict__[value] = copy.deepcopy(node.__dict__[value], memo)
    return copied
