"""``--lr-scheduler warmup_stable_decay``: a learning rate that rises, stays, and falls over the last updates."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from ...base.errors import InputError

NAME = "warmup_stable_decay"
SHAPES = ChoiceEnum(["sqrt", "linear"])


@dataclass
class WarmupStableDecayConfig(FairseqDataclass):
    """Options of the schedule."""

    warmup_updates: int = field(default=0, metadata={"help": "updates over which the learning rate rises linearly"})
    decay_updates: int = field(default=0, metadata={"help": "updates until --max-update over which the learning rate falls to 0"})
    decay_shape: SHAPES = field(  # type: ignore[valid-type]
        default="sqrt", metadata={"help": "1 - sqrt(x) or 1 - x of the share x of the decay"}
    )
    max_update: int = II("optimization.max_update")
    lr: Any = II("optimization.lr")  # noqa: RUF009 - fairseq's way to read an option of another group


@register_lr_scheduler(NAME, dataclass=WarmupStableDecayConfig)
class WarmupStableDecay(FairseqLRScheduler):
    """Warm-up, stable phase and decay (Hu et al. 2024, arXiv:2404.06395, section 4.1; Hägele et al. 2024, arXiv:2405.18392).

    The rate is a function of the number of updates and of the options alone, so that a checkpoint of the stable phase continues
    with any ``--max-update`` and ``--decay-updates``. fairseq's ``tri_stage`` has the same phases with an exponential decay only.

    Raises:
        InputError: a number is below 0, several learning rates are given, or the phases do not fit into ``--max-update``.
    """

    def __init__(self, cfg: WarmupStableDecayConfig, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        if len(cfg.lr) != 1:
            raise InputError(f"--lr-scheduler {NAME} takes one --lr, and {len(cfg.lr)} are given")
        if min(cfg.warmup_updates, cfg.decay_updates) < 0:
            raise InputError("--warmup-updates and --decay-updates must be at least 0")
        if cfg.decay_updates and cfg.warmup_updates + cfg.decay_updates > cfg.max_update:
            raise InputError(
                f"--warmup-updates {cfg.warmup_updates} and --decay-updates {cfg.decay_updates} are more than --max-update "
                f"{cfg.max_update}, with which the decay ends"
            )

    def step_update(self, num_updates: int) -> float:
        """Set the learning rate of the update after ``num_updates`` others; return it."""
        cfg = self.cfg
        warm = min(1.0, (num_updates + 1) / cfg.warmup_updates) if cfg.warmup_updates else 1.0
        decayed = (num_updates - cfg.max_update) / cfg.decay_updates + 1 if cfg.decay_updates else 0.0
        share = min(max(decayed, 0.0), 1.0)
        self.optimizer.set_lr(cfg.lr[0] * warm * (1 - (share**0.5 if str(cfg.decay_shape) == "sqrt" else share)))
        return self.optimizer.get_lr()
