"""What models learned about position: the command is ``analyze``, and ``examine`` looks at one model."""
