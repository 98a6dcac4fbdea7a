"""The cost of each scheme: attention alone, a training step, and ``fairseq-train`` itself, relative to a baseline."""

from ..families import ROBERTA

MAKER = "bench"  # in the folders' record
STOCK = "stock"
INSTALLED = "installed"
SIZES = {(suffix.lstrip("_") or "base"): sizes for suffix, sizes in ROBERTA.sizes.items()}
"""The flags' names of fairseq's own model, of all installed peers, and of the sizes."""
