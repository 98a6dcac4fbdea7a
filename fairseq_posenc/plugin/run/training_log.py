"""What the log of a training says beside fairseq's, and ``--profile-steps``."""

import functools
import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from fairseq.logging import meters, metrics
from torch.profiler import ProfilerAction, profile

from ...base.files import partial_of

log = logging.getLogger(__name__)

OPTION = "profile_steps"
HELP = "write a trace of torch.profiler of these updates, such as 10-15, to --save-dir"


def untimed(function: Callable) -> Callable:
    """Let the speeds of training leave out the time of a function, as of validating and saving."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        for name in ("train", "train_inner"):
            for meter in (metrics.get_meters(name) or {}).values():
                if isinstance(meter, meters.TimeMeter):
                    meter.start += time.perf_counter() - start
        return result

    return call


def with_time_left(get_stats: Callable, max_update: int) -> Callable:
    """Add ``seconds_left`` to what is logged, the time to ``--max-update`` without validating and saving."""

    def get_stats_and_time(values: Mapping[str, Any]) -> Mapping[str, Any]:
        stats = get_stats(values)
        if max_update and stats.get("wps"):  # more digits than ups
            stats["seconds_left"] = round((max_update - stats["num_updates"]) * stats["wpb"] / stats["wps"])
        return stats

    return get_stats_and_time


def updates_of(steps: str) -> range:
    """Return the updates of the option; none if it is not of the form 10-15."""
    found = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", steps)
    return range(int(found[1]), int(found[2]) + 1) if found and int(found[1]) else range(0)


def profiled(train: Callable) -> Callable:
    """Wrap fairseq's ``train`` of an epoch, so that the first process writes a trace of those of its updates."""

    @functools.wraps(train)
    def train_profiled(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        updates, step = updates_of(getattr(cfg.common, OPTION, "") or ""), trainer.train_step
        if not updates or cfg.distributed_training.distributed_rank:
            return train(cfg, trainer, task, epoch_itr)
        first = max(updates[0], trainer.get_num_updates() + 1)  # of this epoch

        def action(_: int) -> ProfilerAction:
            update = trainer.get_num_updates() + 1
            recorded = ProfilerAction.RECORD_AND_SAVE if update == updates[-1] else ProfilerAction.RECORD
            return recorded if update in updates else ProfilerAction.NONE

        def write(done: profile) -> None:
            path = Path(cfg.checkpoint.save_dir) / f"trace_{first}-{min(updates[-1], trainer.get_num_updates())}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            done.export_chrome_trace(str(partial_of(path)))
            partial_of(path).replace(path)
            log.info(f"wrote {path}, which https://ui.perfetto.dev shows")

        def step_and_tell(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            profiler.step()
            return result

        with (
            profile(schedule=action, on_trace_ready=write, record_shapes=True) as profiler,
            mock.patch.object(trainer, "train_step", step_and_tell),
        ):
            return train(cfg, trainer, task, epoch_itr)

    return train_profiled
