"""Multiplicative method 4 (Huang et al. 2021): the three products of M4 multiplied rather than added."""

from .base import register
from .m4 import M4


@register
class M4M(M4):
    """``e_ij = s · (q_i·k_j)(q_i·a_r)(k_j·a_r)`` with ``r = j - i`` (eq. 20). ``weight`` is (layers, 1, 2n-1, d).

    The three products and their product are taken in float32, whatever the model's precision: each factor's rounding error
    would enter e multiplied by the other two. Tables start at standard deviation 0.02, so that the first scores are near 0 and
    the softmax is far from saturated. With d = 64 under bfloat16, standard deviations of 0.1 and 0.3 did not get past the
    unigram loss at a learning rate of 2e-3, where 0.02 did, and learned more slowly at 6e-4.
    """

    name = "m4m"
    equation = "e = (q·k)(q·a_r)(k·a_r) / √d"
    source = "Huang et al. 2021, eq. 20"
    family, advice = "vectors by offset", "as m4, multiplied in place of added"
    combine = "multiply"
