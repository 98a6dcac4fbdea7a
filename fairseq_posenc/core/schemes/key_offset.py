"""Keys of which a part is that of the token before, or after (the speedruns of modded-nanogpt, 2025)."""

from collections.abc import Sequence

import torch

from ...base.errors import InputError
from ..terms import Convolution, Rotation, Terms, Window
from .base import Scheme, Settings, register
from .key_convolution import steps


@register
class KeyOffset(Scheme):
    """``k'_j = k_{j-1}`` in the features that no rotation turns; in an encoder, half of the heads have ``k_{j+1}``.

    So a query finds a token by the word before it: induction within one layer. In ``rope(fraction=0.5)+key_offset`` half of the
    features move, and alone, all. The first (or last) token of a document keeps its own key. It needs another scheme beside it
    in an encoder, where it does not tell equal words apart. No parameters.
    """

    name = "key_offset"
    equation = "e = q·k_{j∓1} / √d"
    source = "Jordan et al. 2024 (modded-nanogpt, 2025)"
    family, advice = "keys of neighbours", "as rope(fraction=0.5)+key_offset: finds a token by the word before it, or after it"
    honours = ()
    data_driven = interpretable = False

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self._turning, self._interleaved = 0, True  # pairs that turn, and which features they are

    def join(self, others: Sequence[Terms]) -> None:
        for change in (change for part in others for change in part.transforms):
            if isinstance(change, Convolution):
                raise InputError("'key_offset' and another scheme that mixes neighbouring keys have no order: leave one out")
            if isinstance(change, Rotation):
                if change.turning is None or 2 * change.turning >= self.settings.head_dim:
                    raise InputError(
                        "'key_offset' moves the features that rotations leave still, and these turn all: write "
                        "rope(fraction=0.5) for half of them"
                    )
                self._turning, self._interleaved = change.turning, change.interleaved

    def layer_terms(self, window: Window) -> list[Terms]:
        features = torch.arange(self.settings.head_dim, device=window.device)
        pairs = features // 2 if self._interleaved else features % (self.settings.head_dim // 2)
        moved = (pairs >= self._turning).to(window.dtype)
        places = window.neighbours(steps(self.settings.heads, 2, window))
        places = torch.where(places < 0, places[:, :, :1], places)  # the token's own
        return [Terms(transforms=(Convolution(torch.stack([1 - moved, moved])[None], places),))]
