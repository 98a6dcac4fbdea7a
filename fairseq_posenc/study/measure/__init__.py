"""Losses, time and memory of a model."""
