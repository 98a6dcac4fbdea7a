"""Linear biases over distances that depend on the words between (Veisi et al. 2025; Lin et al. 2025)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ..terms import Terms, Window, precise
from .alibi import slopes
from .base import Scheme, Settings, option, register


@register
class Cable(Scheme):
    """``b_ij = -|c_i - c_j|`` with ``c_i = Σ_{t ≤ i} softplus(w·x_t + b)``, each head's own sums of attention's input x.

    This is ALiBi with a learned step over each word, CABLE, and the bias of the Forgetting Transformer, whose forget gate is
    ``σ(-(w·x_t + b))``, in both directions. With ``--cable-gates 2``, which a decoder refuses, keys after the query have steps of
    their own, ``c'``, from other w and b. ``weight`` is (layers, heads, gates, D) and ``bias`` (layers, heads, gates). The steps
    start at ALiBi's slopes.

    The sums count tokens: ``position_ids`` and ``--position-sampling`` change nothing.

    With one gate it is symmetric in j - i, so one layer cannot distinguish left from right, which the order task of FIDELITY.md
    needs.
    """

    name = "cable"
    equation = "e = q·k / √d - |c_i - c_j|, c_i = Σ_{t≤i} softplus(w·x_t)"
    source = "Veisi et al. 2025; Lin et al. 2025"
    family = "scalar biases by offset"
    advice = "distances that depend on the words; kept its loss at four times the length of training"
    reads_input = reads_past = True
    interpretable = False
    decays = ("weight",)

    class Options:
        gates: int = option("sets of steps: one, or another for keys after the query", 1, minimum=1, maximum=2)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        self.has_causal_form = options.gates == 1
        self.weight = self.parameter(options.gates, settings.dim, std=0.02)
        self.bias = self.parameter(options.gates)
        with torch.no_grad():
            self.bias.copy_(slopes(self.head_sets, dtype=torch.float32).expm1().log()[:, None])  # the inverse of softplus

    def input_terms(self, layer: int, window: Window, x: Tensor) -> Terms:
        row = self.row_of(layer)
        weight, bias = precise(self.weight[row]), precise(self.bias[row])
        steps = F.softplus(torch.einsum("bnd,hgd->bhgn", precise(x), weight) + bias[..., None])
        c = steps.cumsum(-1)  # (B, H, gates, K)
        biases = -(c[..., window.start :, None] - c[..., None, :]).abs()  # (B, H, gates, Q, K)
        if self.options.gates == 1:
            return Terms(biases=(biases[:, :, 0],))
        after = torch.ones(window.queries, window.keys, dtype=torch.bool, device=x.device).triu(1 + window.start)
        return Terms(biases=(torch.where(after, biases[:, :, 1], biases[:, :, 0]),))
