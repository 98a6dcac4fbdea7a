"""Against what other implementations gave: reference values in ../shared/golden, one file per peer."""

from __future__ import annotations

import math

import pytest
import torch
from attending import attend
from torch.nn import functional as F

from fairseq_posenc.core.attention import BACKENDS, Mask
from fairseq_posenc.core.attention.transform import transform
from fairseq_posenc.core.schemes import Positions, Settings
from fairseq_posenc.core.schemes.alibi import slopes
from fairseq_posenc.core.schemes.t5 import bucket
from fairseq_posenc.core.schemes.tisa import scoring_function
from fairseq_posenc.core.terms import Window
from fairseq_posenc.core.transformer import Encoder, EncoderConfig

from .peers import (
    HEAD_DIM,
    HEADS,
    LENGTHS,
    MAX_POSITIONS,
    Attention,
    Tensors,
    assert_close,
    below,
    bias,
    golden,
    make,
    terms,
)

lengths = pytest.mark.parametrize("n", LENGTHS)
DIM = HEADS * HEAD_DIM


@lengths
@pytest.mark.parametrize("case", ["H4S1", "H4S3", "H4S5", "H12S1", "H12S3", "H12S5"])
def test_tisa(case: str, n: int) -> None:
    """The authors' code reads f at i - j - 1; the paper, and we, at j - i."""
    peer = below(golden("tisa"), f"{case}.")
    a, b, c = (peer[f"kernel_{name}"].T.contiguous() for name in ("amplitudes", "sharpness", "offsets"))
    heads, kernels = a.shape
    values = {"tisa.amplitude": a[None], "tisa.sharpness": b[None], "tisa.offset": c[None]}
    ours = bias(make("tisa", values, heads=heads, tisa_kernels=kernels), n)
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    assert_close(ours, peer[f"n{n}.scores"][:, j - i + n], 1e-12)
    assert_close(scoring_function(a, b, c, (i - j - 1).flatten()).view(heads, n, n), peer[f"n{n}.bias"], 1e-12)


