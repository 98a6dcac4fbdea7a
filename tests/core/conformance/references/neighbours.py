"""Keys that are those of neighbours."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from .absolute import none
from .reading import Layer, Parameters, Reading
from .rotary import rope


def neighbour(layer: Layer, head: int, b: int, j: int, steps: int) -> Tensor | None:
    """k_{j - steps} in a decoder and in the first half of an encoder's heads, k_{j + steps} in the others; None: no token."""
    place = j - steps if layer.causal or head < layer.heads / 2 else j + steps
    return layer.k[b, head, place] if 0 <= place < layer.n and not layer.padding[b, place] else None


def keys(layer: Layer, key: Callable[[int, int, int], Tensor]) -> Layer:
    """The layer with the key of each sequence, head and place."""
    batch, heads, n, _ = layer.k.shape
    rows = [[torch.stack([key(b, head, j) for j in range(n)]) for head in range(heads)] for b in range(batch)]
    return dataclasses.replace(layer, k=torch.stack([torch.stack(of_batch) for of_batch in rows]))


def offset_keys(layer: Layer, moved: list[bool]) -> Layer:
    """modded-nanogpt: k'_j = k_{j-1} in some features; the first token keeps its own."""

    def key(b: int, head: int, j: int) -> Tensor:
        own, other = layer.k[b, head, j], neighbour(layer, head, b, j, 1)
        return own if other is None else torch.where(torch.tensor(moved), other, own)

    return keys(layer, key)


def key_offset(p: Parameters, layer: Layer) -> Reading:
    return none(p, offset_keys(layer, [True] * layer.head_dim))


def rope_key_offset(p: Parameters, layer: Layer) -> Reading:
    """Where RoPE does not turn a feature."""
    d, turning = layer.head_dim, int(layer.options["rope_fraction"] * layer.head_dim / 2)
    pair = (lambda c: c % (d // 2)) if layer.options.get("rope_layout") == "half" else (lambda c: c // 2)
    return rope(p, offset_keys(layer, [pair(c) >= turning for c in range(d)]))


def convolved_keys(p: Parameters, layer: Layer) -> Layer:
    """So et al. 2021, section 4.1: a convolution along the sequence for each feature of each head; zeros beyond the sequence."""
    weight = layer.of(p["key_convolution.weight"])  # (H, width, d)

    def key(b: int, head: int, j: int) -> Tensor:
        taps = [neighbour(layer, head, b, j, c) for c in range(weight.shape[1])]
        return sum(
            (w * tap for w, tap in zip(weight[head], taps, strict=True) if tap is not None), torch.zeros_like(weight[0, 0])
        )

    return keys(layer, key)


def key_convolution(p: Parameters, layer: Layer) -> Reading:
    return none(p, convolved_keys(p, layer))


def rope_key_convolution(p: Parameters, layer: Layer) -> Reading:
    """The rotation is that of the token's own place."""
    return rope(p, convolved_keys(p, layer))
