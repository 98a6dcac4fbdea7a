"""Hydra 1.0 on Python 3.12 and later."""

import pkgutil
import types
from collections.abc import Iterator
from importlib.machinery import FileFinder


def find_plugins() -> None:
    """Let Hydra scan its plugins.

    Hydra calls ``FileFinder.find_module``, removed in Python 3.12, on what ``pkgutil.walk_packages`` yields; its plugin scanner
    gets a ``pkgutil`` whose finders have it. Can go with Hydra 1.2.
    """
    if hasattr(FileFinder, "find_module"):
        return
    from hydra.core import plugins

    class Finder:
        def __init__(self, finder: FileFinder) -> None:
            self.finder = finder

        def find_module(self, name: str):
            return self.finder.find_spec(name).loader

    def walk_packages(*args, **kwargs) -> Iterator[tuple[Finder, str, bool]]:
        for finder, name, is_package in pkgutil.walk_packages(*args, **kwargs):
            yield Finder(finder), name, is_package

    plugins.pkgutil = types.SimpleNamespace(walk_packages=walk_packages)


PATCHES = (find_plugins,)
