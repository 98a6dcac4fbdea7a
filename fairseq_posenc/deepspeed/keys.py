"""The keys of a file for ``--deepspeed-config``, and which kind of value each takes.

DeepSpeed itself passes over a key that it does not know, and finds a value of another kind where it uses it, perhaps much later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..errors import Refused


class Kind(NamedTuple):
    said: str
    fits: Callable[[Any], bool]


OBJECT = Kind("a JSON object, {…}", lambda value: isinstance(value, dict))
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a whole number above 0", lambda value: type(value) is int and value > 0)
FACTOR = Kind("a number above 0", lambda value: type(value) in (int, float) and value > 0)
FORMAT = Kind('"fp32", "fp16" or "bf16"', lambda value: value in ("fp32", "fp16", "bf16"))
KINDS = {
    **dict.fromkeys(("zero_optimization", "fp16", "bf16", "optimizer", "data_types", "checkpoint", "aio"), OBJECT),
    **dict.fromkeys(("activation_checkpointing", "comms_logger", "flops_profiler"), OBJECT),
    **dict.fromkeys(("tensorboard", "wandb", "csv_monitor", "comet"), OBJECT),
    **dict.fromkeys(("wall_clock_breakdown", "memory_breakdown", "dump_state", "prescale_gradients"), SWITCH),
    **dict.fromkeys(("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"), SWITCH),
    "steps_per_print": COUNT,
    "gradient_predivide_factor": FACTOR,
    "communication_data_type": FORMAT,
}
WITHIN = ("optimizer.params", "zero_optimization.offload_optimizer", "zero_optimization.offload_param")


def refuse_others(config: dict[str, Any], decided: Iterable[str], source: str) -> None:
    """Refuse a key that does nothing here, or a value of another kind.

    Args:
        decided: keys whose values are compared with fairseq's options.

    Raises:
        Refused: names the key, the value and what is expected.
    """
    known = {*KINDS, *decided}
    for key in config.keys() - known:
        raise Refused(f'--deepspeed-config {source} has "{key}", which does nothing here. Known are: {", ".join(sorted(known))}.')
    for path, kind in {**KINDS, **dict.fromkeys(WITHIN, OBJECT)}.items():
        folder, _, key = path.rpartition(".")
        values = config.get(folder, {}) if folder else config
        if key in values and not kind.fits(values[key]):
            raise Refused(f"--deepspeed-config {source} has {path} = {json.dumps(values[key]):.200}; expected {kind.said}.")
