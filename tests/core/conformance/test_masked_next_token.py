"""Masked next-token prediction (Charpentier & Samuel 2024) against a reading of it in float64, in every family of encoders."""

import itertools
from dataclasses import replace

import pytest
import torch
from omegaconf import OmegaConf
from torch.nn import functional as F

from fairseq_posenc.core.transformer import Decoder, Encoder
from fairseq_posenc.plugin.checkpoint.state_dict import SENTENCE_ORDER
from fairseq_posenc.plugin.models.building import build, dictionary_of

SIZES = dict(encoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=16, encoder_attention_heads=2, max_positions=17)
FAMILIES = {
    "roberta_rope": {},
    "roberta_none": {},
    "albert_tisa": {"embedding_size": 8},
    "modernbert_rope": {},
    "roberta_deberta_tiny": {"mask_decoder_steps": 2},
}
ENDS = [0, 5, 12, 14]  # of the documents in a row


def make_model(arch, **options):
    torch.manual_seed(0)
    given = {"_name": arch, **SIZES, "activation_fn": "gelu", "masked_next_token": True, **options}
    model = build(arch, OmegaConf.create(given), dictionary_of(20)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return model


def reading(model, document):
    """(n - 1, V): the scores of the tokens of one document but the first, each from the state of the token before it."""
    own, p = model.encoder.sentence_encoder, dict(model.encoder.lm_head.named_parameters())
    plain = Encoder(replace(own.config, masked_next_token=False)).double().eval()
    plain.load_state_dict(own.state_dict())
    states = plain(document[None], decode_masks=True).last_hidden_state[0]
    rows = []
    for place in range(1, len(document)):
        inner = F.gelu(p["dense.weight"] @ states[place - 1] + p.get("dense.bias", 0.0))
        inner = (inner - inner.mean()) / (inner.var(unbiased=False) + own.config.layer_norm_eps).sqrt()
        inner = inner * p["layer_norm.weight"] + p.get("layer_norm.bias", 0.0)
        rows.append(p["weight"] @ inner + p["bias"])
    return torch.stack(rows)


@pytest.mark.parametrize("arch", FAMILIES)
def test_scores_are_of_the_state_one_place_to_the_left(arch):
    """In rows that are padded on either side, and of documents; at all places, at masked ones, and at listed ones."""
    model = make_model(arch, **FAMILIES[arch])
    row = torch.randint(4, 20, (14,), generator=torch.Generator().manual_seed(1))
    padding = torch.ones(3, dtype=torch.int64)
    rows = torch.stack([torch.cat([row, padding]), torch.cat([padding, row])])
    expected = reading(model, row)
    found = model(rows)[0]
    torch.testing.assert_close(found[0, 1:14], expected)
    torch.testing.assert_close(found[1, 4:], expected)
    masked = torch.zeros_like(rows, dtype=torch.bool)
    masked[0, [3, 7]] = True
    torch.testing.assert_close(model(rows, masked_tokens=masked)[0], expected[[2, 6]])

    starts = [start for start, end in itertools.pairwise(ENDS) for _ in range(start, end)]
    mask = {"documents": torch.tensor([starts])}
    packed = model(row[None], mask=mask)[0][0]
    for start, end in itertools.pairwise(ENDS):
        torch.testing.assert_close(packed[start + 1 : end], reading(model, row[start:end]))
        others = row.clone()
        others[:start] = 4  # which the first token of a document depends on as little
        torch.testing.assert_close(model(others[None], mask=mask)[0][0, start:end], packed[start:end])
    read_at = torch.tensor([1, 13])
    torch.testing.assert_close(model(row[None], mask=mask, read_at=read_at)[0], packed[read_at])


def test_classes_and_states_are_of_the_tokens_themselves():
    """Of fine-tuning, of the order of sentences beside masked words, and of the states between the layers."""
    models = [make_model("roberta_rope", masked_next_token=shifts) for shifts in (True, False)]
    tokens = torch.tensor([[0, 5, 6, 7, 2]])
    for model in models:
        model.register_classification_head(SENTENCE_ORDER, num_classes=2)
        model.double().eval()
    models[1].load_state_dict(models[0].state_dict())
    shifted, plain = (model(tokens, also_classify=SENTENCE_ORDER, return_all_hiddens=True) for model in models)
    torch.testing.assert_close(shifted[0][:, 1:], plain[0][:, :-1])
    torch.testing.assert_close(shifted[1]["classes"], plain[1]["classes"])
    torch.testing.assert_close(shifted[1]["inner_states"], plain[1]["inner_states"])
    torch.testing.assert_close(*(model(tokens, features_only=True)[0] for model in models))


def test_a_decoder_has_no_masked_words():
    with pytest.raises(ValueError, match=r"masked_next_token.*a decoder has none"):
        Decoder("rope", vocab_size=9, layers=1, dim=8, ffn_dim=8, heads=1, masked_next_token=True)
