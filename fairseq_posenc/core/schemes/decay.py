"""Which parameters of a module weight decay leaves as they are."""

from collections.abc import Collection
from typing import Any

from torch import nn

from .base import Scheme

KINDS = ("norms", "biases", "positions")


def without_decay(module: nn.Module, kinds: Collection[str] = KINDS) -> list[nn.Parameter]:
    """Return the parameters of some of :data:`KINDS`.

    ``norms`` are the parameters of normalizations, ``positions`` those of schemes but for :attr:`.Scheme.decays`, and ``biases``
    others whose name contains "bias".
    """
    found: dict[nn.Parameter, str | None] = {}
    for part in module.modules():  # what contains another comes before it
        if isinstance(part, Scheme):
            found |= {
                p: None if {n, n.removesuffix(".weight")} & {*part.decays} else "positions" for n, p in part.named_parameters()
            }
        for name, p in part.named_parameters(recurse=False):
            if "Norm" in type(part).__name__:
                found[p] = "norms"
            elif "bias" in name:
                found.setdefault(p, "biases")
    return [p for p, kind in found.items() if kind in kinds]


def decay_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return all parameters as two groups for an optimizer of PyTorch: those that decay, and those of :func:`without_decay`.

    The usual rule, ``p.ndim >= 2``, would have the position parameters of T5, TISA and FIRE decay.
    """
    exempt = set(without_decay(module))
    return [
        {"params": [p for p in module.parameters() if (p in exempt) == without], "weight_decay": 0.0 if without else weight_decay}
        for without in (False, True)
    ]
