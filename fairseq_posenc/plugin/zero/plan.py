"""Estimate the memory per GPU that a pretraining run needs.

Nothing is trained and no GPU is needed: the whole model runs a batch at the run's length and precision on tensors without data
(PyTorch's FakeTensor), of which what the backward pass needs is counted.

    fairseq-posenc plan roberta_m4m_large --gpus 32 --deepspeed-config zero2 --batch-size 6
    fairseq-posenc plan modernbert_rope --tokens-per-sample 1024 --mask-prob 0.3 --gpu-memory H200 --tokens 1e11 --throughput 2e6

Not included: what CUDA, NCCL and fragmentation take (allow 2 to 4 GB), and activations beyond those kept for the backward pass.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from omegaconf import DictConfig, OmegaConf

from ...base.commands import option, show
from ...base.errors import InputError, suggestion
from ...core.families import FAMILIES, ROBERTA, expressions
from ..processes.gpus import GPUS
from . import zero_config

if TYPE_CHECKING:
    from torch import Tensor

GB = 1e9
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
DTYPES = {"bf16": "bfloat16", "fp16": "bfloat16", "fp32": "float32"}  # fp16 is equally wide, and CPUs lack some of its operations
POSITIVE = {"minimum": 1, "maximum": 10**12}


def _gpu_memory(text: str) -> float:
    gigabytes = float(GPUS[text][0] if text in GPUS else text)
    if not 1e-6 <= gigabytes <= 1e12:
        raise argparse.ArgumentTypeError(f"must be a number of GB, or one of {', '.join(GPUS)}, got {text}")
    return gigabytes


@dataclass(frozen=True)
class Options:
    """The command's flags: the model, the GPUs, DeepSpeed's configuration and the batch."""

    arch: str = option("an architecture, or an expression for RoBERTa of base size", names=("arch",), metavar="NAME")
    model: list[str] = option("options of the model, such as encoder_layers=6", (), nargs="*", metavar="NAME=VALUE")
    gpus: int = option("GPUs of all hosts together", 8, **POSITIVE)
    deepspeed_config: str = option("preset or file, as for training", "zero0", metavar="NAME|FILE")
    batch_size: int = option("samples per GPU and micro-batch", 8, **POSITIVE)
    tokens_per_sample: int = option("length of a sample", 512, **POSITIVE)
    mask_prob: float = option("share of the tokens that are predicted", 0.15, minimum=0, maximum=1)
    vocab_size: int = option("symbols", 50265, minimum=1, maximum=1 << 24)
    precision: str = option("of parameters and activations", "bf16", choices=BYTES)
    gpu_memory: float = option(f"memory of a GPU in GB, or its name: {', '.join(GPUS)}", 80.0, parse=_gpu_memory, metavar="GB")
    tokens: float | None = option("with --throughput: tokens to train on", None, minimum=1, maximum=1e18)
    throughput: float | None = option("tokens per second of all GPUs, as you have measured it", None, minimum=1e-6, maximum=1e18)


def main(options: Options) -> None:
    """Print the memory per GPU; raises InputError if the model or an option is unknown or has impossible sizes."""
    zero = zero_config.read(options.deepspeed_config)
    if (options.tokens is None) != (options.throughput is None):
        raise InputError("--tokens and --throughput give the number of days together: give both, or neither")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # fairseq imports DeepSpeed, which otherwise warns where there is no GPU
    show(report(options, *footprint(options), zero))


def footprint(options: Options) -> tuple[int, int]:
    """Return the number of parameters of a model, and the bytes that one GPU keeps of a forward pass for the backward pass.

    Raises:
        InputError: the architecture, an option or its value is unknown, or a tensor would have more elements than can be counted.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn import functional as F

    from ...core.saved_tensors import saved_bytes

    samples, length, vocabulary = options.batch_size, options.tokens_per_sample, options.vocab_size
    args = _options(options.arch, options.model, length)
    try:
        with torch.device("meta"):
            model = _build(args, vocabulary, options.precision)
        with FakeTensorMode():
            tensors = dict([*model.named_parameters(), *model.named_buffers()])
            state = {name: torch.empty(x.shape, dtype=x.dtype, requires_grad=x.requires_grad) for name, x in tensors.items()}
            masked = torch.arange(samples)[:, None], torch.arange(round(options.mask_prob * length))

            def loss() -> Tensor:
                inputs = (torch.full((samples, length), vocabulary - 1),), {"masked_tokens": masked}
                logits = torch.func.functional_call(model, state, *inputs)[0].flatten(0, -2)
                return F.nll_loss(F.log_softmax(logits, dim=-1, dtype=torch.float32), torch.zeros(len(logits), dtype=torch.long))

            with (
                mock.patch.object(F, "scaled_dot_product_attention", _fused_attention),
                mock.patch.object(torch.Tensor, "any", return_value=False),  # there is no padding
            ):
                return sum(x.numel() for x in model.parameters()), saved_bytes(state.values(), loss)
    except RuntimeError as error:
        if not any(sign in str(error) for sign in ("overflow", "too large")):
            raise
        raise InputError(
            f"{options.arch} at --tokens-per-sample {length}: its tensors are too large. Plan a smaller one."
        ) from error


