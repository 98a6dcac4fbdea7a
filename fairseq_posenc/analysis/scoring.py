"""TISA's scoring functions (Wennberg & Henter 2021, eq. 5), read out of a checkpoint."""

import os

import torch
from torch import Tensor

from fairseq_posenc.compat import load_checkpoint
from fairseq_posenc.schemes.tisa import scoring_function

PREFIX = "positions.tisa."
PARAMETERS = ("amplitude", "sharpness", "offset")


def tisa_parameters(checkpoint: str | os.PathLike) -> tuple[Tensor, Tensor, Tensor]:
    """Amplitudes, sharpnesses and offsets of a fairseq checkpoint's kernels, each (layers, heads, kernels), float32.

    Raises:
        ValueError: the checkpoint holds no TISA; the message names what it does hold.
        OSError, RuntimeError, pickle.UnpicklingError: it cannot be read, as in :func:`fairseq_posenc.compat.load_checkpoint`.
    """
    state = load_checkpoint(os.fspath(checkpoint)).get("model", {})
    found = {name.split(PREFIX)[1]: tensor.float() for name, tensor in state.items() if PREFIX in name}
    if not found.keys() >= set(PARAMETERS):
        schemes = sorted({name.split("positions.")[1].split(".")[0] for name in state if ".positions." in name})
        raise ValueError(
            f"{checkpoint} has no TISA kernels (its positional parameters: {', '.join(schemes) or 'none'}). "
            "Give a checkpoint of roberta_tisa or of another architecture with tisa in --positions."
        )
    return tuple(found[name] for name in PARAMETERS)


def scoring_curves(parameters: tuple[Tensor, Tensor, Tensor], offsets: Tensor) -> Tensor:
    """``f_θ(r)``, (layers, heads, R), of every layer and head at the offsets r = j - i, (R,)."""
    with torch.no_grad():
        return scoring_function(*parameters, offsets.float())


def reach(parameters: tuple[Tensor, Tensor, Tensor], limit: int, share: float = 0.02) -> int:
    """The largest offset, up to ``limit``, at which any function still has ``share`` of the greatest magnitude of all."""
    curves = scoring_curves(parameters, torch.arange(-limit, limit + 1)).abs()
    heard = (curves >= share * curves.max()).flatten(0, 1).any(0).nonzero()
    return max(1, int((heard - limit).abs().max()))
