"""Settings of training of which fairseq silently does something else than they say: :data:`REFUSED`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import InputError
from ...base.files import read

HIGHER_IS_BETTER = {"accuracy", "bleu", "f1", "order_accuracy"}
LOWER_IS_BETTER = {"loss", "nll_loss", "order_loss", "ppl"}


class RefusedSetting(NamedTuple):
    """Flags that are refused.

    Attributes:
        applies: takes the configuration, and returns whether it has these flags.
        reason: the message, in which ``{section.name}`` is the value of an option.
    """

    applies: Callable[[Any], bool]
    reason: str


def _validated(cfg: Any) -> list[str]:
    return [] if cfg.dataset.disable_validation else str(cfg.dataset.valid_subset).split(",")


def _optimizer_state_is_kept(cfg: Any) -> bool:
    return not cfg.checkpoint.reset_optimizer and getattr(cfg.lr_scheduler, "_name", None) != "reduce_lr_on_plateau"


REFUSED = (
    RefusedSetting(
        lambda cfg: cfg.checkpoint.reset_lr_scheduler and _optimizer_state_is_kept(cfg),
        "--reset-lr-scheduler has no effect without --reset-optimizer: the learning rate follows the number of updates, which "
        "is kept with the optimizer",
    ),
    RefusedSetting(
        lambda cfg: cfg.dataset.train_subset in _validated(cfg),
        "--valid-subset {dataset.valid_subset} contains --train-subset, whose batches the validation would consume",
    ),
    RefusedSetting(
        lambda cfg: cfg.optimization.max_epoch and cfg.optimization.max_epoch % cfg.checkpoint.save_interval,
        "--max-epoch {optimization.max_epoch} would end without a checkpoint: it is no multiple of --save-interval "
        "{checkpoint.save_interval}",
    ),
    RefusedSetting(
        lambda cfg: cfg.dataset.validate_after_updates > cfg.checkpoint.save_interval_updates > 0,
        "--save-interval-updates {checkpoint.save_interval_updates}: no checkpoint is saved before --validate-after-updates "
        "{dataset.validate_after_updates}",
    ),
    RefusedSetting(
        lambda cfg: len(cfg.optimization.lr) > 1 and getattr(cfg.lr_scheduler, "_name", None) == "polynomial_decay",
        "--lr {optimization.lr}: polynomial_decay takes one learning rate",
    ),
    RefusedSetting(
        lambda cfg: (
            cfg.checkpoint.best_checkpoint_metric in HIGHER_IS_BETTER and not cfg.checkpoint.maximize_best_checkpoint_metric
        ),
        "--best-checkpoint-metric {checkpoint.best_checkpoint_metric} would keep the worst checkpoint: add "
        "--maximize-best-checkpoint-metric",
    ),
    RefusedSetting(
        lambda cfg: cfg.checkpoint.best_checkpoint_metric in LOWER_IS_BETTER and cfg.checkpoint.maximize_best_checkpoint_metric,
        "--maximize-best-checkpoint-metric with --best-checkpoint-metric {checkpoint.best_checkpoint_metric} would keep the "
        "worst checkpoint: leave it out",
    ),
)


def check_training_settings(cfg: Any) -> None:
    """Refuse the settings of :data:`REFUSED`, and data-bins, joined by ':', with different words."""
    for applies, reason in REFUSED:
        if applies(cfg):
            raise InputError(reason.format(**{name: cfg[name] for name in ("checkpoint", "dataset", "optimization")}))
    first, *others = (Path(path) for path in str(getattr(cfg.task, "data", "") or "").split(":"))
    for dictionary in sorted(first.glob("dict*.txt")) if others else ():
        for other in (folder / dictionary.name for folder in others):
            if other.exists() and _words(other) != _words(dictionary):
                raise InputError(f"{other} has other words than {dictionary}, the only one that fairseq reads")


def _words(dictionary: Path) -> list[bytes]:
    return [line.rpartition(b" ")[0] for line in read(dictionary).splitlines()]
