"""Arguments that scripts made for BERT and RoBERTa give to every model."""

import pytest
import torch

from fairseq_posenc.huggingface import modeling
from fairseq_posenc.huggingface.configuration import HEADS, PosencConfig

TOKENS = torch.tensor([[0, 5, 6, 7, 2], [0, 9, 2, 1, 1]])
MASK = TOKENS != 1


@pytest.fixture(params=["Model", *(f"For{head}" for head in HEADS)])
def model(request):
    torch.manual_seed(0)
    config = PosencConfig(vocab_size=20, layers=1, dim=16, ffn_dim=16, heads=2, max_positions=24, positions="tisa")
    return getattr(modeling, f"Posenc{request.param}")(config).eval()


def outputs(model, *others, **more):
    """The values of all outputs, those of padding apart."""
    inputs = (TOKENS, MASK.long(), *others)
    more = {"attention_mask": inputs[1]} | more
    if isinstance(model, modeling.PosencForMultipleChoice):
        inputs, more = [x[None] for x in inputs], {k: x[None] if isinstance(x, torch.Tensor) else x for k, x in more.items()}
    found = model(inputs[0], more.pop("attention_mask"), *inputs[2:], **more).to_tuple()
    return torch.cat([(x[MASK] if x.shape[:2] == MASK.shape else x).flatten() for x in found])


def test_what_changes_nothing_is_taken(model):
    zeros = torch.zeros_like(TOKENS)
    for more in (
        {"token_type_ids": zeros},
        {"token_type_ids": None, "head_mask": None, "use_cache": False, "past_key_values": None, "cache_position": None},
        {"encoder_hidden_states": None, "return_dict": True, "output_attentions": False},
        {"attention_mask": (MASK[:, None, None, :] & MASK[:, None, :, None])},
        {"attention_mask": torch.zeros(2, 1, 5, 5).masked_fill(~MASK[:, None, None, :], -1e9)},
    ):
        torch.testing.assert_close(outputs(model, **more), outputs(model))
    torch.testing.assert_close(outputs(model, zeros), outputs(model))  # the third argument of transformers' own encoders


def test_what_would_change_something_is_refused(model):
    types = TOKENS.eq(2).long()
    for others, more in (((types,), {}), ((), {"token_type_ids": types})):
        with pytest.raises(ValueError, match="token_type_ids must be 0"):
            outputs(model, *others, **more)
    for name, value in (("head_mask", torch.ones(1, 2)), ("use_cache", True), ("seq_idx", TOKENS), ("attention_masks", MASK)):
        with pytest.raises(ValueError, match=f"{name} means nothing to this encoder: leave it out"):
            outputs(model, **{name: value})
    with pytest.raises(TypeError, match="positional arguments"):
        outputs(model, types, types)  # labels, in BERT's order of arguments


def test_what_stands_for_the_output_projection_is_applied():
    """As quantization and adapters put modules into its place."""
    config = PosencConfig(vocab_size=20, layers=1, dim=16, ffn_dim=16, heads=2, max_positions=24, positions="tisa")
    model = modeling.PosencForMaskedLM(config).eval()
    before = outputs(model)
    model.lm_head.decoder = torch.nn.Sequential(model.lm_head.decoder, torch.nn.Tanh())
    torch.testing.assert_close(outputs(model), before.tanh())