def tupe(peer: Tensors, relative: bool, **options: int) -> Positions:
    """TUPE's code takes θ from rows of its tables: rows 0 and 1 of the absolute one, two more buckets of the relative one."""
    weights = below(peer, "w.")
    table = weights["pos.weight"]
    values = {
        "untied.weight": table[1:],
        "untied.query_projection": weights["pos_q_linear.weight"].T[None, None],
        "untied.key_projection": weights["pos_k_linear.weight"].T[None, None],
        "untied.query_bias": weights["pos_q_linear.bias"],
        "untied.key_bias": weights["pos_k_linear.bias"],
        "untied.layer_norm.weight": weights["pos_ln.weight"],
        "untied.layer_norm.bias": weights["pos_ln.bias"],
    }
    if relative:
        p = F.layer_norm(table[:2], (DIM,), weights["pos_ln.weight"], weights["pos_ln.bias"])
        queries = F.linear(p, weights["pos_q_linear.weight"], weights["pos_q_linear.bias"]).view(2, HEADS, HEAD_DIM)
        keys = F.linear(p, weights["pos_k_linear.weight"], weights["pos_k_linear.bias"]).view(2, HEADS, HEAD_DIM)
        theta = (queries * keys).sum(-1).T / math.sqrt(2 * HEAD_DIM)  # (H, 2)
        buckets = weights["relative_attention_bias.weight"]
        count = len(buckets) - 1
        values["t5.weight"] = buckets[:count].T[None]
        theta = theta + buckets[[count // 2, count]].T
        return make("untied+t5+reset", values | {"reset.cls": theta[None]}, untied_theta="scalars", **options)
    return make("untied+reset", values | {"untied.cls": table[:2]}, **options)


def assert_tupe(peer: Tensors, positions: Positions, n: int, norm_before: bool) -> None:
    own, weights = below(peer, f"n{n}."), below(peer, "w.layers.0.self_attn.")
    assert_close(bias(positions, n), own["pos_bias"], 1e-10)
    attention = Attention.packed(weights["in_proj_weight"], weights["in_proj_bias"])
    x = own["layer0_input_TBC"].transpose(0, 1)
    if norm_before:
        norm = below(peer, "w.layers.0.self_attn_layer_norm.")
        x = F.layer_norm(x, (DIM,), norm["weight"], norm["bias"])
    z, p = attention(x, terms(positions, n), padding=own["tokens"] == 1)
    assert_close(p, own["layer0_logits"].softmax(-1), 1e-10)
    out = F.linear(z, weights["out_proj.weight"], weights["out_proj.bias"])
    assert_close(out.transpose(0, 1), own["layer0_attn_out_TBC"], 1e-10)


@lengths
@pytest.mark.parametrize("variant", ["post", "pre", "post_embln_gelu"])
def test_tupe_a(variant: str, n: int) -> None:
    peer = below(golden("tupe_a"), f"{variant}.")
    assert_tupe(peer, tupe(peer, relative=False), n, norm_before=variant == "pre")


@lengths
@pytest.mark.parametrize(
    ("variant", "options"),
    [("post", {}), ("pre", {}), ("post_embln_gelu", {}), ("post_bins8", {"t5_buckets": 8, "t5_max_distance": 20})],
    ids=["post", "pre", "post_embln_gelu", "post_bins8"],
)
def test_tupe_r(variant: str, options: dict[str, int], n: int) -> None:
    peer = below(golden("tupe_r"), f"{variant}.")
    assert_tupe(peer, tupe(peer, relative=True, **options), n, norm_before=variant == "pre")


@pytest.mark.parametrize("variant", ["post", "pre"])
@pytest.mark.parametrize("expression", ["untied+reset", "untied+t5+reset"])
def test_a_whole_tupe_encoder(expression: str, variant: str) -> None:
    peer, relative = below(golden("tupe_r" if "t5" in expression else "tupe_a"), f"{variant}."), "t5" in expression
    before = variant == "pre"
    config = EncoderConfig(
        vocab_size=101,
        layers=2,
        dim=DIM,
        ffn_dim=2 * DIM,
        heads=HEADS,
        max_positions=MAX_POSITIONS,
        positions=expression,
        position_options={"untied_theta": "scalars"} if relative else {},
        activation="relu",
        normalize_before=before,
        layernorm_embedding=before,
    )
    encoder = Encoder(config).double().eval()
    theirs = {
        name.replace("emb_out_layer_norm", "layer_norm").replace("emb_layer_norm", "layernorm_embedding"): value
        for name, value in below(peer, "w.").items()
        if not name.startswith(("pos", "relative"))
    }
    for name in [name for name in theirs if ".in_proj_" in name]:
        prefix, kind = name.split("in_proj_")
        theirs |= {f"{prefix}{p}_proj.{kind}": rows for p, rows in zip("qkv", theirs.pop(name).chunk(3), strict=True)}
    own = {f"positions.{name}": value for name, value in tupe(peer, relative).state_dict().items()}
    encoder.load_state_dict({**theirs, **own})
    for n in LENGTHS:
        expected = below(peer, f"n{n}.")
        real = expected["tokens"] != 1
        with torch.no_grad():
            assert_close(encoder(expected["tokens"]).last_hidden_state[real], expected["encoder_out_BTC"][real], 1e-10)


@lengths
@pytest.mark.parametrize(
    ("file", "scheme", "name", "options"),
    [("shaw_key", "shaw", "keys", {"shaw_terms": "keys"}), ("m4", "m4", "weight", {})],
    ids=["relative_key", "relative_key_query"],
)
def test_hugging_face_relative_keys(file: str, scheme: str, name: str, options: dict[str, str], n: int) -> None:
    """Hugging Face counts offsets as i - j, so its table is ours read backwards."""
    peer = golden(file)
    weights = below(peer, "w.encoder.layer.0.attention.self.")
    table = weights["distance_embedding.weight"].flip(0)[None, None]
    attention = Attention.of(weights, "query", "key", "value")
    assert_attention(below(peer, f"n{n}."), attention, make(scheme, {f"{scheme}.{name}": table}, **options), 1e-10)


def assert_attention(own: Tensors, attention: Attention, positions: Positions, tolerance: float) -> None:
    """A peer's attention over its inputs, with and without a mask of keys."""
    x, padding = own["x"], own["pad_mask"] == 0
    layer_terms = terms(positions, x.shape[1])
    z, p = attention(x, layer_terms)
    assert_close(p, own["logits_nomask"].softmax(-1), tolerance)
    assert_close(z, own["context_nomask"], tolerance)
    z, p = attention(x, layer_terms, padding)
    visible = ~padding  # what a padded query sees is no matter; some peers give zeros
    assert_close(p.transpose(1, 2)[visible], own["probs"].transpose(1, 2)[visible], tolerance)
    assert_close(z[visible], own["context"][visible], tolerance)


@pytest.mark.parametrize(("clip", "n"), [(3, 13), (3, 40), (8, 40)])
def test_shaw_with_values(clip: int, n: int) -> None:
    peer = below(golden("shaw_port"), f"k{clip}.n{n}.")
    values = {"shaw.keys": peer["w_key"][None, None], "shaw.values": peer["w_value"][None, None]}
    positions = make("shaw", values, max_relative_position=clip)
    layer_terms = terms(positions, n)
    for suffix, mask in (("_nomask", Mask()), ("", Mask(peer["pad_mask"].eq(0)))):
        z, p = attend(BACKENDS["eager"], layer_terms, peer["q"], peer["k"], peer["v"], mask, weights=True)
        assert_close(z, peer[f"context{suffix}"], 1e-12)
        assert_close(p, peer[f"probs{suffix}"], 1e-12)


@pytest.mark.parametrize("dim", [32, 33])
def test_fairseq_sinusoids(dim: int) -> None:
    peer = golden("sinusoidal")
    positions = Positions("sinusoidal", Settings(1, 1, dim, 64), {"sinusoidal_layout": "fairseq"})
    for n in LENGTHS:
        for side in ("left", "right"):
            own = below(peer, f"d{dim}.n{n}.{side}.")
            real = own["tokens"] != 1
            index = (real.cumsum(1) - 1).clamp(min=0)
            found = positions.embed(Window(n, positions=index, span=n), None) * math.sqrt(dim)
            assert_close(found[real], own["emb"][real], 1e-5)


def test_vaswani_sinusoids() -> None:
    table = golden("sinusoidal")["formula.d32.table"]
    positions = Positions("sinusoidal", Settings(1, 1, 32, 64))
    found = positions.embed(Window(len(table)), None) * math.sqrt(32)
    assert_close(found[0], table, 1e-12)


@pytest.mark.parametrize("heads", [4, 8, 12, 16])
def test_alibi(heads: int) -> None:
    """12 heads: the authors take every other slope of 16 for those beyond 8."""
    peer = golden("alibi")
    assert_close(slopes(heads), peer[f"H{heads}.slopes64"], 1e-15)
    positions = make("alibi", {}, heads=heads)
    for n in LENGTHS:
        assert_close(bias(positions, n), peer[f"xt.H{heads}.n{n}.bias_symmetric"], 1e-6)
        causal = peer[f"H{heads}.n{n}.causal_mask_plus_bias"].softmax(-1)
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        assert_close(bias(positions, n, causal=True).masked_fill(hidden, -torch.inf).softmax(-1), causal, 1e-6)


@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (32, 64), (16, 20), (8, 16)])
def test_t5_buckets(buckets: int, distance: int) -> None:
    peer = golden("t5_bias")
    offsets = peer["buckets.relative_position"]
    assert torch.equal(bucket(offsets, buckets, distance, causal=False), peer[f"buckets.bi.{buckets}.{distance}"])
    if f"buckets.causal.{buckets}.{distance}" in peer:
        assert torch.equal(bucket(offsets, buckets, distance, causal=True), peer[f"buckets.causal.{buckets}.{distance}"])


