"""Measure the cost of each scheme relative to a baseline in the same run.

    fairseq-posenc bench                                                   a training step of every scheme
    fairseq-posenc bench --schemes tisa,shaw --tokens 128,512,2048 --out bench
    fairseq-posenc bench --family modernbert --schemes rope --baseline rope --peers modernbert

For each scheme, backend and length, it times the attention of one layer alone (÷ plain: relative to PyTorch's without positions),
and a whole step of masked language modelling: forward, backward, Adam. Runs of a model and of the baseline alternate, so that
other load on the machine slows both; the table has medians, and the range of the ratios in brackets. Memory is the peak of a step
on a GPU, and what the forward pass keeps for the backward pass on a CPU. Layers have the width of the base size; a ratio hardly
depends on their number.

A backend is timed only if z and all gradients agree with the reference, eager in float64 on the CPU, up to three times the error
of eager in the same precision and four times the precision's epsilon, on at most 1,024 tokens.

With --out, the same command continues a bench that was killed.
"""

from .flags import Options


def main(options: Options) -> None:
    """Run the command."""
    from .run import bench

    bench(options)
