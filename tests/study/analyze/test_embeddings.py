"""Position vectors and their correlations, against the equations and the attention that the model really has."""

import math

import pytest
import torch
from encoders import N, encoder_of
from torch.nn import functional as F

from fairseq_posenc.core.terms import Window
from fairseq_posenc.study.analyze.embeddings import (
    average_word,
    correlations,
    inseparable,
    position_vectors,
    positional_scores,
    rank,
    vector_count,
)
from fairseq_posenc.study.analyze.trace import trace

SEPARABLE = ["absolute", "sinusoidal", "sentence_absolute", "absolute+tisa", "untied+t5+reset", "m4+reset", "shaw", "deberta"]
SEPARABLE += ["absolute_untied_projection", "transformer_xl", "none", "floater"]


def test_position_vectors_are_those_that_are_added():
    encoder = encoder_of("absolute")
    assert torch.equal(position_vectors(encoder, N - 2), encoder.positions.absolute.weight[: N - 2])
    assert position_vectors(encoder_of("t5"), N) is None


def test_rank_counts_dimensions():
    torch.manual_seed(0)
    left, right = torch.linalg.qr(torch.randn(9, 3))[0], torch.linalg.qr(torch.randn(9, 3))[0]
    found = rank(left @ torch.diag(torch.tensor([3.0, 2.0, 1e-2])) @ right.T)
    assert found == {"full": 3, "effective": 2}


@pytest.mark.parametrize("normalize_before", [False, True])
def test_positional_scores_are_those_of_average_words(normalize_before):
    """Eq. 9-12 from the parameters: ((w̄ + p) W_Q + b_Q)·((w̄ + p) W_K + b_K) / √d through LayerNorm, up to a constant."""
    encoder = encoder_of("absolute", normalize_before=normalize_before)
    attention, first = encoder.layers[0].self_attn, encoder.layers[0]
    words = torch.cat([encoder.embed_tokens.weight[:1], encoder.embed_tokens.weight[2:]]).mean(0)  # 1 is padding
    assert torch.allclose(average_word(encoder), words)
    x = words + encoder.positions.absolute.weight
    norms = [encoder.layernorm_embedding, *([first.self_attn_layer_norm] if normalize_before else [])]
    for norm in norms:
        x = F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
    found = positional_scores(encoder, N)
    for head in range(2):
        rows = slice(4 * head, 4 * head + 4)
        q = x @ attention.q_proj.weight[rows].T + attention.q_proj.bias[rows]
        k = x @ attention.k_proj.weight[rows].T + attention.k_proj.bias[rows]
        difference = q @ k.T / math.sqrt(4) - found[head]
        assert torch.allclose(difference, difference.mean().expand_as(difference))
    assert positional_scores(encoder_of("tisa"), N) is None


@pytest.mark.parametrize("positions", SEPARABLE)
def test_the_four_correlations_add_up_to_the_models_scores(positions):
    encoder = encoder_of(positions)
    tokens = torch.randint(3, 30, (2, N))
    assert inseparable(encoder) is None
    parts = correlations(encoder, tokens)
    scores = sum(parts.values())
    expected = trace(encoder, tokens, output_attentions=True).attentions[0]
    assert torch.allclose(scores.softmax(-1), expected)
    if positions in ("untied+t5+reset", "none"):  # words and positions do not meet there
        assert not parts["word to position"].any()
        assert not parts["position to word"].any()


def test_positions_of_floater_are_no_words():
    """Word to word is s q·k of the words with the average of FLOATER's positions."""
    encoder = encoder_of("floater")
    tokens, attention = torch.randint(3, 30, (2, N)), encoder.layers[0].self_attn
    p = encoder.positions.terms(Window(N)).of(0, encoder.embed_tokens(tokens)).inputs[0]
    x = encoder.layernorm_embedding(encoder.embed_tokens(tokens)) + p.mean(1, keepdim=True)
    q, k = (projection(x).unflatten(-1, (2, 4)).transpose(1, 2) for projection in (attention.q_proj, attention.k_proj))
    assert torch.allclose(correlations(encoder, tokens)["word to word"], q @ k.mT / 2)


def test_positional_scores_have_the_shifts_of_queries():
    """transformer_xl adds u to each query: ((w̄ + p) W_Q + u)·((w̄ + p) W_K) / √d, up to a constant."""
    encoder = encoder_of("absolute+transformer_xl")
    layer = trace(encoder, torch.full((1, N), 3), inputs_embeds=average_word(encoder).expand(1, N, -1)).layers[0]
    q = layer.queries[0] + encoder.positions.transformer_xl.content_bias[0][:, None]
    difference = q @ layer.keys[0].mT / 2 - positional_scores(encoder, N)
    assert torch.allclose(difference, difference.mean((-2, -1), keepdim=True).expand_as(difference))


@pytest.mark.parametrize("positions", ["t5", "tisa", "alibi", "absolute"])
def test_the_terms_are_those_of_the_positions_in_evaluation(positions):
    encoder = encoder_of(positions, max_positions=128, position_sampling="random:128")
    tokens = torch.randint(3, 30, (2, 16))
    seen = trace(encoder, tokens, output_attentions=True)
    for layer, attention in zip(seen.layers, seen.attentions, strict=True):
        assert torch.allclose(layer.centred_scores.softmax(-1), attention)
    assert torch.allclose(sum(correlations(encoder, tokens).values()).softmax(-1), seen.attentions[0])
    if positions == "absolute":
        assert torch.equal(position_vectors(encoder, 16), encoder.positions.absolute.weight[::8])


def test_position_vectors_of_a_table_that_sequences_cannot_use_up():
    encoder = encoder_of("absolute", max_positions=20, position_sampling="random:9")
    assert torch.equal(position_vectors(encoder, vector_count(encoder, N)), encoder.positions.absolute.weight[:9])
    assert vector_count(encoder_of("t5", position_sampling="random:9"), N) == N


@pytest.mark.parametrize("positions", ["m4m", "m2", "rope | none", "synthesizer_random", "cable"])
def test_what_is_no_sum_says_why(positions):
    assert inseparable(encoder_of(positions))
    embedded = encoder_of(" | ".join(f"absolute+{part}" if part != "none" else "absolute" for part in positions.split(" | ")))
    assert positional_scores(embedded, N) is None
