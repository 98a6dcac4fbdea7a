"""``--optimizer stable_adamw``: AdamW whose update is clipped, tensor by tensor."""

from collections.abc import Iterable
from typing import Any

import torch
from fairseq.optim import register_optimizer
from torch import nn

from .settings import AdamConfig, AdamOptimizer

NAME = "stable_adamw"


class StableAdamW(torch.optim.Optimizer):
    """StableAdamW (Wortsman et al. 2023, arXiv:2304.13013, Algorithm 2).

    For each tensor with the gradient g, in update t = 1, 2, … with the learning rate α::

        β̂_i = β_i (1 - β_i^(t-1)) / (1 - β_i^t)
        v = β̂_1 v + (1 - β̂_1) g,  u = β̂_2 u + (1 - β̂_2) g²
        RMS = sqrt(mean(g² / max(u, ε²))),  η = α / max(1, RMS)
        θ = θ - η λ θ - η v / (sqrt(u) + ε)

    Moments are float32. Weights of half precision are updated in float32 and rounded. A parameter without a gradient stays as it
    is. Nothing is read from the device.
    """

    supports_memory_efficient_fp16 = True  # read by fairseq's wrappers

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # fairseq gives no closure
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group)

    def _update(self, p: nn.Parameter, group: dict[str, Any]) -> None:
        state, gradient, weight = self.state[p], p.grad.float(), p.float()  # type: ignore[union-attr]  # step has checked it
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))
        state["step"] += 1
        for name in ("exp_avg", "exp_avg_sq"):  # fairseq's memory-efficient wrappers load a checkpoint's state on the CPU
            state[name] = state[name].to(weight.device)
        first, second, eps = state["exp_avg"], state["exp_avg_sq"], group["eps"]
        t = state["step"]  # with β̂, a moving average of t values needs no correction of its bias
        beta1, beta2 = (beta * (1 - beta ** (t - 1)) / (1 - beta**t) for beta in group["betas"])
        first.lerp_(gradient, 1 - beta1)
        square = gradient.square()
        second.lerp_(square, 1 - beta2)
        rms = (square / second.clamp(min=eps**2)).mean().sqrt()
        rate = group["lr"] / rms.clamp(min=1)
        weight.mul_(1 - rate * group["weight_decay"])
        weight.sub_(rate * first / (second.sqrt() + eps))
        p.copy_(weight)


@register_optimizer(NAME, dataclass=AdamConfig)
class FairseqStableAdamW(AdamOptimizer):
    """fairseq's interface to :class:`StableAdamW`, for parameters that are whole tensors; raises InputError for other betas."""

    def __init__(self, cfg: AdamConfig, params: Iterable[nn.Parameter]) -> None:
        super().__init__(cfg)
        self._optimizer = StableAdamW(params, **self.optimizer_config)
