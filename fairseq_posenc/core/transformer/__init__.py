"""The transformer itself, in plain PyTorch: embeddings, layers, encoder, decoder and heads."""

from torch.export import register_dataclass

from ..attention import Mask
from .cache import Cache
from .config import ACTIVATIONS, DecoderConfig, EncoderConfig, build_positions
from .decoder import Decoder
from .encoder import Encoder, EncoderOutput
from .heads import LanguageModelHead
from .sampling import PositionSampling
from .stack import Stack

__all__ = [
    "ACTIVATIONS",
    "Cache",
    "Decoder",
    "DecoderConfig",
    "Encoder",
    "EncoderConfig",
    "EncoderOutput",
    "LanguageModelHead",
    "Mask",
    "PositionSampling",
    "Stack",
    "build_positions",
]

register_dataclass(EncoderOutput)  # which torch.export needs of what a model returns
