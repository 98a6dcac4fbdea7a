"""DeepSpeed's configuration: a preset or a file, completed from fairseq's options.

fairseq's options decide every setting that they name: a file may repeat its value, and a contradiction is refused. Settings that
would change results or the content of checkpoints are refused, too (:data:`SECTIONS`, :data:`FIXED`). DeepSpeed checks all other
keys and types.
"""

import ast
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...base.errors import InputError, flag_of, suggestion

PRESETS = Path(__file__).parent / "presets"
AUTO = "auto"  # in a file, as in Hugging Face's trainer: fairseq's options decide
DEFAULT_BUCKET = 5e8  # DeepSpeed's reduce_bucket_size
DEFAULT_LIVE = 1e9  # DeepSpeed's stage3_max_live_parameters
COMPARED = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"),
    *("optimizer", "fp16", "bf16", "zero_optimization"),
)
SECTIONS = (
    *(*COMPARED, "zero_allow_untested_optimizer", "communication_data_type"),
    *("steps_per_print", "timers", "wall_clock_breakdown", "memory_breakdown", "dump_state", "disable_python_gc"),
    *("comms_logger", "flops_profiler", "tensorboard", "csv_monitor", "wandb", "comet"),
)
"""The keys that a file may have. DeepSpeed's others (schedules, curricula, compression, pipelines, …) train another model,
replace parts of fairseq, or have no effect here."""
FIXED: dict[str, tuple[Any, ...]] = {
    "communication_data_type": (None, "fp32"),
    "zero_optimization.offload_optimizer.device": ("none", "cpu"),
    "zero_optimization.offload_optimizer.ratio": (1,),
    "zero_optimization.offload_optimizer.super_offload": (False,),
    "zero_optimization.offload_param.device": ("none", "cpu"),
    "zero_optimization.cpu_offload": (False,),
    "zero_optimization.cpu_offload_param": (False,),
    "zero_optimization.elastic_checkpoint": (False,),
    "zero_optimization.pipeline_loading_checkpoint": (False,),
    "zero_optimization.zero_quantized_weights": (False,),
    "zero_optimization.zero_quantized_nontrainable_weights": (False,),
    "zero_optimization.zero_quantized_gradients": (False,),
    "zero_optimization.legacy_stage1": (False,),
    "zero_optimization.round_robin_gradients": (False,),
    "zero_optimization.zero_hpz_partition_size": (1,),
    "zero_optimization.compute_grad_norm": (True,),
    "zero_optimization.zenflow": (None,),
    "fp16.fp16_master_weights_and_grads": (False,),
    "bf16.bf16_master_weights_and_grads": (False,),
    "bf16.bf16_optimizer_states": (False,),
}
"""Keys with the values that are accepted. Others would put numbers where checkpoints of this package do not have them, or in less
than float32, or would compute other gradients than fairseq."""


@dataclass(frozen=True)
class ZeroConfig:
    """A preset or file of ``--deepspeed-config``, as :func:`read` returns it for training and for its plan."""

    stage: int  # 0 replicates, 1 shards optimizer states, 2 also gradients, 3 also parameters
    offload_optimizer: bool = False
    offload_parameters: bool = False
    bucket: float = DEFAULT_BUCKET  # numbers, of all communication buffers together
    live: float = DEFAULT_LIVE  # numbers of whole parameters that stage 3 keeps at a time
    source: str = ""  # the preset's name or the file, for messages
    contents: Mapping[str, Any] = field(default_factory=dict)  # what DeepSpeed gets, without fairseq's options


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
    for key in contents.keys() - set(SECTIONS):
        near = suggestion(key, SECTIONS).capitalize()
        raise InputError(f'{file} has "{key}", which training does not use. {near}Leave it out.')
    values = dict(_items(contents))
    for path in FIXED.keys() & values.keys():
        if values[path] not in FIXED[path]:
            raise InputError(
                f"{file} has {path} = {json.dumps(values[path]):.200}, which would change results or checkpoints. "
                f"Leave it out, or give {' or '.join(map(json.dumps, FIXED[path]))}."
            )
    if stage == 0 and (unused := sorted((contents.keys() - set(COMPARED)) | (zero.keys() - {"stage"}))):
        raise InputError(f"{file} sets {', '.join(unused)}, which has no effect at stage 0. Leave it out.")
    if stage == 1 and zero.get("overlap_comm"):
        raise InputError(
            f"{file} has zero_optimization.overlap_comm, which stage 1 cannot do while fairseq decides when an update is "
            "complete. Leave it out, or use stage 2."
        )
    bucket, live = zero.get("reduce_bucket_size", DEFAULT_BUCKET), zero.get("stage3_max_live_parameters", DEFAULT_LIVE)
    if not isinstance(bucket, (int, float)) or not isinstance(live, (int, float)):
        raise InputError(f"{file}: reduce_bucket_size and stage3_max_live_parameters of zero_optimization must be numbers")
    return ZeroConfig(
        stage,
        offload_optimizer=values.get("zero_optimization.offload_optimizer.device") == "cpu",
        offload_parameters=values.get("zero_optimization.offload_param.device") == "cpu",
        bucket=bucket * (2 if zero.get("overlap_comm", stage == 3) else 1),
        live=live,
        source=source,
        contents=contents,
    )


