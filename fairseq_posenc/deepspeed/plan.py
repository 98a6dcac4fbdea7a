"""Estimate what a pretraining run needs: memory per GPU, and bytes sent and time per step.

Nothing is trained and no GPU is needed. Parameters are counted on the architecture itself, and activations by running one and
two of its layers here, at the run's length and precision. Times follow from the bandwidths, the peak and the achieved share of
the peak (MFU) that you give; the defaults are an A100 80 GB with NVLink, and hosts with 200 Gbit/s.

    fairseq-posenc plan --arch roberta_m4m_large --nodes 4 --gpus-per-node 8 --deepspeed-config zero2 --batch-size 6

Not included: what CUDA, NCCL and fragmentation take (allow 2 to 4 GB), and activations beyond those kept for the backward pass.
"""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass

from ..commands import show
from ..errors import InputError, flag_of
from . import config
from .config import ZeroConfig
from .footprint import MASKED_TOKENS, PER_TOKENS, Footprint, footprint

GB = 1e9
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
MAX_VALUE = 1e12  # of any flag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    add = parser.add_argument
    add("--arch", required=True, metavar="NAME", help="architecture, as for fairseq-train")
    add("--model", nargs="*", default=[], metavar="NAME=VALUE", help="options of the model, such as encoder_layers=6")
    add("--nodes", type=int, default=1, help="hosts (default: %(default)s)")
    add("--gpus-per-node", type=int, default=8, help="default: %(default)s")
    add("--deepspeed-config", default="zero0", metavar="NAME|FILE", help="default: %(default)s")
    add("--batch-size", type=int, default=8, help="samples per GPU and micro-batch (default: %(default)s)")
    add("--update-freq", type=int, default=1, help="micro-batches per step (default: %(default)s)")
    add("--tokens-per-sample", type=int, default=512, help="default: %(default)s")
    add("--vocab-size", type=int, default=50265, help="default: %(default)s")
    add("--precision", choices=BYTES, default="bf16", help="default: %(default)s")
    add("--gpu-memory", type=float, default=80, metavar="GB", help="default: %(default)s")
    add("--peak-tflops", type=float, default=312, help="peak of one GPU at this precision (default: %(default)s)")
    add("--mfu", type=float, default=0.35, help="share of the peak that is reached (default: %(default)s)")
    add("--intra-node-gb-s", type=float, default=200, help="GB/s that a GPU sends within its host (default: %(default)s)")
    add("--inter-node-gb-s", type=float, default=20, help="GB/s that a host sends to others (default: %(default)s)")


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        InputError: a flag out of range; the message names it.
    """
    for name in ("nodes", "gpus_per_node", "batch_size", "update_freq", "tokens_per_sample", "vocab_size", "gpu_memory",
                 "peak_tflops", "mfu", "intra_node_gb_s", "inter_node_gb_s"):  # fmt: skip
        if not 0 < getattr(args, name) <= MAX_VALUE:
            raise InputError(f"{flag_of(name)} {getattr(args, name)}: must be positive, and at most {MAX_VALUE:.0e}")
    if args.mfu > 1:
        raise InputError(f"--mfu {args.mfu}: a share of the peak, at most 1")
    zero = config.read(args.deepspeed_config)
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # fairseq imports DeepSpeed, which otherwise warns where there is no GPU
    model = footprint(args.arch, args.model, args.vocab_size, args.tokens_per_sample, args.precision)
    show(report(args, model, zero))


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU (and of host memory, per GPU)."""

    start: float  # the whole model, which fairseq moves to the GPU before anything is sharded
    parameters: float
    gradients: float
    optimizer: float
    buffers: float
    activations: float
    step: float  # only while stepping, when activations are gone
    host: float

    @property
    def states(self) -> float:
        """What is kept between steps."""
        return self.parameters + self.optimizer

    @property
    def peak(self) -> float:
        return max(self.start, self.states + self.gradients + max(self.activations + self.buffers, self.step))


def memory(parameters: int, zero: ZeroConfig, gpus: int, precision: str, activations: float) -> Memory:
    """Memory with Adam, after Rajbhandari et al. 2020, §3 and 5.

    Per parameter: 2 bytes (4 in fp32) for itself and for its gradient; 4 for the float32 master copy and 8 for Adam's two
    moments, divided over the GPUs from stage 1 on. Gradients are divided from stage 2 on, parameters at stage 3. Without
    sharding, fp32 needs no master copy, fairseq keeps a float32 gradient beside a 16-bit one, and the buckets that DDP averages
    are another copy of the gradients (--gradient-as-bucket-view avoids it). fairseq's Adam recomputes its denominators each step,
    4 bytes per parameter, all at once if the master copy is one flat tensor (a shard, or with fp16). At every stage each
    process begins with the whole model, built in float32 on its host and moved to its GPU.

    Args:
        parameters: their number.
        gpus: on all hosts together.
        activations: bytes kept for the backward pass.
    """
    width = BYTES[precision]
    start, built = parameters * width, parameters * 4
    if zero.stage == 0:
        buckets = parameters * width if gpus > 1 else 0
        return Memory(
            start=start,
            parameters=parameters * width,
            gradients=parameters * width,
            optimizer=parameters * (8 if precision == "fp32" else 16),
            buffers=buckets,
            activations=activations,
            step=buckets + (parameters * 4 if precision == "fp16" else 0),
            host=built,
        )
    optimizer = parameters * 12 / gpus
    gradients = parameters * width / (gpus if zero.stage >= 2 else 1)
    whole = parameters * width / (gpus if zero.stage == 3 else 1)
    live = width * min(zero.live, parameters) if zero.stage == 3 else 0
    step = parameters * 8 / gpus  # gradients in float32, denominators
    host = (optimizer + step if zero.offload_optimizer else 0) + (whole if zero.offload_parameters else 0)
    return Memory(
        start=start,
        parameters=0 if zero.offload_parameters else whole,
        gradients=0 if zero.offload_optimizer and zero.stage >= 2 else gradients,
        optimizer=0 if zero.offload_optimizer else optimizer,
        buffers=width * min(zero.bucket, 2 * parameters) + live,
        activations=activations,
        step=0 if zero.offload_optimizer else step,
        host=max(host, built),
    )


