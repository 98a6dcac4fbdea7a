"""Makes ``import fairseq`` apply fairseq_posenc's compatibility patches first and register the plugin afterwards.

``fairseq_posenc_hook.pth`` imports this module whenever Python starts, so it does next to nothing: it puts a finder in front
of ``sys.meta_path`` that answers to two names only. ``FAIRSEQ_POSENC_DISABLE=1`` switches it off.
"""

import os
import sys


class Finder:
    """Leaves finding fairseq and Hydra to the other finders, and wraps the execution of their ``__init__``."""

    def find_spec(self, name, path=None, target=None):
        if name != "fairseq" and name != "hydra":
            return None
        spec = self._find_elsewhere(name, path, target)
        if spec is None or spec.origin is None:  # not installed, or a mere folder of that name
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
            del loader.exec_module  # leaves the loader as it was found
            with importing(name):
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


if os.environ.get("FAIRSEQ_POSENC_DISABLE", "0") in ("", "0"):
    sys.meta_path.insert(0, Finder())
