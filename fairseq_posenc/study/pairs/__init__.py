"""Minimal pairs: which of two sentences a model finds more probable."""
