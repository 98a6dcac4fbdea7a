"""No position information: for the encoder, the input is a bag of words (Huang et al. 2021, section 5.2)."""

from .base import Scheme, register


@register
class NoPositions(Scheme):
    """``e_ij = s · q_i·k_j``. No parameters."""

    name = "none"
    equation = "e = q·k / √d"
    source = "Huang et al. 2021, §5.2"
    family, advice = "no positions", "the baseline without word order"
    honours = ()
    data_driven = False
