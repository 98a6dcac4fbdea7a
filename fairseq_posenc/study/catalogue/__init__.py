"""The available schemes and their cost: tables made from the live modules."""

PROPERTIES = ("inductive", "data-driven", "parameter-efficient", "translation-invariant", "parallelisable", "interpretable")
"""Those of Wennberg & Henter 2021, Table 1."""
