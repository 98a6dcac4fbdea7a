"""Tasks that need word order."""
