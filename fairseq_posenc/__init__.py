"""Positional-encoding schemes for transformers, as a fairseq plugin."""

from fairseq_posenc.version import __version__

__all__ = ["__version__"]
