"""DeepSpeed's configuration: a preset or a file, completed from fairseq's options.

fairseq's options decide every setting that they name (:data:`DECIDED`). A file may have the other settings that change neither
results nor the content of checkpoints (:data:`KEYS`), whose types DeepSpeed checks.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...base import files
from ...base.errors import InputError, suggestion

PRESETS = Path(__file__).parent / "presets"
AUTO = "auto"  # in a file, as in Hugging Face's trainer: fairseq's options decide
DEFAULT_BUCKET = 5e8  # DeepSpeed's reduce_bucket_size
DEFAULT_LIVE = 1e9  # DeepSpeed's stage3_max_live_parameters
DECIDED = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"),
    *("optimizer", "fp16", "bf16"),
)
"""The keys that fairseq's options decide."""
OFFLOADED = ("device", "pin_memory")
OFFLOADING = {"offload_optimizer": 1, "offload_param": 3}
"""Sections, each with the least stage that divides what it moves to the host."""
KEYS = {
    "": (
        *(*DECIDED, "zero_optimization", "zero_allow_untested_optimizer"),
        *("steps_per_print", "timers", "wall_clock_breakdown", "memory_breakdown", "dump_state", "disable_python_gc"),
        *("comms_logger", "flops_profiler", "tensorboard", "csv_monitor", "wandb", "comet"),
    ),
    "zero_optimization": (
        *("stage", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_partitions"),
        *("allgather_bucket_size", "overlap_comm", "offload_optimizer", "offload_param", "sub_group_size"),
        *("stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_prefetch_bucket_size"),
        *("stage3_param_persistence_threshold", "stage3_gather_16bit_weights_on_model_save"),
    ),
    "zero_optimization.offload_optimizer": OFFLOADED,
    "zero_optimization.offload_param": OFFLOADED,
}
"""The keys that a file, and each of these sections of it, may have. DeepSpeed's others train another model, compute other
gradients than fairseq or in less than float32, put numbers where checkpoints of this package do not have them, or have no effect
here."""


@dataclass(frozen=True)
class ZeroConfig:
    """A preset or file of ``--deepspeed-config``, as :func:`read` returns it for training and for its plan."""

    stage: int  # 0 replicates, 1 shards optimizer states, 2 also gradients, 3 also parameters
    offload_optimizer: bool = False
    offload_parameters: bool = False
    bucket: float = DEFAULT_BUCKET  # numbers, of all communication buffers together
    live: float = DEFAULT_LIVE  # numbers of whole parameters that stage 3 keeps at a time
    source: str = ""  # the preset's name or the file, for messages
    contents: Mapping[str, Any] = field(default_factory=dict)  # what DeepSpeed gets beside fairseq's options


def preset_names() -> list[str]:
    """Return the names that ``--deepspeed-config`` takes."""
    return sorted(path.stem for path in PRESETS.glob("*.json"))


def read(source: str) -> ZeroConfig:
    """Read a preset by its name, or a JSON file.

    Raises:
        InputError: the preset or file does not exist, is not JSON, or would change results or checkpoints.
    """
    file = f"--deepspeed-config {source}"
    contents = _parse(source)
    zero = contents.get("zero_optimization", {})
    stage = zero.get("stage")
    if type(stage) is not int or stage not in range(4):
        raise InputError(f'{file}: set "zero_optimization": {{"stage": 0, 1, 2 or 3}}; found {stage}')
    values = dict(_items(contents))
    for path, value in values.items():
        section, _, key = path.rpartition(".")
        if key not in KEYS.get(section, (key,)):
            raise InputError(f"{file} has {path}, which training does not use: {suggestion(key, KEYS[section])}leave it out")
        if path.partition(".")[0] in DECIDED and value != AUTO and not isinstance(value, dict):
            raise InputError(f"{file} has {path} = {json.dumps(value):.200}, which fairseq's options decide: leave it out")
        if key == "device" and value not in ("none", "cpu"):
            raise InputError(f"{file} has {path} = {json.dumps(value):.200}: none or cpu is needed")
    if stage == 1 and zero.get("overlap_comm"):
        raise InputError(
            f"{file} has zero_optimization.overlap_comm, which stage 1 cannot do while fairseq decides when an update is "
            "complete. Leave it out, or use stage 2."
        )
    offloads = {section: values.get(f"zero_optimization.{section}.device") == "cpu" for section in OFFLOADING}
    for section, least in OFFLOADING.items():
        if offloads[section] and stage < least:
            raise InputError(f"{file} has zero_optimization.{section}, which needs stage {least} or more, and not {stage}")
    bucket, live = zero.get("reduce_bucket_size", DEFAULT_BUCKET), zero.get("stage3_max_live_parameters", DEFAULT_LIVE)
    if not isinstance(bucket, (int, float)) or not isinstance(live, (int, float)):
        raise InputError(f"{file}: reduce_bucket_size and stage3_max_live_parameters of zero_optimization must be numbers")
    return ZeroConfig(
        stage,
        offload_optimizer=offloads["offload_optimizer"],
        offload_parameters=offloads["offload_param"],
        bucket=bucket * (2 if zero.get("overlap_comm", stage == 3) else 1),
        live=live,
        source=source,
        contents=contents,
    )


def complete(zero: ZeroConfig, cfg: Any, world_size: int) -> dict[str, Any]:
    """Return DeepSpeed's configuration for a run that shards.

    Args:
        zero: from :func:`read`.
        cfg: fairseq's config.
        world_size: number of processes.
    """
    config = {key: value for key, value in zero.contents.items() if key not in DECIDED}
    common, optimization = cfg.common, cfg.optimization
    update_freq = optimization.update_freq[0]
    micro_batch = cfg.dataset.batch_size or 1  # the engine requires one but does not use it: with --max-tokens sizes vary
    fp16: dict[str, Any] = {"enabled": bool(common.fp16)}
    if common.fp16:  # halved at every overflow, doubled after a window without one; DeepSpeed's minimum is a whole number
        fp16 |= {
            "loss_scale": 0,  # a dynamic one
            "initial_scale_power": round(math.log2(common.fp16_init_scale)),
            "loss_scale_window": common.fp16_scale_window or max(1, int(2**14 / world_size / update_freq)),
            "min_loss_scale": max(1, math.ceil(common.min_loss_scale)),
            "hysteresis": 1,
        }
    return {
        **config,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": update_freq,
        "train_batch_size": micro_batch * update_freq * world_size,
        "gradient_clipping": float(optimization.clip_norm),
        "fp16": fp16,
        "bf16": {"enabled": bool(common.bf16)},
        "zero_force_ds_cpu_optimizer": False,  # fairseq's optimizer also updates what is offloaded
        "managed_gradient_accumulation": False,
        "zero_allow_untested_optimizer": True,  # DeepSpeed does not know fairseq's Adam
    }


def _parse(source: str) -> dict[str, Any]:
    path = Path(source)
    if path.suffix != ".json":
        path = PRESETS / f"{source}.json"
    try:
        contents = json.loads(files.read(path))
    except OSError as error:
        presets = ", ".join(preset_names())
        raise InputError(f"--deepspeed-config {source} cannot be read: {error.strerror}; the presets are {presets}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"--deepspeed-config {source} is not JSON: {error}") from None
    if not isinstance(contents, dict):
        raise InputError(f"--deepspeed-config {source}: expected a JSON object, found {type(contents).__name__}")
    if not isinstance(contents.get("zero_optimization", {}), dict):
        raise InputError(f"--deepspeed-config {source}: zero_optimization is not a JSON object")
    return contents


def _items(contents: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key, joined by dots with those of the objects around it, and its value."""
    for key, value in contents.items():
        yield f"{within}{key}", value
        if isinstance(value, dict):
            yield from _items(value, f"{within}{key}.")
