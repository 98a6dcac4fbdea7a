"""Multiplicative method 4 (Huang et al. 2021): the three products of M4 multiplied rather than added."""

from .base import register
from .m4 import M4


@register
class M4M(M4):
    """``e_ij = s · (q_i·k_j)(q_i·a_r)(k_j·a_r)`` with ``r = j - i`` (eq. 20). ``weight`` is (layers, 1, 2n-1, d)."""

    name = "m4m"
    equation = "e = (q·k)(q·a_r)(k·a_r) / √d"
    source = "Huang et al. 2021, eq. 20"
    multiply = True
    init_std = 0.02
