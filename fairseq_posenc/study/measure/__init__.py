"""Losses, outputs, time and memory of a model."""
