"""Patches for Hydra 1.0, applied once it is imported."""

import pkgutil
import traceback
from collections.abc import Iterator
from importlib.machinery import FileFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

from ..errors import suggestion
from .exits import refuse
from .patching import ModuleProxy, wrap


def find_plugins() -> None:
    """Let Hydra scan its plugins, for which it calls ``FileFinder.find_module``, removed in Python 3.12.

    Its scanner gets a ``pkgutil`` whose finders have that method. Can be removed with Hydra 1.2.
    """
    if hasattr(FileFinder, "find_module"):
        return
    from hydra.core import plugins

    def walk_packages(*args, **kwargs) -> Iterator[tuple[SimpleNamespace, str, bool]]:
        for finder, name, is_package in pkgutil.walk_packages(*args, **kwargs):
            yield SimpleNamespace(find_module=lambda name, finder=finder: finder.find_spec(name).loader), name, is_package

    plugins.pkgutil = ModuleProxy(pkgutil, walk_packages=walk_packages)


def report_errors() -> None:
    """Let Hydra print an error: it uses a parameter of ``traceback.print_exception`` that Python 3.10 renamed.

    Can be removed with Hydra 1.1.
    """
    from hydra._internal import utils

    def print_exception(etype, value, tb) -> None:
        traceback.print_exception(type(value), value, tb)

    utils.print_exception = print_exception  # type: ignore[assignment]


def job_number() -> int | None:
    """Return the number of the multirun's job that this process runs; None outside of multiruns."""
    from hydra.core.hydra_config import HydraConfig

    job = HydraConfig.get().job if HydraConfig.initialized() else None
    return None if job is None or OmegaConf.is_missing(job, "num") else job.num


def override_of_timestamped_folder() -> str | None:
    """Return the override for a folder without the time in its name, so that a restart finds it; None if Hydra made none."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return None
    key = "run" if job_number() is None else "sweep"
    hydra: Any = HydraConfig.get()
    folder: Any = OmegaConf.to_container(hydra[key], resolve=False)
    return None if "${now:" not in folder["dir"] else f"hydra.{key}.dir={'.' if key == 'run' else 'multirun'}"


def name_missing_configurations() -> None:
    """Report a missing configuration by its name, with the names of those in its folder.

    fairseq registers its defaults under the name of the configuration, so that Hydra always finds one. Can be removed when it
    does not.
    """
    import fairseq
    from fairseq.dataclass import initialize
    from hydra._internal.utils import get_args

    @wrap(initialize, "hydra_init")
    def init_or_refuse(hydra_init, cfg_name: str = "config") -> None:
        args, name = get_args(), cfg_name.removesuffix(".yaml")
        folders = [*map(Path, filter(None, [args.config_dir])), Path(fairseq.__file__).with_name("config")]
        if args.config_path is None and not any((folder / f"{name}.yaml").exists() for folder in folders):
            present = sorted(path.stem for path in folders[0].glob("*.yaml"))
            refuse(f"--config-name {name}: {suggestion(name, present)}{folders[0]} has {', '.join(present) or 'none'}")
        hydra_init(cfg_name)


PATCHES = (find_plugins, report_errors, name_missing_configurations)
