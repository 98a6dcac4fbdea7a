"""Makes ``import fairseq`` apply fairseq_posenc's compatibility patches before and register the plugin after.

``fairseq_posenc_hook.pth`` imports this module at every start of Python, so it does next to nothing: it puts one finder in
front of ``sys.meta_path`` that answers to the name ``fairseq`` and to no other. ``FAIRSEQ_POSENC_DISABLE=1`` switches it off.
"""

import os
import sys


class FairseqFinder:
    """Meta path finder that lets the other finders find fairseq and wraps the execution of its ``__init__``."""

    def find_spec(self, name, path=None, target=None):
        if name != "fairseq":
            return None
        spec = self._find_elsewhere(name, path, target)
        if spec is None or spec.origin is None:  # not installed, or a mere folder called fairseq
            return spec
        try:
            import fairseq_posenc
        except ModuleNotFoundError as error:
            if error.name == "fairseq_posenc":  # uninstalled, this file left behind
                return spec
            raise
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module):
            with fairseq_posenc.importing_fairseq():
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


if not os.environ.get("FAIRSEQ_POSENC_DISABLE"):
    sys.meta_path.insert(0, FairseqFinder())
