"""Models of other packages at the same sizes, as these packages ship them; their heads score every token.

They are not compared with a reference.
"""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import InputError
from .work import Loss, Shape

IGNORED = -100  # the label of a token that is not predicted, in transformers
DEBERTA = dict(relative_attention=True, pos_att_type="c2p|p2c", position_biased_input=False, max_relative_positions=512)


class Peer(NamedTuple):
    """A model: the package that it is imported from, the distribution that pip installs, and its builder."""

    package: str
    distribution: str
    build: Callable[[Shape], tuple[nn.Module, Loss]]

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


def build(name: str, shape: Shape) -> tuple[nn.Module, Loss, str]:
    """Return the model, its loss, and how its attention runs."""
    model, loss = PEERS[name].build(shape)
    return model, loss, f"{PEERS[name].package} {getattr(getattr(model, 'config', None), '_attn_implementation', '')}".strip()


def require_installed(names: Sequence[str]) -> None:
    """Raise InputError unless the packages of these models are installed."""
    for name in names:
        if not PEERS[name].installed:
            raise InputError(f"--peers {name} needs {PEERS[name].package}: pip install {PEERS[name].distribution}")


def _transformers(name: str, **options: Any) -> Peer:
    """Return a class of transformers for masked language models, by its name without the endings."""

    def build(shape: Shape) -> tuple[nn.Module, Loss]:
        library = importlib.import_module("transformers")
        sizes = dict(
            vocab_size=shape.symbols,
            hidden_size=shape.dim,
            intermediate_size=shape.ffn_dim,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            max_position_embeddings=shape.tokens,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
        )
        model = getattr(library, f"{name}ForMaskedLM")(getattr(library, f"{name}Config")(**sizes | options))

        def loss(tokens: Tensor, masked: Tensor) -> Tensor:
            return model(input_ids=tokens, labels=tokens.masked_fill(~masked, IGNORED)).loss

        return model, loss

    return Peer("transformers", "transformers", build)


def _x_transformers(shape: Shape) -> tuple[nn.Module, Loss]:
    """Build its encoder with rotations and fused attention."""
    library = importlib.import_module("x_transformers")
    layers = library.Encoder(
        dim=shape.dim,
        depth=shape.layers,
        heads=shape.heads,
        attn_dim_head=shape.dim // shape.heads,
        ff_mult=shape.ffn_dim / shape.dim,
        attn_dropout=0.1,
        ff_dropout=0.1,
        attn_flash=True,
        rotary_pos_emb=True,
    )
    model = library.TransformerWrapper(num_tokens=shape.symbols, max_seq_len=shape.tokens, attn_layers=layers)

    def loss(tokens: Tensor, masked: Tensor) -> Tensor:
        return F.cross_entropy(model(tokens)[masked].float(), tokens[masked])

    return model, loss


PEERS = {
    "bert": _transformers("Bert"),
    "deberta": _transformers("Deberta", **DEBERTA),
    "deberta-v2": _transformers("DebertaV2", position_buckets=256, share_att_key=True, norm_rel_ebd="layer_norm", **DEBERTA),
    "roformer": _transformers("RoFormer"),
    "modernbert": _transformers("ModernBert", cls_token_id=0, sep_token_id=2),
    "x-transformers": Peer("x_transformers", "x-transformers", _x_transformers),
}
"""By their names in ``--peers``."""
