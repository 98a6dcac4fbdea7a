"""How a number is measured, repeated, resumed and shown."""
