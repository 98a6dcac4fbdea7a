"""Copies of OmegaConf 2.0's nodes without the nodes above them, as in OmegaConf 2.1.

2.0 copies the whole tree with each node, which is most of the time that fairseq's programs take to start.
"""

import functools

from omegaconf import DictConfig, ListConfig, nodes


def install() -> None:
    kinds = (nodes.AnyNode, nodes.StringNode, nodes.IntegerNode, nodes.FloatNode, nodes.BooleanNode, nodes.EnumNode)
    for kind in (DictConfig, ListConfig, *kinds):
        kind.__deepcopy__ = _keeping_the_parent(kind.__deepcopy__)


def _keeping_the_parent(deepcopy):
    @functools.wraps(deepcopy)
    def copied(self, memo):
        parent = self.__dict__["_parent"]
        memo.setdefault(id(parent), parent)  # a copied container sets the parents of what it contains afterwards
        return deepcopy(self, memo)

    return copied
