"""Method 1 of Huang et al. 2020: a scalar for each absolute distance, multiplied with the score."""

from .base import register
from .m2 import M2


@register
class M1(M2):
    """``e_ij = s · (q_i·k_j) · a_|j-i|``. ``weight`` is (layers, 1, n).

    Scalars start about 1, where attention is that of a model without positions; about 0 it would not see the words either.

    It is symmetric in j - i, so one layer cannot distinguish left from right, which the order task of FIDELITY.md needs.
    """

    name = "m1"
    equation = "e = (q·k) a_|j-i| / √d"
    source = "Huang et al. 2020, method 1"
    family, advice = "scalar factors by offset", "a factor of the scores for each distance, the same to both sides"
    signed = False
