"""DeepSpeed's configuration: a user's file or a preset, completed from fairseq's options.

A setting that fairseq has an option for is decided there; a file that repeats it with the same value is accepted, and one that
contradicts it is refused. So is what would change the results or what checkpoints hold (:data:`SECTIONS`, :data:`FIXED`). All
other keys and types are checked by DeepSpeed itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import Refused, suggestion
from .settings import Setting, decided_by_fairseq

PRESETS = Path(__file__).parent / "presets"
AUTO = "auto"  # in a file, as for Hugging Face's trainer: decided by fairseq's options
DEFAULT_BUCKET = 5e8  # DeepSpeed's reduce_bucket_size
DEFAULT_LIVE = 1e9  # DeepSpeed's stage3_max_live_parameters
WITHOUT_EFFECT_AT_STAGE_0 = "nothing is sharded at stage 0, so fairseq's own data parallelism trains and only its options count"
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
SECTIONS = (
    *(*BATCH, "optimizer", "fp16", "bf16", "zero_optimization", "zero_allow_untested_optimizer", "communication_data_type"),
    *("prescale_gradients", "gradient_predivide_factor", "activation_checkpointing", "aio", "steps_per_print", "timers"),
    *("wall_clock_breakdown", "memory_breakdown", "dump_state", "disable_python_gc", "comms_logger", "flops_profiler"),
    *("tensorboard", "csv_monitor", "wandb", "comet"),
)
"""What a file may have. Other features of DeepSpeed (schedules, curricula, compression, pipelines, …) train another model or
replace what fairseq does."""
FIXED = {
    "zero_optimization": {
        "offload_optimizer": {"device": ("none", "cpu"), "ratio": (1,), "super_offload": (False,)},
        "offload_param": {"device": ("none", "cpu")},
        **dict.fromkeys(("cpu_offload", "cpu_offload_param", "elastic_checkpoint", "pipeline_loading_checkpoint"), (False,)),
        **dict.fromkeys(("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients"), (False,)),
        **{"legacy_stage1": (False,), "zero_hpz_partition_size": (1,), "compute_grad_norm": (True,), "zenflow": (None,)},
    },
    "fp16": {"fp16_master_weights_and_grads": (False,)},
    "bf16": {"bf16_master_weights_and_grads": (False,), "bf16_optimizer_states": (False,)},
}
"""Keys whose other values would keep numbers where checkpoints of this package do not find them, or less exactly than in float32,
or compute other gradients than fairseq's."""


@dataclass(frozen=True)
class ZeroConfig:
    """A preset or file of ``--deepspeed-config``, from :func:`read`: what training and its plan both go by."""

    stage: int  # 0 replicates, 1 shards optimizer states, 2 also gradients, 3 also parameters
    offload_optimizer: bool = False
    offload_parameters: bool = False
    bucket: float = DEFAULT_BUCKET  # numbers, of all communication buffers together
    live: float = DEFAULT_LIVE  # numbers of whole parameters that stage 3 keeps at a time
    source: str = ""  # the preset's name or the file, for messages
    contents: Mapping[str, Any] = field(default_factory=dict)  # all that DeepSpeed gets, but for fairseq's options


def require_deepspeed() -> None:
    """Refuse to go on without DeepSpeed.

    Raises:
        Refused: it is not installed.
    """
    if find_spec("deepspeed") is None:
        raise Refused("DeepSpeed is not installed, which sharding needs: pip install -e '.[deepspeed]'")


def preset_names() -> list[str]:
    """The names that ``--deepspeed-config`` takes beside files."""
    return sorted(path.stem for path in PRESETS.glob("*.json"))


