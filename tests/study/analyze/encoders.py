"""Small encoders whose parameters are far from where they start, near zero."""

import torch

from fairseq_posenc.core.transformer import Encoder, EncoderConfig

N = 7


def encoder_of(positions, **options):
    """Two layers with two heads of dimension 4, in float64, for at most N tokens of 30 symbols."""
    torch.manual_seed(0)
    sizes = {"layers": 2, "dim": 8, "ffn_dim": 16, "heads": 2, "max_positions": N, **options}
    encoder = Encoder(EncoderConfig(vocab_size=30, positions=positions, **sizes)).double().eval()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return encoder.requires_grad_(False)
