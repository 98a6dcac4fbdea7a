"""How the processes of a program end: with one message, together, or after the current update."""
