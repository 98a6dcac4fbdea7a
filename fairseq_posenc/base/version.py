"""The version, which setup.py reads from here, and that of fairseq that the package is for."""

__version__ = "0.1.0"
FAIRSEQ_VERSION = "0.12.2"
