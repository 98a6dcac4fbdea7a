"""The cost of each scheme: attention alone, a training step, and ``fairseq-train`` itself, relative to a baseline."""
