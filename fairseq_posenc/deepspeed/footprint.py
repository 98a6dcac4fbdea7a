"""What an architecture needs: its parameters, and the activations that it keeps for the backward pass."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from omegaconf import DictConfig, OmegaConf

from ..errors import InputError, suggestion
from ..families import FAMILIES

DTYPES = {"bf16": "bfloat16", "fp16": "bfloat16", "fp32": "float32"}  # fp16 is equally wide, and CPUs lack some of its operations
SMALL_VOCABULARY = 64  # symbols; measurements are extrapolated from it
MASKED_TOKENS, PER_TOKENS = 3, 20  # masked language modelling predicts 15%


@dataclass(frozen=True)
class Footprint:
    """Sizes of a model at one sequence length and precision."""

    parameters: int
    layer_parameters: int  # that a token passes in all layers together, their positional ones included
    layers: int
    dim: int
    head_dim: int  # inside the language model's head, which is as wide as the word embeddings
    tokens: int
    shared_activations: float  # bytes, whatever the number of samples: positional terms
    activations_per_sample: float  # bytes
    checkpointing: bool

    def activations(self, samples: int) -> float:
        """Bytes kept for the backward pass over a batch."""
        return self.shared_activations + samples * self.activations_per_sample


def footprint(arch: str, overrides: Sequence[str], vocabulary: int, tokens: int, precision: str) -> Footprint:
    """Measure an architecture with one and two layers on one and two samples; all further ones are copies of the second.

    The cost per symbol is likewise known from two small vocabularies.

    Args:
        arch: name of one of this package's architectures.
        overrides: options of the model, ``name=value``.
        vocabulary: number of symbols.
        tokens: length of a sample.
        precision: bf16, fp16 or fp32.

    Raises:
        InputError: no such architecture or option, a value without meaning, or a layer too large to try here.
    """
    args = _arguments(arch, overrides, tokens)
    groups = args.encoder_layer_groups

    def measure(layers: int, symbols: int) -> tuple[int, int, int, int]:
        """Parameters, those of a layer without its positional ones, and bytes kept for one sample and for two."""
        model = _build(OmegaConf.merge(args, {"encoder_layers": layers, "encoder_layer_groups": 0}), symbols, precision)
        encoder = model.encoder.sentence_encoder
        replace(encoder.config, layers=args.encoder_layers, layer_groups=groups, vocab_size=vocabulary)  # checks all three
        one, two = (saved_bytes(model, *_samples(number, symbols, tokens)) for number in (1, 2))
        return _count(model), _count(encoder.layers[0]), one, two

    try:
        least, deeper, wider = measure(1, SMALL_VOCABULARY), measure(2, SMALL_VOCABULARY), measure(1, 2 * SMALL_VOCABULARY)
    except RuntimeError as error:
        if not any(sign in str(error) for sign in ("allocate", "overflow")):  # more than memory, or than a size can be
            raise
        raise InputError(
            f"--arch {arch} at --tokens-per-sample {tokens}: two of its layers do not fit into this host's memory, where they "
            "are tried. Plan a smaller one."
        ) from error
    layers = args.encoder_layers
    parameters, layer, for_one_sample, for_two_samples = (
        first + (layers - 1) * (second - first) + (vocabulary - SMALL_VOCABULARY) * (more - first) // SMALL_VOCABULARY
        for first, second, more in zip(least, deeper, wider, strict=True)
    )
    return Footprint(
        parameters=parameters - (layers - groups) * layer if groups else parameters,
        layer_parameters=layers * (deeper[0] - least[0]),
        layers=layers,
        dim=args.encoder_embed_dim,
        head_dim=args.embedding_size or args.encoder_embed_dim,
        tokens=tokens,
        shared_activations=2 * for_one_sample - for_two_samples,
        activations_per_sample=for_two_samples - for_one_sample,
        checkpointing=bool(args.checkpoint_activations),
    )


def saved_bytes(model: Any, tokens: Any, masked: Any) -> int:
    """Bytes of the distinct tensors, without parameters, that a forward pass of masked language modelling keeps on a GPU."""
    import torch
    from torch.nn import functional as F

    from ..models.memory import kept_bytes

    def loss() -> Any:
        logits = model(tokens, masked_tokens=masked)[0]
        return F.nll_loss(F.log_softmax(logits, dim=-1, dtype=torch.float32), tokens[masked])

    with mock.patch.object(F, "scaled_dot_product_attention", _fused_attention):
        return kept_bytes(model, loss)


def _fused_attention(q: Any, k: Any, v: Any, mask: Any, *_: Any, **options: Any) -> Any:
    """Keeps what a GPU's kernel keeps, with dropout and a bias that is trained too; PyTorch has none on a CPU for these two."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            z = torch.zeros_like(q)
            ctx.save_for_backward(*inputs, z, z.new_zeros(z.shape[:-1], dtype=torch.float32))  # logarithms of softmax's sums
            return z

    return Attention.apply(q, k, v, mask)


def _count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _samples(number: int, vocabulary: int, tokens: int) -> tuple[Any, Any]:
    """(number, n) tokens, and which of them are masked."""
    import torch

    masked = torch.arange(tokens).remainder(PER_TOKENS) < MASKED_TOKENS
    return torch.full((number, tokens), min(10, vocabulary - 1)), masked.expand(number, -1)


def _arguments(arch: str, overrides: Sequence[str], tokens: int) -> DictConfig:
    """The architecture's complete options."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    from ..models.building import complete_new
    from ..models.option_set import ENCODER_OPTIONS

    encoders = {model for model, family in FAMILIES.items() if not family.causal}
    ours = sorted(arch for arch, model in ARCH_MODEL_NAME_REGISTRY.items() if model in encoders)
    if arch not in ours:
        near = suggestion(arch, ours) or f"they are {', '.join(ours)}"
        raise InputError(f"--arch {arch}: plan knows this package's encoders: {near.strip()}")
    args = OmegaConf.create({**vars(ENCODER_OPTIONS.config()()), "_name": arch})
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or name not in args:
            raise InputError(f"--model {override}: expected NAME=VALUE with an option of the model, such as encoder_layers=6")
        setattr(args, name, _parse(value))
    complete_new(args, arch, Namespace(tokens_per_sample=tokens))
    return args


def _parse(value: str) -> Any:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(value.lower(), value)


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
