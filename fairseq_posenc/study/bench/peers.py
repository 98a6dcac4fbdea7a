"""Models of transformers at the same sizes, as it ships them; their heads score every token.

They are not compared with a reference.
"""

import importlib
from typing import Any

from torch import Tensor, nn

from ..measure.work import Loss, Shape

IGNORED = -100  # the label of a token that is not predicted, in transformers
DEBERTA = dict(relative_attention=True, pos_att_type="c2p|p2c", position_biased_input=False, max_relative_positions=512)
PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}),
    "deberta": ("Deberta", DEBERTA),
    "deberta-v2": ("DebertaV2", dict(position_buckets=256, share_att_key=True, norm_rel_ebd="layer_norm", **DEBERTA)),
    "roformer": ("RoFormer", {}),
    "modernbert": ("ModernBert", dict(cls_token_id=0, sep_token_id=2)),
}
"""By their names in ``--peers``: the name of the class for masked language models without its ending, and options."""


def build(peer: str, shape: Shape) -> tuple[nn.Module, Loss, str]:
    """Return the model, its loss, and how its attention runs."""
    name, options = PEERS[peer]
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

    return model, loss, f"transformers {getattr(model.config, '_attn_implementation', '')}".strip()
