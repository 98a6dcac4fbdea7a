"""What the positional parameters of a checkpoint mean: ``scoring`` computes curves, ``plot`` draws them."""
