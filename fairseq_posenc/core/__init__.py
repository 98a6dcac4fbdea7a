"""Terms, schemes, attention and the transformer, in PyTorch alone."""
