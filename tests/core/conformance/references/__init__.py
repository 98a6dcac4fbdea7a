"""One function per scheme: its equation as the paper has it, read as plainly as PyTorch allows and never from the package.

Here every table is gathered into an (n, n, d) tensor and contracted by einsum, which is what the package never does.
Geometry (offsets, buckets, sinusoids) is computed in Python's own numbers; whatever a parameter takes part in is computed
in the parameter's dtype, so that the same function gives the exact result in float64 and a naive run in bfloat16.
"""
