"""Vocabularies, and the way from raw text to a data-bin."""
