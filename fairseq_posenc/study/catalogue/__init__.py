"""The available schemes and their cost: tables made from the live modules."""