def complete(zero: ZeroConfig, cfg: Any, world_size: int) -> dict[str, Any]:
    """Return DeepSpeed's configuration for a run.

    Args:
        zero: from :func:`read`.
        cfg: fairseq's config.
        world_size: number of processes.

    Raises:
        InputError: the file contradicts fairseq's options (both values are named), or they exclude each other.
    """
    config = {key: dict(value) if isinstance(value, dict) else value for key, value in zero.contents.items()}
    if config == {"zero_optimization": {"stage": 0}}:
        return config  # DeepSpeed is not used, so fairseq's settings do not matter
    decided = _decided_by_fairseq(cfg, world_size)
    for path, value in _items(config):
        expected, option = decided.get(path, (value, ""))
        if value not in (None, AUTO) and not _equal(value, expected):
            raise InputError(
                f"--deepspeed-config {zero.source} has {path} = {json.dumps(value)}, and fairseq's options have {option} "
                f"({json.dumps(expected)}). Change one of the two, or leave {path} out of the file: the options fill it in."
            )
        if path.startswith("optimizer.") and path not in {"optimizer.params", *decided}:
            raise InputError(
                f"--deepspeed-config {zero.source} has {path}, which fairseq's optimizer does not get. Leave it out."
            )
    if zero.stage == 0:
        return config
    config.pop("optimizer", None)  # fairseq builds it
    for path, (value, _) in decided.items():
        section, _, key = path.rpartition(".")
        if not section.startswith("optimizer"):
            (config.setdefault(section, {}) if section else config)[key] = value
    config["zero_force_ds_cpu_optimizer"] = False  # fairseq's optimizer also updates what is offloaded
    config["managed_gradient_accumulation"] = False
    config["zero_allow_untested_optimizer"] = True  # DeepSpeed does not know fairseq's Adam
    return config


def _decided_by_fairseq(cfg: Any, world_size: int) -> dict[str, tuple[Any, str]]:
    """Return the settings that fairseq's options decide: by path, the value, and the option as the user wrote it."""
    common, optimization, optimizer = cfg.common, cfg.optimization, cfg.optimizer
    update_freq = optimization.update_freq[0]
    micro_batch = cfg.dataset.batch_size or 1  # the engine requires one but does not use it: with --max-tokens sizes vary
    batch = f"--batch-size {cfg.dataset.batch_size}" if cfg.dataset.batch_size else f"--max-tokens {cfg.dataset.max_tokens}"
    total = f"{batch} × --update-freq {update_freq} × {world_size} processes"
    decided = {
        "train_micro_batch_size_per_gpu": (micro_batch, batch),
        "gradient_accumulation_steps": (update_freq, f"--update-freq {update_freq}"),
        "train_batch_size": (micro_batch * update_freq * world_size, total),
        "gradient_clipping": (float(optimization.clip_norm), f"--clip-norm {optimization.clip_norm}"),
        "fp16.enabled": (bool(common.fp16), "--fp16" if common.fp16 else "no --fp16"),
        "bf16.enabled": (bool(common.bf16), "--bf16" if common.bf16 else "no --bf16"),
        "optimizer.type": (optimizer._name, f"--optimizer {optimizer._name}"),
        "optimizer.params.lr": (optimization.lr[0], f"--lr {optimization.lr[0]}"),
    }
    for key, attribute in (("betas", "adam_betas"), ("eps", "adam_eps"), ("weight_decay", "weight_decay")):
        if attribute in optimizer:
            given = getattr(optimizer, attribute)
            value = ast.literal_eval(given) if isinstance(given, str) else given
            decided[f"optimizer.params.{key}"] = (list(value) if key == "betas" else value, f"{flag_of(attribute)} {given}")
    if common.fp16:  # halved at every overflow, doubled after a window without one; DeepSpeed's minimum is a whole number
        window = common.fp16_scale_window or max(1, int(2**14 / world_size / update_freq))
        decided |= {
            "fp16.loss_scale": (0, "a dynamic loss scale"),
            "fp16.initial_scale_power": (round(math.log2(common.fp16_init_scale)), f"--fp16-init-scale {common.fp16_init_scale}"),
            "fp16.loss_scale_window": (window, f"--fp16-scale-window {common.fp16_scale_window or 'by default'}"),
            "fp16.min_loss_scale": (max(1, math.ceil(common.min_loss_scale)), f"--min-loss-scale {common.min_loss_scale}"),
            "fp16.hysteresis": (1, f"--fp16-scale-tolerance {common.fp16_scale_tolerance}"),
        }
    return decided


def _parse(source: str) -> dict[str, Any]:
    path = Path(source)
    if path.suffix != ".json":
        path = PRESETS / f"{source}.json"
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        presets = ", ".join(preset_names())
        raise InputError(f"--deepspeed-config {source}: there is no such .json file, and the presets are {presets}") from None
    except OSError as error:
        raise InputError(f"--deepspeed-config {source} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"--deepspeed-config {source} is not JSON: {error}") from None
    if not isinstance(contents, dict):
        raise InputError(f"--deepspeed-config {source}: expected a JSON object, found {type(contents).__name__}")
    for key in ("zero_optimization", "fp16", "bf16", "optimizer"):
        if not isinstance(contents.get(key, {}), dict):
            raise InputError(f"--deepspeed-config {source} has {key} = {json.dumps(contents[key]):.200}; expected a JSON object")
    return contents


def _equal(given: Any, value: Any) -> bool:
    if isinstance(value, str) and isinstance(given, str):  # names of optimizers; AdamW is fairseq's adam
        return given.lower().removesuffix("w") == value.lower().removesuffix("w")
    if isinstance(value, list) and isinstance(given, list):
        return len(given) == len(value) and all(map(_equal, given, value))
    if isinstance(value, float) and isinstance(given, (int, float)):
        return math.isclose(given, value, rel_tol=1e-9)
    return given == value


def _items(contents: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key, joined by dots with those of the objects around it, and its value."""
    for key, value in contents.items():
        yield f"{within}{key}", value
        if isinstance(value, dict):
            yield from _items(value, f"{within}{key}.")
