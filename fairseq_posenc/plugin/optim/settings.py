"""Options that optimizers share, and the check of those that an optimizer of whole tensors cannot work with."""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from omegaconf import II

from ...base.errors import Refused, flag_of, refuse_together
from ..patches.checkpoint_files import LEARNING_RATES
from ..patches.patching import wrap


@dataclass
class AdamConfig(FairseqDataclass):
    """Options of Adam."""

    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "β1 and β2"})
    adam_eps: float = field(default=1e-8, metadata={"help": "ε, added to the root of the second moment"})
    weight_decay: float = field(default=0.0, metadata={"help": "λ, by which weights shrink apart from the gradient"})
    lr: Any = II("optimization.lr")  # noqa: RUF009 - fairseq's way to read an option of another group


class AdamOptimizer(FairseqOptimizer):
    """An optimizer with Adam's options."""

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The arguments of PyTorch's optimizer.

        Raises:
            Refused: ``--adam-betas`` are not two numbers from 0 to below 1.
        """
        lr = self.cfg.lr
        return {
            "lr": lr[0] if not isinstance(lr, (int, float)) else lr,
            "betas": pair("adam_betas", self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }


@wrap(FairseqOptimizer, "load_state_dict")
def load_state_dict(
    load: Callable, optimizer: FairseqOptimizer, state: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None
) -> None:
    """Load the state of the parameters; of a group's options, only :data:`LEARNING_RATES` are the checkpoint's.

    fairseq's own docstring prefers the options of the training that continues, and its code takes those of the checkpoint.
    """
    state_of_group = ("params", *LEARNING_RATES)
    given = [{name: value for name, value in group.items() if name not in state_of_group} for group in optimizer.param_groups]
    load(optimizer, state)
    for group, options in zip(optimizer.param_groups, given, strict=True):
        group.update({**options, **(optimizer_overrides or {})})


def pair(name: str, value: Any) -> tuple[float, float]:
    """Return the two numbers of an option such as ``(0.9,0.98)``, which may be text.

    Raises:
        Refused: there are not two of them, or they are out of range: those of ``…_eps`` have no upper limit.
    """
    limit, needed = (math.inf, "0 or more") if name.endswith("_eps") else (1, "from 0 to below 1")
    try:
        first, second = ast.literal_eval(value) if isinstance(value, str) else value
        if 0 <= first < limit and 0 <= second < limit:
            return float(first), float(second)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    raise Refused(f"{flag_of(name)} {value}: two numbers {needed} are needed, as in '(0.9,0.98)', without quotes among them")


def require_whole_tensors(cfg: Any) -> None:
    """Check that an optimizer gets each parameter as one tensor.

    Raises:
        Refused: an option of fairseq flattens or divides the parameters; the message names it.
    """
    name, common, distributed = cfg.optimizer._name, cfg.common, cfg.distributed_training
    if common.fp16 and not common.memory_efficient_fp16 and not common.bf16 and not common.fp16_no_flatten_grads:
        raise Refused(
            f"--optimizer {name} computes on each parameter by itself, and --fp16 joins all parameters into one tensor: add "
            "--fp16-no-flatten-grads, or train with --bf16"
        )
    flags = {
        "--ddp-backend fully_sharded": distributed.ddp_backend == "fully_sharded",
        "--zero-sharding os": distributed.zero_sharding == "os",
        "--use-bmuf": cfg.optimization.use_bmuf,
    }
    refuse_together(flags, f"--optimizer {name}", "leave {} out, or use --optimizer adam")