def read(source: str) -> ZeroConfig:
    """Read a preset by its name, or a JSON file.

    Raises:
        Refused: no such preset or file (says which there are), not JSON, or with what would change results or checkpoints.
    """
    contents = _parse(source)
    for key in contents.keys() - set(SECTIONS):
        near = suggestion(key, SECTIONS).capitalize()
        raise Refused(f'--deepspeed-config {source} has "{key}", which training does not use. {near}Leave it out.')
    for path, value, accepted in _fixed(contents):
        if value not in accepted:
            raise Refused(
                f"--deepspeed-config {source} has {path} = {json.dumps(value):.200}, which would change results or checkpoints. "
                f"Leave it out, or give {' or '.join(map(json.dumps, accepted))}."
            )
    for key in ("zero_optimization", "fp16", "bf16", "optimizer"):
        if not isinstance(contents.get(key, {}), dict):
            raise Refused(f"--deepspeed-config {source} has {key} = {json.dumps(contents[key]):.200}; expected a JSON object")
    zero = contents.get("zero_optimization", {})
    stage = zero.get("stage")
    if type(stage) is not int or stage not in range(4):
        raise Refused(f'--deepspeed-config {source}: set "zero_optimization": {{"stage": 0, 1, 2 or 3}}; found {stage}')
    if stage == 0:
        _refuse_more_than_stage(contents, source)
    if stage == 1 and zero.get("overlap_comm"):
        raise Refused(
            f"--deepspeed-config {source} has zero_optimization.overlap_comm, which stage 1 cannot do while fairseq says when an "
            "update is complete. Remove it, or use stage 2."
        )
    buffers = 2 if zero.get("overlap_comm", stage == 3) else 1
    try:
        bucket = buffers * float(zero.get("reduce_bucket_size", DEFAULT_BUCKET))
        live = float(zero.get("stage3_max_live_parameters", DEFAULT_LIVE))
        optimizer, parameters = ((zero.get(f"offload_{key}") or {}).get("device") == "cpu" for key in ("optimizer", "param"))
        if not (0 < bucket < math.inf and 0 <= live < math.inf):
            raise ValueError("a size is negative or not finite")
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"--deepspeed-config {source}: zero_optimization has a wrong value: {error}") from None
    return ZeroConfig(stage, optimizer, parameters, bucket, live, source, contents)


def complete(zero: ZeroConfig, cfg: Any, world_size: int) -> dict[str, Any]:
    """DeepSpeed's configuration for a run.

    Args:
        zero: from :func:`read`.
        cfg: fairseq's config.
        world_size: number of processes.

    Raises:
        Refused: the file contradicts fairseq's options (both values are named), or they exclude each other.
    """
    config = {key: dict(value) if isinstance(value, dict) else value for key, value in zero.contents.items()}
    if config == {"zero_optimization": {"stage": 0}}:
        return config  # DeepSpeed takes no part, so fairseq's settings do not matter
    decided = {setting.path: setting for setting in decided_by_fairseq(cfg, world_size)}
    for path, value in _leaves(config):
        if path in decided:
            _check(decided[path], value, zero.source)
        elif path.startswith("optimizer."):
            raise Refused(
                f"--deepspeed-config {zero.source} has {path}, which fairseq's optimizer, the one that trains, would not get. "
                "Remove it."
            )
    if zero.stage == 0:
        return config
    _refuse_unsupported(cfg, zero.stage)
    config.pop("optimizer", None)  # checked above; fairseq builds it
    for path, setting in decided.items():
        folder, _, key = path.rpartition(".")
        if folder.partition(".")[0] != "optimizer":
            (config.setdefault(folder, {}) if folder else config)[key] = setting.value
    config["zero_force_ds_cpu_optimizer"] = False  # offloaded, too, fairseq's optimizer updates
    config["managed_gradient_accumulation"] = False
    config["zero_allow_untested_optimizer"] = True  # fairseq's Adam is one of those that DeepSpeed does not know
    return config


