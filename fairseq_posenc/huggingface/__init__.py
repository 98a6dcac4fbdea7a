"""The interface to transformers. Importing the package alone is light; :mod:`.auto` registers its models with transformers."""
