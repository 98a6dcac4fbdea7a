"""The cost of each scheme: attention alone and a training step, relative to a baseline."""

from ...core.families import FAMILIES, ROBERTA

STOCK = "stock"
"""The name of fairseq's own model as the baseline."""
ENCODERS = {family.name: family for family in FAMILIES.values() if not family.causal}
SIZES = {(suffix.lstrip("_") or "base"): suffix for suffix in ROBERTA.sizes}
"""The names of the sizes that all families have, and the endings of their architectures."""