def _fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *_: Any, **options: Any) -> Tensor:
    """Keep what a GPU's kernel keeps, also with dropout or a trained bias, for which PyTorch has no fused kernel on a CPU."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            z = torch.zeros_like(q)
            ctx.save_for_backward(*inputs, z, z.new_zeros(z.shape[:-1], dtype=torch.float32))  # logarithms of softmax's sums
            return z

    return Attention.apply(q, k, v, mask)


def _options(arch: str, overrides: Sequence[str], tokens: int) -> DictConfig:
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    from ...core.schemes import parse
    from ..models.building import complete_new
    from ..options.option_set import ENCODER_OPTIONS

    encoders = {model for model, family in FAMILIES.items() if not family.causal}
    known = sorted(name for name, model in ARCH_MODEL_NAME_REGISTRY.items() if model in encoders)
    if arch not in known:
        expression = expressions().get(arch, arch)
        overrides = [f"positions={expression}", *overrides]
        try:
            parse(expression)
        except InputError as error:
            raise InputError(
                f"{arch} is no encoder of this package: {suggestion(arch, known)}As an expression: {error}"
            ) from None
        arch = ROBERTA.model
    args = OmegaConf.create({**vars(ENCODER_OPTIONS.config()()), "_name": arch})
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or name not in args:
            raise InputError(f"--model {override}: expected NAME=VALUE with an option of the model, such as encoder_layers=6")
        with suppress(ValueError):  # a name, such as that of an activation function
            value = json.loads(value)
        setattr(args, name, value)
    complete_new(args, arch, argparse.Namespace(tokens_per_sample=tokens))
    return args


def _build(args: Any, vocabulary: int, precision: str) -> Any:
    import torch

    from ..models.building import build, dictionary_of

    if args.attention_backend == "auto":  # which takes sdpa or eager on a GPU, and another here
        try:
            return _build(OmegaConf.merge(args, {"attention_backend": "sdpa"}), vocabulary, precision)
        except InputError:
            args = OmegaConf.merge(args, {"attention_backend": "eager"})
    model = build(args._name, args, dictionary_of(vocabulary))
    return model.to(getattr(torch, DTYPES[precision])).train()


class Memory(NamedTuple):
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
    def peak(self) -> float:
        """The maximum over a step."""
        kept = self.parameters + self.optimizer + self.gradients
        return max(self.start, kept + max(self.activations + self.buffers, self.step))


def memory(parameters: int, zero: zero_config.ZeroConfig, gpus: int, precision: str, activations: float) -> Memory:
    """Return the memory with Adam, after Rajbhandari et al. 2020, §3 and 5.

    Per parameter: 2 bytes (4 in fp32) for itself and for its gradient; 4 for the float32 master copy and 8 for Adam's two
    moments, divided over the GPUs from stage 1 on. Gradients are divided from stage 2 on, parameters at stage 3. Without
    sharding, fp32 needs no master copy, fairseq keeps a float32 gradient next to a 16-bit one, and the buckets that DDP averages
    are another copy of the gradients (--gradient-as-bucket-view avoids it). fairseq's Adam recomputes its denominators each step,
    4 bytes per parameter, all at once if the master copy is one flat tensor (a shard, or with fp16). At every stage each
    process begins with the whole model, built in float32 on its host and moved to its GPU.

    Args:
        gpus: on all hosts together.
        activations: bytes kept for the backward pass.
    """
    width, sharded = BYTES[precision], zero.stage > 0
    size, built = parameters * width, parameters * 4
    whole = size / (gpus if zero.stage == 3 else 1)
    gradients = size / (gpus if zero.stage >= 2 else 1)
    if sharded:
        optimizer, step = parameters * 12 / gpus, parameters * 8 / gpus  # while stepping: gradients in float32, denominators
        buffers = width * min(zero.bucket, 2 * parameters) + (width * min(zero.live, parameters) if zero.stage == 3 else 0)
    else:
        optimizer, buffers = parameters * (8 if precision == "fp32" else 16), size if gpus > 1 else 0
        step = buffers + (parameters * 4 if precision == "fp16" else 0)
    offloads = zero.offload_optimizer
    host = (optimizer + step if offloads else 0) + (whole if zero.offload_parameters else 0)
    return Memory(
        start=size,
        parameters=0 if zero.offload_parameters else whole,
        gradients=0 if offloads and zero.stage >= 2 else gradients,
        optimizer=0 if offloads else optimizer,
        buffers=buffers,
        activations=activations,
        step=0 if offloads else step,
        host=max(host, built),
    )


def report(options: Options, parameters: int, activations: int, zero: zero_config.ZeroConfig) -> str:
    """Return the plan as text."""
    needed = memory(parameters, zero, options.gpus, options.precision, activations)
    fits = "fits" if needed.peak < options.gpu_memory * GB else "does NOT fit"
    if needed.start >= options.gpu_memory * GB:
        fits = "cannot start, as each GPU first holds the whole model: does NOT fit"
    rows = [
        ("whole model, at the start", needed.start), ("parameters", needed.parameters), ("gradients", needed.gradients),
        ("optimizer states", needed.optimizer), ("communication buffers", needed.buffers), ("activations", needed.activations),
        ("while stepping", needed.step), ("peak", needed.peak), ("on the host, per GPU", needed.host),
    ]  # fmt: skip
    table = "\n".join(f"  {name:26} {size / GB:9.2f} GB" for name, size in rows)
    days = ""
    if options.tokens and options.throughput:
        seconds = options.tokens / options.throughput
        days = f"\n\n{options.tokens:,.0f} tokens at {options.throughput:,.0f} per second: {seconds / 86400:.2g} days"
    return (
        f"{options.arch}: {parameters:,} parameters; {options.gpus} GPUs, {options.deepspeed_config}, "
        f"{options.precision}\n\n"
        f"memory per GPU ({fits} in {options.gpu_memory:g} GB)\n{table}{days}"
    )
