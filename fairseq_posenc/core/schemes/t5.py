"""T5's relative bias in logarithmic buckets (Raffel et al. 2020, section 2.1)."""

import math

import torch
from torch import Tensor, nn

from ...base.errors import MAX_POSITIONS, FieldError
from ..terms import Relative, RelativeIndex, Terms, Window
from .base import Scheme, Settings, option, register


def bucket(offsets: Tensor, buckets: int, max_distance: int, causal: bool) -> Tensor:
    """The bucket of each offset ``r = j - i``: exact near 0, logarithmic up to ``max_distance``, one beyond.

    Without ``causal``, half of the buckets are for keys after the query (``r > 0``); with it, those all fall in bucket 0. In
    float32, as T5's own code. A distance between two whole numbers counts as the nearest.
    """
    offsets = offsets.round().long() if offsets.is_floating_point() else offsets  # ONNX rounds no whole numbers
    first: int | Tensor
    if causal:
        first, distance = 0, (-offsets).clamp(min=0)
    else:
        buckets //= 2
        first, distance = (offsets > 0) * buckets, offsets.abs()
    exact = buckets // 2
    far = torch.log(distance.clamp(min=1).to(torch.float32) / exact) / math.log(max_distance / exact) * (buckets - exact)
    return first + torch.where(distance < exact, distance, (exact + far.long()).clamp(max=buckets - 1))


@register
class T5(Scheme):
    """``b_ij = w[h, bucket(j - i)]``, one scalar per head and bucket, the same in all layers.

    ``weight`` is (1, H, buckets). The bias is added to the scaled scores; T5 itself does not scale ``q·k``. Scalars start uniform
    in ±√(6 / (H + buckets)), as in T5's own code; together with ``untied`` they start at N(0, 0.02²), as in TUPE's.

    Adam moves a scalar by about the learning rate per update: slow in the order task of FIDELITY.md.
    """

    name = "t5"
    equation = "e = q·k / √d + b[bucket(j-i)]"
    source = "Raffel et al. 2020, §2.1"
    family, advice = "scalar biases by offset", "few parameters, a curve per head; loses much beyond the length of training"
    share_layers = True

    class Options:
        buckets: int = option("number of buckets (both directions)", 32, minimum=4, maximum=1 << 16)
        max_distance: int = option("distance beyond which all share a bucket", 128, minimum=2, maximum=MAX_POSITIONS)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        if options.buckets % 2:
            raise FieldError(f"`t5_buckets` {options.buckets} must be even: half of them are for keys after the query")
        if options.max_distance <= options.buckets // 2:
            raise FieldError(
                f"`t5_max_distance` {options.max_distance} must be greater than half of `t5_buckets` {options.buckets}: "
                "nearer distances have buckets of their own"
            )
        self.weight = self.parameter(options.buckets)
        if "untied" in settings.schemes:
            nn.init.normal_(self.weight, std=0.02)
        else:
            bound = math.sqrt(6 / (self.head_sets + options.buckets))
            nn.init.uniform_(self.weight, -bound, bound)

    def layer_terms(self, window: Window) -> list[Terms]:
        rows = bucket(window.offsets, self.options.buckets, self.options.max_distance, window.causal)
        index = RelativeIndex(window, rows)
        return [Terms(biases=(Relative(table, index),)) for table in self.weight.unbind()]
