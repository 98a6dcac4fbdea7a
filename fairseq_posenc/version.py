"""The one place that holds the version; setup.py reads it from here."""

__version__ = "0.1.0"
