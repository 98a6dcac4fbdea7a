"""The options of Adam, which this package's optimizers share, and the reading of pairs such as ``--adam-betas``."""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from omegaconf import II
from torch import Tensor, nn

from ...base.errors import InputError, flag_of

MASTER = "master"
"""The entry of an optimizer's state with the float32 weights, where the model's are rounded."""
EXEMPT = "no decay: "
"""What the ``param_group`` of a parameter that does not decay begins with; the value of ``--no-decay`` follows."""


@dataclass
class AdamConfig(FairseqDataclass):
    """Options of Adam with decoupled weight decay; the learning rate is that of the group ``optimization``."""

    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "β1 and β2"})
    adam_eps: float = field(default=1e-8, metadata={"help": "ε, added to the root of the second moment"})
    weight_decay: float = field(default=0.0, metadata={"help": "λ, by which weights shrink apart from the gradient"})
    lr: Any = II("optimization.lr")  # noqa: RUF009 - fairseq's way to read an option of another group


def by_parameter(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return views of a flat tensor, in the parameters' shapes."""
    parts = flat.split([p.numel() for p in parameters])
    return [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]


def exempt(p: Tensor) -> str:
    """Return the value of ``--no-decay`` by which a parameter does not decay; "" if it does."""
    mark = getattr(p, "param_group", "")
    return mark.removeprefix(EXEMPT) if mark.startswith(EXEMPT) else ""


def flat_parts(flat: nn.Parameter, parameters: Sequence[Tensor]) -> list[nn.Parameter]:
    """Return a flat copy of parameters and its gradient as one parameter, or as two of which the second does not decay.

    Args:
        parameters: those that do not decay last.
    """
    decaying = sum(p.numel() for p in parameters if not exempt(p))
    if decaying == flat.numel():
        return [flat]
    gradient = cast(Tensor, flat.grad)
    parts = [nn.Parameter(flat.detach()[:decaying]), nn.Parameter(flat.detach()[decaying:])]
    parts[0].grad, parts[1].grad = gradient[:decaying], gradient[decaying:]
    vars(parts[1])["param_group"] = vars(parameters[-1])["param_group"]
    return [part for part in parts if part.numel()]


class AdamOptimizer(FairseqOptimizer):
    """An optimizer with Adam's options."""

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The arguments of PyTorch's optimizer.

        Raises:
            InputError: ``--adam-betas`` are not two numbers from 0 to below 1.
        """
        lr = self.cfg.lr
        return {
            "lr": lr[0] if not isinstance(lr, (int, float)) else lr,
            "betas": pair("adam_betas", self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }


def pair(name: str, value: Any) -> tuple[float, float]:
    """Return the two numbers of an option such as ``(0.9,0.98)``, which may be text.

    Raises:
        InputError: there are not two of them, or they are out of range: those of ``…_eps`` have no upper limit.
    """
    limit, needed = (math.inf, "0 or more") if name.endswith("_eps") else (1, "from 0 to below 1")
    try:
        first, second = ast.literal_eval(value) if isinstance(value, str) else value
        if 0 <= first < limit and 0 <= second < limit:
            return float(first), float(second)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    raise InputError(f"{flag_of(name)} {value}: two numbers {needed} are needed, as in '(0.9,0.98)', without quotes among them")
