"""``--no-decay``: parameters that weight decay leaves as they are, with every optimizer of fairseq and of this package.

fairseq gives an optimizer parameters without names, in one group. So the trainer marks them on the model, and the groups are
divided when the optimizer has been built.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from ...core.schemes.decay import KINDS, without_decay
from ..checkpoint.state_dict import NO_DECAY
from ..optim.settings import EXEMPT, exempt, flat_parts

OPTION = "no_decay"
HELP = f"what does not decay, joined by commas: {', '.join(KINDS)} (of these, a scheme's tables, biases and scales)"


def kinds_of(cfg: Any) -> list[str]:
    """Return the words of the option, sorted."""
    return sorted({word.strip() for word in (getattr(cfg.optimization, OPTION, "") or "").split(",")} - {""})


def mark(model: nn.Module, kinds: Sequence[str]) -> None:
    """Mark the parameters of some kinds; fairseq's float32 copies of parameters keep this attribute."""
    for p in without_decay(model, kinds):
        vars(p)["param_group"] = EXEMPT + ",".join(kinds)


def build_optimizer(build: Callable, cfg: Any, params: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """Call fairseq's function of this name, and divide the groups by the marks of their parameters."""
    if params and isinstance(params[0], dict):
        params = [part for copies in params for flat in copies.values() for part in flat.parts]
    built = build(cfg, params, *args, **kwargs)
    groups = []
    for group in built.param_groups:
        for value in sorted({exempt(p) for p in group["params"]}):
            options = {"weight_decay": 0.0, NO_DECAY: value} if value else {}
            groups.append({**group, "params": [p for p in group["params"] if exempt(p) == value], **options})
    if any(NO_DECAY in group for group in groups):
        built.optimizer.param_groups = groups
    return built


def build_fp32_params(build: Callable, cfg: Any, params: list[Any], flatten: bool = True) -> Any:
    """Call fairseq's function of this name, and let the parameters that do not decay be the last in the flat copy of all."""
    if flatten:
        params.sort(key=lambda p: exempt(p) != "")
    copies = build(cfg, params, flatten)
    for flat in copies.values() if flatten else ():
        flat.parts = flat_parts(flat, params)
    return copies
