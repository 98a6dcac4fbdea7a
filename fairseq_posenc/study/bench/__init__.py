"""The cost of each scheme: attention alone and a training step, relative to a baseline."""
