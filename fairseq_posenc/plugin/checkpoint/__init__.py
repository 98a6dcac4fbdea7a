"""Checkpoint files: reading without running code from them, their content, and the models that they hold in plain PyTorch."""
