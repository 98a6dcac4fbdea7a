"""A step leaves nothing behind: not until Python looks for cycles, which it does too rarely for a GPU's memory."""

import gc
import warnings

import torch

from fairseq_posenc.core.transformer import Encoder, EncoderConfig


def living_tensors() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # isinstance wakes deprecated lazy modules
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


def test_a_step_leaves_no_tensor():
    sizes = dict(layers=2, dim=32, ffn_dim=64, heads=4, max_positions=16)
    schemes = ("tisa", "shaw+t5", "untied+reset", "synthesizer_dense", "rope", "fire")
    encoders = [Encoder(EncoderConfig(50, positions=positions, **sizes)) for positions in schemes]
    tokens = torch.randint(4, 50, (2, 9))

    def step():
        for encoder in encoders:
            encoder(tokens).last_hidden_state.sum().backward()

    step()  # makes the gradients
    gc.collect()
    gc.disable()
    try:
        before = living_tensors()
        step()
        assert living_tensors() == before
    finally:
        gc.enable()
