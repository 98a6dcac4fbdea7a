"""What the positional parameters of a checkpoint mean.

``scoring`` computes curves, ``figure`` draws them, ``plot`` is the command.
"""

REACH = 128  # tokens; how far the functions are looked at where nothing else is asked for
