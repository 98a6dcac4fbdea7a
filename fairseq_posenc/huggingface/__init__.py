"""The interface to transformers. Importing the package alone is light; :mod:`.auto` registers its models with transformers."""

TOLERANCE = 1e-4
"""The greatest difference of an output by which an export or an import may differ from its source."""
