"""Which job of Hydra's this process is, and where it runs."""

from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf


def job_number() -> int | None:
    """Return the number of the multirun's job that this process runs; None outside of multiruns."""
    job = HydraConfig.get().job if HydraConfig.initialized() else None
    return None if job is None or OmegaConf.is_missing(job, "num") else job.num


def override_of_timestamped_folder() -> str | None:
    """Return the override for a folder without the time in its name, so that a restart finds it; None if Hydra made none."""
    if not HydraConfig.initialized():
        return None
    key = "run" if job_number() is None else "sweep"
    hydra: Any = HydraConfig.get()
    folder: Any = OmegaConf.to_container(hydra[key], resolve=False)
    return None if "${now:" not in folder["dir"] else f"hydra.{key}.dir={'.' if key == 'run' else 'multirun'}"
