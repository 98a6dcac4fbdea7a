"""Makes ``import fairseq`` apply fairseq_posenc's compatibility patches first and register the plugin afterwards.

``fairseq_posenc_hook.pth`` imports this module whenever Python starts, so it only puts a finder in front of ``sys.meta_path``.
The finder handles one name, and only the release that the patches are for: other packages may have the same name.
``FAIRSEQ_POSENC_DISABLE=1`` disables it.
"""

import os
import sys

STARTED = (os.getpid(), os.getppid())
"""This process and its parent when Python started, so that training notices if its launcher ended during imports."""

VERSION_LINES = {"version.py": '__version__ = "0.12.2"', "version.txt": "0.12.2\n"}
"""The beginning of a line, in the first of these files that exists next to ``__init__.py``."""


class Finder:
    """Finds fairseq with the other finders, and wraps the execution of its ``__init__``."""

    def find_spec(self, name, path=None, target=None):
        if name != "fairseq":
            return None
        spec = self._find_elsewhere(name, path, target)
        if spec is None or not is_known_release(spec):
            return spec
        try:
            from fairseq_posenc import importing
        except ImportError as error:
            if error.name == "fairseq_posenc":  # uninstalled, and this file left behind
                return spec
            raise
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module  # restores the loader
            with importing():
                execute(module)

        loader.exec_module = exec_module
        return spec

    def _find_elsewhere(self, name, path, target):
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None:
                spec = find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


def is_known_release(spec):
    """Whether a package has the version that the patches are for, according to one of its files."""
    if not (spec.origin and spec.submodule_search_locations):  # a plain module, or a mere folder of that name
        return False
    for file, beginning in VERSION_LINES.items():
        try:
            with open(os.path.join(os.path.dirname(spec.origin), file), encoding="utf-8") as stream:
                return any(f"{line.rstrip()}\n".startswith(beginning) for line in stream)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):  # within a zip, or not text
            return False
    return False


if os.environ.get("FAIRSEQ_POSENC_DISABLE", "0") in ("", "0"):
    sys.meta_path.insert(0, Finder())
