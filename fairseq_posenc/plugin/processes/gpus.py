"""What NVIDIA's data sheets say of its GPUs."""

GPUS = {
    "V100": (32, 125), "RTX4090": (24, 165), "L40S": (48, 362), "A100": (80, 312), "H100PCIe": (80, 756), "H100": (80, 989),
    "H200": (141, 989), "B200": (180, 2250),
}  # fmt: skip
"""name -> memory in GB (of those of several sizes the largest), and dense matrix products of 16-bit numbers in TFLOP/s."""
