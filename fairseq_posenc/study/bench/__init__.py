"""The cost of each scheme: attention alone and a training step, relative to a baseline."""

from ...core.families import FAMILIES, ROBERTA

MAKER = "bench"  # in the folders' record
STOCK = "stock"
ENCODERS = {family.name: family for family in FAMILIES.values() if not family.causal}
SIZES = {(suffix.lstrip("_") or "base"): suffix for suffix in ROBERTA.sizes}
"""The flags' names of fairseq's own model, of the families, and of the sizes that all families have."""
