"""Hydra 1.0 once it is imported."""

import pkgutil
import traceback
from collections.abc import Iterator
from importlib.machinery import FileFinder

from fairseq_posenc.compat.view import View


def find_plugins() -> None:
    """Let Hydra scan its plugins.

    Hydra calls ``FileFinder.find_module``, removed in Python 3.12, on what ``pkgutil.walk_packages`` yields; its plugin
    scanner gets a ``pkgutil`` whose finders have it. Can go with Hydra 1.2.
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

    plugins.pkgutil = View(pkgutil, walk_packages=walk_packages)


def report_errors() -> None:
    """Let Hydra print what went wrong in a run.

    It calls ``traceback.print_exception(etype=None, ...)``, a parameter that Python 3.10 renamed, so that every error ended in
    a TypeError about it. Can go with Hydra 1.1.
    """
    from hydra._internal import utils

    def print_exception(etype, value, tb) -> None:
        traceback.print_exception(type(value), value, tb)

    utils.print_exception = print_exception


PATCHES = (find_plugins, report_errors)
