"""Keys that are mixed with those of the tokens before them, or after them (So et al. 2021)."""

import torch
from torch import Tensor

from ..terms import Convolution, Terms, Window, precise
from .base import Scheme, Settings, option, register


@register
class KeyConvolution(Scheme):
    """``k'_j = Σ_c w_c ⊙ k_{j-c}`` for c below the width, before rotations; in an encoder, half of the heads have ``k_{j+c}``.

    ``weight`` w is (layers, heads, width, d), a number for each feature. It starts at w_0 = 1 and 0 for other c, where nothing is
    mixed. Where the document has no token, 0 is added. In an encoder it does not tell equal words apart, which the order task of
    FIDELITY.md needs, so that it belongs beside another scheme.
    """

    name = "key_convolution"
    equation = "e = q·(Σ_c w_c ⊙ k_{j∓c}) / √d"
    source = "So et al. 2021, §4.1"
    family, advice = "keys of neighbours", "beside another scheme: keys that know the words before them, or after them"
    interpretable = False

    class Options:
        width: int = option("how many keys are mixed, the token's own included", 4, minimum=1, maximum=256)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        self.weight = self.parameter(options.width, settings.head_dim)
        with torch.no_grad():
            self.weight.zero_()[:, :, 0] = 1

    def layer_terms(self, window: Window) -> list[Terms]:
        places = window.neighbours(steps(self.settings.heads, self.options.width, window))
        return [Terms(transforms=(Convolution(weight, places),)) for weight in precise(self.weight).unbind()]


def steps(heads: int, width: int, window: Window) -> Tensor:
    """(heads, width) from 0 on: to the left in a decoder and in half of an encoder's heads, the first, to the right in others."""
    number = torch.arange(heads, device=window.device)
    left = number >= 0 if window.causal else 2 * number < heads
    return torch.where(left, -1, 1)[:, None] * torch.arange(width, device=window.device)