@dataclass(frozen=True)
class Traffic:
    """Bytes per step that one GPU sends within its host, and one host to others."""

    gpu: float
    host: float


def traffic(parameters: int, zero: ZeroConfig, gpus: int, precision: str, nodes: int, update_freq: int) -> Traffic:
    """Communication per step, after Rajbhandari et al. 2020, §7, with rings that cross each host boundary once.

    Averaging M bytes is a reduce-scatter and an all-gather, each of which sends M (n - 1)/n from each of n. Stages 0 and 1 do
    both once per step; stage 2 scatters every micro-batch; stage 3 gathers twice and scatters once per micro-batch.
    """
    size = parameters * BYTES[precision]
    passes = {0: 2, 1: 2, 2: 1 + update_freq, 3: 3 * update_freq}[zero.stage]
    local = gpus // nodes
    return Traffic(gpu=passes * size * (local - 1) / local, host=passes * size * (nodes - 1) / nodes)


def flops_per_token(model: Footprint, vocabulary: int, checkpointing: bool) -> float:
    """Forward and backward: 6 per weight of the layers, 12·n·D per layer for attention, and the head on the masked tokens.

    Positional terms are left out: they depend on the scheme, and MFU is an input anyway. Recomputing activations adds a
    forward pass.
    """
    layers = 12 * model.layers * model.tokens * model.dim + 6 * model.layer_parameters
    head = 6 * MASKED_TOKENS / PER_TOKENS * model.head_dim * (vocabulary + model.dim)
    return layers * (4 / 3 if checkpointing else 1) + head


def report(args: argparse.Namespace, model: Footprint, zero: ZeroConfig) -> str:
    """The plan as text."""
    gpus = args.nodes * args.gpus_per_node
    needed = memory(model.parameters, zero, gpus, args.precision, model.activations(args.batch_size))
    sent = traffic(model.parameters, zero, gpus, args.precision, args.nodes, args.update_freq)
    batch = args.batch_size * args.update_freq * gpus
    per_gpu = args.batch_size * args.update_freq * args.tokens_per_sample
    compute = per_gpu * flops_per_token(model, args.vocab_size, model.checkpointing) / (args.peak_tflops * 1e12 * args.mfu)
    communicate = sent.gpu / (args.intra_node_gb_s * GB) + sent.host / (args.inter_node_gb_s * GB)
    fastest, slowest = max(compute, communicate), compute + communicate
    fits = "fits" if needed.peak < args.gpu_memory * GB else "does NOT fit"
    if needed.start >= args.gpu_memory * GB:
        fits = "cannot start, as each GPU first holds the whole model: does NOT fit"
    rows = [
        ("whole model, at the start", needed.start), ("parameters", needed.parameters), ("gradients", needed.gradients),
        ("optimizer states", needed.optimizer), ("communication buffers", needed.buffers), ("activations", needed.activations),
        ("while stepping", needed.step), ("peak", needed.peak), ("on the host, per GPU", needed.host),
    ]  # fmt: skip
    table = "\n".join(f"  {name:26} {size / GB:9.2f} GB" for name, size in rows)
    return (
        f"{args.arch}: {model.parameters:,} parameters; {args.nodes} × {args.gpus_per_node} GPUs, {args.deepspeed_config}, "
        f"{args.precision}\n"
        f"batch {batch:,} samples of {args.tokens_per_sample} tokens = {batch * args.tokens_per_sample:,} tokens per step\n\n"
        f"memory per GPU ({fits} in {args.gpu_memory:g} GB)\n{table}\n\n"
        f"communication per step: a GPU sends {sent.gpu / GB:.2f} GB within its host, a host {sent.host / GB:.2f} GB to others\n"
        f"time per step: computing {_duration(compute)} ({args.mfu:.0%} of {args.peak_tflops:g} TFLOP/s), communicating "
        f"{_duration(communicate)};\n"
        f"  together {_duration(fastest)} (all overlapped) to {_duration(slowest)} (none), so {batch / slowest:,.0f} to "
        f"{batch / fastest:,.0f} samples/s, and 100,000 steps in {_duration(1e5 * fastest)} to {_duration(1e5 * slowest)}"
    )


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * size or (unit == "s" and seconds >= 1):
            return f"{seconds / size:.1f} {unit}"
    return f"{math.ceil(seconds * 1000)} ms"