@lengths
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (16, 20)])
@pytest.mark.parametrize("side", ["enc", "dec"])
def test_t5_attention(side: str, buckets: int, distance: int, n: int) -> None:
    """T5 does not scale q·k: a scale factor of 1/d takes ours away."""
    peer, causal = below(golden("t5_bias"), f"b{buckets}d{distance}."), side == "dec"
    weights = below(peer, "dec_attn.w." if causal else "enc.w.encoder.block.0.layer.0.SelfAttention.")
    values = {"t5.weight": weights["relative_attention_bias.weight"].T[None]}
    positions = make("t5", values, t5_buckets=buckets, t5_max_distance=distance, position_scale_factor=1 / HEAD_DIM)
    own = below(peer, f"n{n}.")
    assert_close(bias(positions, n, causal), own[f"{side}.bias"], 1e-12)
    attention = Attention.of(weights, "q", "k", "v")
    padding = None if causal else own["pad_mask"] == 0
    z, p = attention(own["x"], terms(positions, n, causal=causal), padding, causal)
    suffix = "_causal" if causal else ""
    assert_close(p, own[f"{side}.probs{suffix}"], 1e-5)
    assert_close(F.linear(z, weights["o.weight"].double()), own[f"{side}.attn_out{suffix}"], 1e-5)


