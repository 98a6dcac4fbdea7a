"""Adam in a handful of kernels per update, for whose results the host does not wait."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from fairseq.optim import register_optimizer
from torch import Tensor, nn

from ...base.errors import InputError
from .settings import MASTER, AdamConfig, AdamOptimizer, by_parameter, exempt, flat_parts

NAME = "fused_adam"


@register_optimizer(NAME, dataclass=AdamConfig)
class FusedAdam(AdamOptimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019) on one flat float32 copy of all parameters.

    With the gradient g, its factor c and the number of the update t, m = β1 m + (1-β1) c g and v = β2 v + (1-β2) (c g)²::

        w = (1 - η λ) w - η / (1-β1^t) · m / (sqrt(v / (1-β2^t)) + ε / sqrt(1-β2^t))

    It equals fairseq's ``adam`` up to rounding: fairseq adds ε before the bias of v is corrected, the fused kernel after it,
    so the kernel is given the quotient. A parameter without a gradient counts as one with a gradient of zero and decays, as with
    fairseq's ``--bf16``; in fairseq's float32 it does not.

    The device multiplies gradients, clips them, and skips updates from the first one whose gradients are not finite: see
    :attr:`failed`.

    Args:
        params: the parameters, on one device, in float32 or bfloat16.

    Raises:
        InputError: ``--adam-betas`` are not two numbers from 0 to below 1, or parameters have another type.
    """

    def __init__(self, cfg: AdamConfig, params: Iterable[nn.Parameter]) -> None:
        super().__init__(cfg)
        self._parameters: list[Tensor] = sorted(params, key=lambda p: exempt(p) != "")
        if others := {p.dtype for p in self._parameters} - {torch.float32, torch.bfloat16}:
            raise InputError(f"--optimizer {NAME} trains in float32 or bfloat16 (--bf16), not in {', '.join(map(str, others))}")
        self._master = nn.Parameter(torch.cat([p.detach().flatten().float() for p in self._parameters]))
        self._master.grad = torch.zeros_like(self._master)
        self._weights, self._gradients = (by_parameter(x, self._parameters) for x in (self._master.detach(), self._master.grad))
        self.failed = self._master.new_zeros(())
        """A number on the device: 1 as soon as gradients were not finite, 0 before."""
        self._updates = 0
        self._factor: float | Tensor = 1.0
        self._gathered = False
        self._optimizer: Any = torch.optim.AdamW(flat_parts(self._master, self._parameters), fused=True, **self.optimizer_config)

    def backward(self, loss: Tensor) -> None:
        loss.backward()
        self._gathered = False

    def zero_grad(self) -> None:
        for p in self._parameters:
            p.grad = None
        self._factor = 1.0

    def multiply_grads(self, c: float | Tensor) -> None:
        self._factor = self._factor * (c.float() if isinstance(c, Tensor) else c)  # float32 is what the kernel takes

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """Clip the multiplied gradients; return their norm before that, as a tensor on the device."""
        self._gather()
        norm = torch.linalg.vector_norm(self._master.grad) * self._factor
        if max_norm > 0:
            self._factor = self._factor * (max_norm / (norm + 1e-6)).clamp(max=1)
        self.failed = torch.maximum(self.failed, norm.isfinite().logical_not().to(norm.dtype))
        return norm

    @torch.no_grad()
    def step(self, closure: Any = None, scale: float = 1.0, groups: Any = None) -> None:
        self._gather()
        self._updates += 1
        factor = self._factor
        scale_of = factor.reciprocal() if isinstance(factor, Tensor) else self._master.new_full((), 1 / factor)
        self._optimizer.grad_scale, self._optimizer.found_inf = scale_of, self.failed
        eps, (_, beta2) = self.param_groups[0]["eps"], self.param_groups[0]["betas"]
        for group in self.param_groups:
            group["eps"] = eps / math.sqrt(1 - beta2**self._updates)
        self._optimizer.step()
        for group in self.param_groups:
            group["eps"] = eps
        torch._foreach_copy_(self._parameters, self._weights)

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state, and the float32 weights if the model's are rounded."""
        state = self._optimizer.state_dict()
        rounded = any(p.dtype != torch.float32 for p in self._parameters)
        return {**state, MASTER: self._master.detach()} if rounded else state

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        super().load_state_dict(state_dict, optimizer_overrides)
        self._updates = int(state_dict["state"][0]["step"]) if state_dict["state"] else 0
        master = state_dict.get(MASTER)
        if master is not None and all(
            torch.equal(part.to(p), p) for part, p in zip(by_parameter(master, self._parameters), self._parameters, strict=True)
        ):  # otherwise the weights were changed since, as by averaging, and count
            self._master.data.copy_(master)

    @torch.no_grad()
    def _gather(self) -> None:
        """Copy the gradients to where the step reads them, once per update."""
        if self._gathered:
            return
        pairs = [(flat, p.grad) for flat, p in zip(self._gradients, self._parameters, strict=True) if p.grad is not None]
        if len(pairs) < len(self._parameters):
            torch._foreach_zero_(self._gradients)
        torch._foreach_copy_([flat for flat, _ in pairs], [gradient for _, gradient in pairs])
        self._gathered = True
