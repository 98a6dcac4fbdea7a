"""Configurations of training as fairseq's command line makes them."""

import copy
import functools
from collections.abc import Callable

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

SIZES = ["--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16", "--encoder-attention-heads", "2"]


@pytest.fixture(scope="session")
def configure() -> Callable:
    """``configure(data, arch, *flags)`` for masked language modelling of samples of 16 tokens on the CPU."""

    @functools.cache
    def convert(*arguments):  # takes Hydra the better part of a second
        return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), [*arguments]))

    def configure(data, arch, *flags):
        task = [str(data), "--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "16"]
        training = [
            "--optimizer",
            "adam",
            "--lr",
            "1e-3",
            "--batch-size",
            "4",
            "--num-workers",
            "0",
            "--max-update",
            "1",
            "--cpu",
        ]
        return copy.deepcopy(convert(*task, *training, *SIZES, "--arch", arch, *map(str, flags)))

    return configure