@lengths
@pytest.mark.parametrize(("layout", "rotated"), [("interleaved", "qk"), ("half", "half")])
def test_rotations(layout: str, rotated: str, n: int) -> None:
    peer = golden("rope")
    rope = terms(make("rope", {}, rope_layout=layout), n)
    q, k = transform(peer[f"qk.n{n}.q"], peer[f"qk.n{n}.k"], rope)
    tolerance = 1e-10 if layout == "half" else 2e-6  # RoFormer's table is rounded to float32
    assert_close(q, peer[f"{rotated}.n{n}.q_rot"], tolerance)
    assert_close(k, peer[f"{rotated}.n{n}.k_rot"], tolerance)


@lengths
def test_roformer_attention(n: int) -> None:
    peer = golden("rope")
    weights, own = below(peer, "qk.w.encoder.layer.0.attention.self."), below(peer, f"qk.n{n}.")
    attention, positions = Attention.of(weights, "query", "key", "value"), make("rope", {})
    assert_attention(own, attention, positions, 2e-6)
    _, p = attention(own["x"], terms(positions, n))
    assert_close(p, own["logits_nomask_exact64"].softmax(-1), 1e-10)


@lengths
@pytest.mark.parametrize(("case", "clip"), [("k8_both", 8), ("kfull_both", 48)])
def test_deberta_v1(case: str, clip: int, n: int) -> None:
    peer = below(golden("deberta_v1"), f"{case}.")
    weights = below(peer, "w.encoder.layer.0.attention.self.")
    values = {
        "deberta.weight": peer["w.encoder.rel_embeddings.weight"][None, None],
        "deberta.key_projection": weights["pos_proj.weight"].T[None, None],
        "deberta.query_projection": weights["pos_q_proj.weight"].T[None, None],
        "deberta.query_bias": weights["pos_q_proj.bias"][None, None],
    }
    positions = make("deberta", values, deberta_projections="model", deberta_indexing="original", max_relative_position=clip)
    assert_attention(below(peer, f"n{n}."), Attention.by_head(weights), positions, 1e-6)


@lengths
@pytest.mark.parametrize("file", ["deberta_v2", "deberta_official"])
def test_deberta_v2_without_buckets(file: str, n: int) -> None:
    """v2 has a bias in its projection of key positions too: it adds the same to a whole row, which the softmax removes."""
    peer = below(golden(file), "nobuckets_untied.")
    official = file == "deberta_official"
    weights = below(peer, "w." if official else "w.encoder.layer.0.attention.self.")
    table = peer["rel_embeddings" if official else "w.encoder.rel_embeddings.weight"]
    values = {
        "deberta.weight": table[None, None],
        "deberta.key_projection": weights["pos_key_proj.weight"].T[None, None],
        "deberta.query_projection": weights["pos_query_proj.weight"].T[None, None],
        "deberta.query_bias": weights["pos_query_proj.bias"][None, None],
    }
    positions = make("deberta", values, deberta_projections="model", deberta_indexing="original", max_relative_position=10)
    own = below(peer, f"n{n}.")
    if official:
        own["logits_nomask"] = own["logits_nomask_minus_rowmax"]
    attention = Attention.of(weights, "query_proj", "key_proj", "value_proj")
    assert_attention(own, attention, positions, 1e-5 if official else 1e-6)


@lengths
def test_transformer_xl(n: int) -> None:
    """Causal, as the peer is. Its sinusoids are in halves, ours interleaved: the rows of W_R are in another order."""
    peer = golden("transformer_xl")
    halves = peer["w.r_net.weight"].T.unflatten(0, (2, DIM // 2))  # (sine or cosine, frequency, out)
    values = {
        "transformer_xl.content_bias": peer["r_w_bias"][None],
        "transformer_xl.position_bias": peer["r_r_bias"][None],
        "transformer_xl.projection": halves.transpose(0, 1).flatten(0, 1)[None, None],
    }
    positions = make("transformer_xl", values)
    own = below(peer, f"n{n}.")
    attention = Attention.packed(peer["w.qkv_net.weight"])
    x = own["x_TBC"].transpose(0, 1)
    z, p = attention(x, terms(positions, n, causal=True), causal=True)
    assert_close(p, own["probs_ijbh_causal"].permute(2, 3, 0, 1), 1e-5)
    out = x + F.linear(z, peer["w.o_net.weight"])
    out = F.layer_norm(out, (DIM,), peer["w.layer_norm.weight"], peer["w.layer_norm.bias"])
    assert_close(out.transpose(0, 1), own["out_after_residual_LN_TBC"], 1e-5)