def _parse(source: str) -> dict[str, Any]:
    path = Path(source)
    if path.suffix != ".json":
        path = PRESETS / f"{source}.json"
        if not path.is_file():
            raise Refused(
                f"--deepspeed-config {source}: neither a preset ({', '.join(preset_names())}) nor the path of a .json file"
            )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"--deepspeed-config {source}: there is no such file. Presets are {', '.join(preset_names())}") from None
    except OSError as error:
        raise Refused(f"--deepspeed-config {source} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"--deepspeed-config {source} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise Refused(f"--deepspeed-config {source}: expected a JSON object, found {type(config).__name__}")
    return config


def _check(setting: Setting, found: Any, source: str) -> None:
    if found is None or found == AUTO or _equal(found, setting.value):
        return
    raise Refused(
        f"--deepspeed-config {source} has {setting.path} = {json.dumps(found)}, but fairseq's options say {setting.option}"
        f" ({json.dumps(setting.value)}). Change one of the two, or leave {setting.path} out of the file: it is filled in "
        "from the options."
    )


def _equal(found: Any, value: Any) -> bool:
    if isinstance(value, str) and isinstance(found, str):  # names of optimizers; AdamW is fairseq's adam
        return found.lower().removesuffix("w") == value.lower().removesuffix("w")
    if isinstance(value, list) and isinstance(found, list):
        return len(found) == len(value) and all(map(_equal, found, value))
    if isinstance(value, bool) or isinstance(found, bool):
        return found is value
    numbers = (int, float)
    return isinstance(found, numbers) and isinstance(value, numbers) and math.isclose(found, value, rel_tol=1e-9)


def _refuse_more_than_stage(contents: dict[str, Any], source: str) -> None:
    compared = (*BATCH, "fp16.", "bf16.enabled", "optimizer.", "zero_optimization.stage")
    extra = sorted(path for path, _ in _leaves(contents) if not path.startswith(compared))
    if extra:
        raise Refused(f"--deepspeed-config {source} sets {', '.join(extra)}, but {WITHOUT_EFFECT_AT_STAGE_0}. Remove them.")


def _refuse_unsupported(cfg: Any, zero: int) -> None:
    """Options of fairseq that mean another way to hold parameters or gradients than the engine's."""
    refused = {
        "--optimizer fused_adam": cfg.optimizer._name == "fused_adam",
        "--compile": getattr(cfg.model, "compile", False),
        "--amp": cfg.common.amp,
        "--memory-efficient-fp16": cfg.common.memory_efficient_fp16,
        "--memory-efficient-bf16": cfg.common.memory_efficient_bf16,
        "--tpu": cfg.common.tpu,
        "--use-bmuf": cfg.optimization.use_bmuf,
        "--ddp-backend fully_sharded": cfg.distributed_training.ddp_backend == "fully_sharded",
        "--ddp-backend slowmo": cfg.distributed_training.ddp_backend == "slowmo",
        "--zero-sharding os": cfg.distributed_training.zero_sharding == "os",
        "--pipeline-model-parallel": cfg.distributed_training.pipeline_model_parallel,
        "--model-parallel-size": cfg.common.model_parallel_size > 1,
        "--write-checkpoints-asynchronously": cfg.checkpoint.write_checkpoints_asynchronously,
        "--fp16-scale-tolerance": cfg.common.fp16 and cfg.common.fp16_scale_tolerance > 0,
        "--quantization-config-path": cfg.common.quantization_config_path is not None,
    }
    for flag, given in refused.items():
        if given:
            raise Refused(f"{flag} and ZeRO stage {zero} exclude each other; leave {flag} out.")
    if zero == 3 and cfg.ema.store_ema:
        raise Refused("--store-ema needs all parameters on every GPU, and ZeRO stage 3 shards them; use zero2.")


def _fixed(contents: Any, fixed: Mapping[str, Any] = FIXED, within: str = "") -> Iterator[tuple[str, Any, tuple]]:
    """The keys of :data:`FIXED` that a file has, with its value and the accepted ones."""
    for key in fixed.keys() & contents.keys() if isinstance(contents, dict) else ():
        if isinstance(fixed[key], tuple):
            yield f"{within}{key}", contents[key], fixed[key]
        else:
            yield from _fixed(contents[key], fixed[key], f"{within}{key}.")


def _leaves(contents: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no object, with its keys joined by dots."""
    for key, value in contents.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{within}{key}.")
        else:
            yield f"{within}{key}", value
