"""Checkpoint files: reading without running code from them, their content and names of parameters."""
