"""Trainings of a tiny model in this process."""

from async_step.conftest import configure, lines, train
from omegaconf import DictConfig, OmegaConf

ADAM = {"adam_betas": "(0.9,0.98)", "adam_eps": 1e-6, "weight_decay": 0.1, "lr": [0.01]}
__all__ = ["configure", "lines", "train"]


def optimizer(name: str, **options) -> DictConfig:
    """The configuration of an optimizer with Adam's options."""
    return OmegaConf.create({"_name": name, **ADAM, **options})


def schedule(warmup: int, decay: int, updates: int) -> dict:
    """What configures a warm-up, a decay until the last of so many updates, and their number."""
    phases = {"warmup_updates": warmup, "decay_updates": decay, "max_update": updates}
    config = OmegaConf.create({"_name": "warmup_stable_decay", "lr": [0.01], **phases})
    return {"lr_scheduler": config, "optimization.max_update": updates}
