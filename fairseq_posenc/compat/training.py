"""Number formats and devices in training."""

import functools

import torch

from fairseq_posenc.compat.view import View, wrap


def bf16_without_tpu() -> None:
    """Let ``--bf16`` and ``--memory-efficient-bf16`` mean the number format alone.

    fairseq takes them for a request to train on a TPU and fails without torch_xla; its Hydra entry point does not. Can be
    removed when fairseq's options do not set ``tpu``.
    """
    from fairseq import options

    @wrap(options, "parse_args_and_arch")
    def parse_without_tpu(parse, parser, input_args=None, *args, **kwargs):
        parsed = parse(parser, input_args, *args, **kwargs)
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed
        if getattr(namespace, "tpu", False):
            namespace.tpu = getattr(parser.parse_known_args(input_args)[0], "tpu", False)
        return parsed


def current_amp() -> None:
    """Give fairseq ``torch.amp`` where it uses ``torch.cuda.amp``, for which PyTorch gives a deprecation warning per run.

    Can be removed when fairseq uses ``torch.amp``.
    """
    from fairseq.optim import amp_optimizer
    from fairseq.tasks import fairseq_task

    autocast = functools.partial(torch.amp.autocast, "cuda")
    scaler = functools.partial(torch.amp.GradScaler, "cuda")
    amp = View(torch.cuda.amp, autocast=autocast, GradScaler=scaler)
    amp_optimizer.torch = fairseq_task.torch = View(torch, cuda=View(torch.cuda, amp=amp))


def pinned_memory_needs_gpu() -> None:
    """Let fairseq's batches be in pinned memory only where there is a GPU; without one, PyTorch warns in every process.

    Can be removed when fairseq asks for pinned memory only with a GPU.
    """
    from fairseq.data import iterators

    def data_loader(*args, pin_memory: bool = False, **kwargs):
        return torch.utils.data.DataLoader(*args, pin_memory=pin_memory and torch.cuda.is_available(), **kwargs)

    utils = View(torch.utils, data=View(torch.utils.data, DataLoader=data_loader))
    iterators.torch = View(torch, utils=utils)


def nan_detector_forward_only() -> None:
    """Let training end in fairseq's "gradients are Nan/Inf", where it ends in a bare StopIteration.

    fairseq computes such a batch once more with hooks that log where the first NaN is. Its backward hooks are of a kind that
    PyTorch refuses where a module returns a dictionary without a tensor, as encoders do; the forward hooks, and the norms of
    the gradients that are logged after them, remain. Can be removed when fairseq uses full backward hooks.
    """
    from fairseq import trainer

    trainer.NanDetector = functools.partial(trainer.NanDetector, backward=False)


PATCHES = (bf16_without_tpu, current_amp, pinned_memory_needs_gpu, nan_detector_forward_only)
