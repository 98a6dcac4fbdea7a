"""Number formats, devices and kernels."""

import functools
from typing import Any

import torch
from fairseq import options, trainer
from fairseq.data import iterators
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.optim import amp_optimizer
from fairseq.tasks import fairseq_task

from ...base.patching import ModuleProxy, wrap


def bf16_without_tpu() -> None:
    """Let ``--bf16`` and ``--memory-efficient-bf16`` choose the number format without requesting a TPU.

    fairseq would fail without torch_xla; its Hydra entry point does not. Can be removed when fairseq's options do not set
    ``tpu``.
    """

    @wrap(options, "parse_args_and_arch")
    def parse_without_tpu(parse, parser, input_args=None, *args, **kwargs):
        parsed = parse(parser, input_args, *args, **kwargs)
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed
        if getattr(namespace, "tpu", False):
            namespace.tpu = getattr(parser.parse_known_args(input_args)[0], "tpu", False)
        return parsed


def current_amp() -> None:
    """Give fairseq ``torch.amp`` for ``torch.cuda.amp``, which is deprecated. Can be removed when fairseq uses ``torch.amp``."""
    classes = {name: functools.partial(getattr(torch.amp, name), "cuda") for name in ("autocast", "GradScaler")}
    amp = ModuleProxy(torch.cuda.amp, **classes)
    amp_optimizer.torch = fairseq_task.torch = ModuleProxy(torch, cuda=ModuleProxy(torch.cuda, amp=amp))


def pinned_memory_needs_gpu() -> None:
    """Pin the memory of fairseq's batches only if there is a GPU; without one, PyTorch warns in every process.

    Can be removed when fairseq does the same.
    """

    def data_loader(*args: Any, **options: Any) -> torch.utils.data.DataLoader:
        options["pin_memory"] = options.get("pin_memory", False) and torch.cuda.is_available()
        return torch.utils.data.DataLoader(*args, **options)

    utils = ModuleProxy(torch.utils, data=ModuleProxy(torch.utils.data, DataLoader=data_loader))
    iterators.torch = ModuleProxy(torch, utils=utils)


def nan_detector_forward_only() -> None:
    """Let training end with fairseq's message "gradients are Nan/Inf" instead of StopIteration without a message.

    fairseq computes such a batch again with hooks that log where the first NaN is. PyTorch rejects its backward hooks for modules
    that return a dictionary without a tensor, as encoders do; the forward hooks, and the logged norms of the gradients, remain.
    Can be removed when fairseq uses full backward hooks.
    """
    trainer.NanDetector = functools.partial(trainer.NanDetector, backward=False)


def no_fused_encoder_layer() -> None:
    """Keep fairseq's encoder layers from PyTorch's fused path in evaluation.

    They call ``torch._transformer_encoder_layer_fwd`` with arguments of PyTorch 1.12, and fairseq-generate ends with "Mask Type
    should be defined". Can be removed when fairseq passes ``mask_type``.
    """

    @wrap(TransformerEncoderLayerBase, "__init__")
    def without_fastpath(init, self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.can_use_fastpath = False
