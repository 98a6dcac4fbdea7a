"""``--optimizer muon``: PyTorch's Muon for the matrices of the layers, and AdamW for all other parameters."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.optim import register_optimizer
from torch import nn

from ...base.errors import InputError
from .settings import AdamConfig, AdamOptimizer

NAME = "muon"
MATRIX = "muon"
"""The ``param_group`` of a parameter that Muon updates; fairseq's copies of parameters in float32 keep this attribute."""
MOMENTUM = "momentum"
"""The option that Muon's group has, and AdamW's has not."""


@dataclass
class MuonConfig(AdamConfig):
    """Options of the optimizer; those of Adam are for the parameters that AdamW updates, but for λ and the learning rate."""

    muon_momentum: float = field(default=0.95, metadata={"help": "μ, the momentum of the layers' matrices"})


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for groups with a :data:`MOMENTUM`, and AdamW for the others.

    Muon's updates are scaled by 0.2 sqrt(max(rows, columns)), so that they are as large as AdamW's, and both have one learning
    rate and one weight decay (Liu et al. 2025, arXiv:2502.16982, section 2.2).

    Args:
        params: groups with all options of these optimizers.
    """

    def __init__(self, params: Iterable[dict[str, Any]]) -> None:
        super().__init__(params, {})
        none = nn.Parameter(torch.empty(0, 0))
        self._parts = {True: torch.optim.Muon([none]), False: torch.optim.AdamW([none])}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # fairseq gives no closure
        for group in self.param_groups:
            part = self._parts[MOMENTUM in group]
            part.param_groups, part.state = [group], self.state
            part.step()


@register_optimizer(NAME, dataclass=MuonConfig)
class FairseqMuon(AdamOptimizer):
    """:class:`MuonWithAdamW` for fairseq.

    Args:
        params: parameters, those that :func:`mark_matrices` has marked among them.

    Raises:
        InputError: none is marked, or an option is not a number that it takes.
    """

    def __init__(self, cfg: MuonConfig, params: Iterable[nn.Parameter]) -> None:
        super().__init__(cfg)
        if not 0 <= cfg.muon_momentum < 1:
            raise InputError(f"--muon-momentum {cfg.muon_momentum}: a number from 0 to below 1 is needed")
        every = list(params)
        matrices = [p for p in every if _is_matrix(p)]
        if not matrices:
            raise InputError(f"--optimizer {NAME} is for models with linear maps in layers, which this one lacks: use adam")
        others = [p for p in every if not _is_matrix(p)]
        settings = self.optimizer_config
        common = {name: settings[name] for name in ("lr", "weight_decay")}
        muon = torch.optim.Muon(matrices, momentum=cfg.muon_momentum, adjust_lr_fn="match_rms_adamw", **common)
        adamw = torch.optim.AdamW(others, **settings).param_groups if others else []
        self._optimizer = MuonWithAdamW([*muon.param_groups, *adamw])


def mark_matrices(model: nn.Module) -> None:
    """Mark the parameters of a model that Muon is to update: the weights of the linear maps in its layers.

    The others are biases, norms, embeddings, heads, and what encodes positions, in layers as well.
    """
    for path, module in model.named_modules():
        parents = path.split(".")
        if isinstance(module, nn.Linear) and "layers" in parents and "positions" not in parents:
            vars(module.weight)["param_group"] = MATRIX


def _is_matrix(p: nn.Parameter) -> bool:
    return getattr(p, "param_group", None) == MATRIX
