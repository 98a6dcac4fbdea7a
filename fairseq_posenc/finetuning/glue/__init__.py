"""The nine tasks of GLUE (Wang et al. 2019)."""
