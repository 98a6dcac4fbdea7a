"""Against other implementations: by what they gave once, kept in ``golden/``, and by what those installed here give now."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch

from fairseq_posenc.core.attention.transform import transform
from fairseq_posenc.core.schemes import Positions, Settings
from fairseq_posenc.core.schemes.alibi import slopes
from fairseq_posenc.core.schemes.deberta import log_bucket
from fairseq_posenc.core.terms import Window
from fairseq_posenc.core.transformer import Encoder, EncoderConfig

from .make_golden import CLIP, DIM, GOLDEN, LAYERS, MAX_POSITIONS, PADDING, PEERS, SYMBOLS, library, values
from .peers import HEAD_DIM, HEADS, Attention, Tensors, assert_close, below, bias, make, terms

load_file = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").load_file

Peer = Callable[[str], Tensors]


@pytest.fixture(params=["stored", "installed"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """``peer(name)``: the numbers of one of ``PEERS``, of one layer from its file, of two from the library."""

    def peer(name: str) -> Tensors:
        if request.param == "stored":
            return {key: value.double() if value.is_floating_point() else value for key, value in _stored(name).items()}
        if find_spec(library(name)) is None:
            pytest.skip(f"{library(name)} is not installed")
        return values(name, layers=2)

    return peer


def _stored(name: str) -> Tensors:
    return load_file(GOLDEN / f"{name}.safetensors")


def layers_of(found: Tensors) -> list[Tensors]:
    return [own for number in range(LAYERS) if (own := below(found, f"layer{number}."))]


def assert_attention(found: Tensors, attentions: list[Attention], positions: Positions, tolerance: float) -> None:
    """Every layer's attention weights, where queries are no padding: what those see is no matter."""
    padding = found.get("padding")
    for number, (own, attention) in enumerate(zip(layers_of(found), attentions, strict=True)):
        _, p = attention(own["x"], terms(positions, own["x"].shape[1], number), padding)
        seen = slice(None) if padding is None else ~padding
        assert_close(p.transpose(1, 2)[seen], own["p"].transpose(1, 2)[seen], tolerance)


@pytest.mark.parametrize(("name", "buckets", "distance"), [("t5", 32, 128), ("t5_few_buckets", 8, 20)])
def test_t5(peer: Peer, name: str, buckets: int, distance: int) -> None:
    """T5 does not scale q·k: a scale factor of 1/d takes ours away."""
    found = peer(name)
    table = found["layer0.relative_attention_bias.weight"].T[None]
    options = {"t5_buckets": buckets, "t5_max_distance": distance, "position_scale_factor": 1 / HEAD_DIM}
    positions = make("t5", {"t5.weight": table}, layers=len(layers_of(found)), **options)
    assert_close(bias(positions, found["bias"].shape[1]), found["bias"], 1e-12)
    attentions = [Attention.of(own, "q", "k", "v") for own in layers_of(found)]
    assert_attention(found, attentions, positions, 1e-5)  # a softmax in float32


def test_roformer(peer: Peer) -> None:
    found = peer("roformer")
    attentions = [Attention.of(own, "query", "key", "value") for own in layers_of(found)]
    assert_attention(found, attentions, make("rope", {}), 2e-6)


def test_gpt_neox(peer: Peer) -> None:
    found = peer("gpt_neox")
    q, k = transform(found["q"], found["k"], terms(make("rope", {}, rope_layout="half"), found["q"].shape[2]))
    assert_close(q, found["rotated_q"], 2e-6)  # a table in float32
    assert_close(k, found["rotated_k"], 2e-6)


def test_deberta_v1(peer: Peer) -> None:
    found = peer("deberta")
    layers = layers_of(found)
    parameters = {
        "deberta.weight": found["table"][None, None],
        "deberta.key_projection": torch.stack([own["pos_proj.weight"].T[None] for own in layers]),
        "deberta.query_projection": torch.stack([own["pos_q_proj.weight"].T[None] for own in layers]),
        "deberta.query_bias": torch.stack([own["pos_q_proj.bias"][None] for own in layers]),
    }
    options = {"deberta_projections": "model", "deberta_indexing": "original", "max_relative_position": 8}
    positions = make("deberta", parameters, layers=len(layers), **options)
    assert_attention(found, [Attention.by_head(own) for own in layers], positions, 1e-6)


def test_deberta_v2_sharing_content_projections(peer: Peer) -> None:
    found = peer("deberta_v2")
    parameters = {
        "deberta.weight": found["table"][None, None],
        **{f"deberta.{name}": value for name, value in found.items() if name.startswith("layer_norm.")},
    }
    options = {"deberta_projections": "content", "deberta_indexing": "original", "deberta_norm_eps": 1e-5}
    options["max_relative_position"] = 8
    layers = layers_of(found)
    positions = make("deberta", parameters, layers=len(layers), **options)
    attentions = [Attention.of(own, "query_proj", "key_proj", "value_proj") for own in layers]
    assert_attention(found, attentions, positions, 1e-6)


def test_a_whole_deberta_with_logarithmic_buckets(peer: Peer) -> None:
    """States, and the gradients of a linear function of them."""
    found = peer("deberta_v2_buckets")
    state = {name: value for name, value in found.items() if name.startswith(("embeddings.", "encoder."))}
    parameters = {_renamed(name, DEBERTA): value for name, value in state.items()}
    table = parameters["positions.deberta.weight"]
    parameters["positions.deberta.weight"] = table[None, None]
    options = {"deberta_projections": "content", "deberta_indexing": "original"}
    options |= {"deberta_buckets": 6, "max_relative_position": 10}
    layers = sum(name.endswith("query_proj.bias") for name in state)
    sizes = {"layers": layers, "dim": DIM, "ffn_dim": DIM, "heads": HEADS, "max_positions": MAX_POSITIONS, "padding_idx": PADDING}
    config = EncoderConfig(SYMBOLS, **sizes, positions="deberta", position_options=options, layer_norm_eps=1e-7)
    encoder = Encoder(config).double().eval()
    encoder.load_state_dict(parameters)
    states = encoder(found["tokens"]).last_hidden_state
    real = found["tokens"].ne(PADDING)
    assert_close(states[real], found["states"][real], 1e-6)
    (states * found["cotangent"]).sum().backward()
    own = dict(encoder.named_parameters())
    gradients = below(found, "gradient of ")
    assert len(gradients) == 3 + 2 * layers
    for name, value in gradients.items():
        assert_close(own[_renamed(name, DEBERTA)].grad.view_as(value), value, 1e-5)


def test_log_n_of_ministral() -> None:
    """Its positions count from 0; in Llama 4, as here, from 1."""
    pytest.importorskip("transformers")
    from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

    positions = make("rope", {}, position_log_n="floor", log_n_beta=0.3, log_n_length=5)
    *_, scale = terms(positions, 23, causal=True).transforms
    assert_close(scale.queries, get_llama_4_attn_scale(torch.arange(1, 24)[None], 0.3, 5).double(), 1e-7)


@pytest.mark.parametrize(("buckets", "distance"), [(256, 512), (32, 128), (64, 1024), (6, 10), (7, 12)])
def test_logarithmic_buckets_of_deberta(buckets: int, distance: int) -> None:
    """Beyond the distance all are at the end of the table."""
    pytest.importorskip("transformers")
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    offsets = torch.arange(-3 * distance, 3 * distance + 1)
    found, expected = log_bucket(offsets, buckets, distance), make_log_bucket_position(offsets, buckets, distance).long()
    assert torch.equal(found.clamp(-buckets, buckets), expected.clamp(-buckets, buckets))


def test_shaw(peer: Peer) -> None:
    found = peer("wav2vec2_bert")
    table = found["distance_embedding.weight"][None, None]
    positions = make("shaw", {"shaw.keys": table}, shaw_terms="keys", max_relative_position=CLIP)
    attention = Attention.of(found, "linear_q", "linear_k", "linear_v")
    z, p = attention(found["x"], terms(positions, found["x"].shape[1]))
    assert_close(p, found["p"], 1e-10)
    assert_close(torch.nn.functional.linear(z, found["linear_out.weight"], found["linear_out.bias"]), found["z"], 1e-10)


def test_transformer_xl(peer: Peer) -> None:
    """XLNet's sinusoids are in halves, ours interleaved: the rows of W_R are in another order."""
    found = peer("xlnet")
    (own,) = layers_of(found)
    parameters = {
        "transformer_xl.content_bias": own["r_w_bias"][None],
        "transformer_xl.position_bias": own["r_r_bias"][None],
        "transformer_xl.projection": own["r"].flatten(1).unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)[None, None],
    }
    weights = {f"{name}.weight": own[name].flatten(1).T for name in "qkv"}
    assert_attention(found, [Attention.of(weights, *"qkv")], make("transformer_xl", parameters), 1e-5)  # a table in float32


@pytest.mark.parametrize("heads", [4, 8, 12, 16])
def test_alibi(peer: Peer, heads: int) -> None:
    assert_close(slopes(heads), peer("bloom")[f"slopes{heads}"], 1e-7)  # in float32


def test_pope(peer: Peer) -> None:
    """The peer keeps its angles within -2π … 0."""
    found = peer("x_transformers_pope")
    positions = make("pope", {"pope.bias": found["bias"].transpose(0, 1).clamp(-2 * torch.pi, 0)})
    q, k = transform(found["q"], found["k"], terms(positions, found["q"].shape[2]))
    assert_close(q @ k.transpose(-1, -2), found["products"], 1e-5)  # in float32


def test_the_forgetting_transformers_gates(peer: Peer) -> None:
    """Its gates are σ(w·x + b), and CABLE's steps softplus(w·x + b) = -log σ(-w·x - b)."""
    found = peer("x_transformers_forgetting")
    weight, b = (found[f"to_forget_gates.0.{name}"].unflatten(0, (2, HEADS)).transpose(0, 1) for name in ("weight", "bias"))
    positions = make("cable", {"cable.weight": -weight[None], "cable.bias": -b[None]}, cable_gates=2)
    (ours,) = positions.terms(Window(found["x"].shape[1])).of(0, found["x"]).biases
    assert_close(ours, found["bias"], 1e-10)


def test_inklings_relative_logits(peer: Peer) -> None:
    """Its curves are of the distance to keys before the query, from 0 on; ours are 0 for the others."""
    found = peer("inkling")
    rank, extent = found["curves"].shape
    curves = torch.cat([found["curves"].T.flip(0), torch.zeros(extent - 1, rank)])
    projection = found["projection"].unflatten(0, (HEADS, rank)).mT
    values = {"relative_logits.weight": curves[None], "relative_logits.projection": projection[None]}
    options = {"relative_logits_input": "hidden", "relative_logits_rank": rank, "relative_logits_max_distance": extent}
    positions = make("relative_logits", values, **options)
    (ours,) = positions.terms(Window(found["x"].shape[1])).of(0, found["x"]).biases
    assert_close(ours, found["bias"], 1e-12)


def test_inklings_convolution_of_keys(peer: Peer) -> None:
    """It adds the convolution to the keys themselves, and its last weight is that of the token itself."""
    found = peer("inkling")
    weight = found["weight"][:, 0].flip(1).unflatten(0, (HEADS, HEAD_DIM)).mT.clone()
    weight[:, 0] += 1
    positions = make("key_convolution", {"key_convolution.weight": weight[None]}, key_convolution_width=weight.shape[1])
    k, expected = (found[name].unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for name in ("k", "convolved"))
    window = Window(k.shape[2], padding=found["padding"], causal=True)
    _, ours = transform(k, k, positions.terms(window).of(0, found["k"]))
    tokens = ~found["padding"]
    assert_close(ours.transpose(1, 2)[tokens], expected.transpose(1, 2)[tokens], 1e-5)  # in float32


def test_fairseq_sinusoids(peer: Peer) -> None:
    found = peer("fairseq_sinusoidal")
    real = found["tokens"].ne(PADDING)
    positions = Positions("sinusoidal", Settings(1, 1, DIM, MAX_POSITIONS), {"sinusoidal_layout": "fairseq"})
    index = (real.cumsum(1) - 1).clamp(min=0)
    ours = positions.embed(Window(real.shape[1], positions=index, span=real.shape[1]), None) * DIM**0.5
    assert_close(ours.double()[real], found["embedding"].double()[real], 1e-5)


# A BERT under our names; the first of its types of tokens is in the word embeddings here.
BERT = {
    "encoder.layer.": "layers.",
    "attention.self.query.": "self_attn.q_proj.",
    "attention.self.key.": "self_attn.k_proj.",
    "attention.self.value.": "self_attn.v_proj.",
    "attention.output.dense.": "self_attn.out_proj.",
    "attention.output.LayerNorm.": "self_attn_layer_norm.",
    "intermediate.dense.": "fc1.",
    "output.dense.": "fc2.",
    "output.LayerNorm.": "final_layer_norm.",
    "embeddings.LayerNorm.": "layernorm_embedding.",
    "embeddings.position_embeddings.": "positions.absolute.",
    "embeddings.word_embeddings.": "embed_tokens.",
}


DEBERTA = {
    "rel_embeddings.": "positions.deberta.",
    "attention.self.query_proj.": "self_attn.q_proj.",
    "attention.self.key_proj.": "self_attn.k_proj.",
    "attention.self.value_proj.": "self_attn.v_proj.",
    **BERT,
    "encoder.LayerNorm.": "positions.deberta.layer_norm.",
    "encoder.positions.": "positions.",
}


def _renamed(name: str, names: dict[str, str]) -> str:
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name


def assert_encoder(found: Tensors, parameters: Tensors, **options: float) -> None:
    """The last states of a whole encoder with absolute positions."""
    sizes = {"layers": LAYERS, "dim": DIM, "ffn_dim": DIM, "heads": HEADS, "max_positions": MAX_POSITIONS}
    encoder = Encoder(EncoderConfig(len(parameters["embed_tokens.weight"]), **sizes, **options)).double().eval()
    encoder.load_state_dict(parameters)
    real = found["tokens"].ne(PADDING)
    with torch.no_grad():
        assert_close(encoder(found["tokens"]).last_hidden_state[real], found["states"][real], 1e-5)


def test_a_whole_bert(peer: Peer) -> None:
    found = peer("bert")
    kinds = found.pop("embeddings.token_type_embeddings.weight")
    parameters = {}
    for name, value in found.items():
        parameters[_renamed(name, BERT)] = value
    parameters["embed_tokens.weight"] = parameters["embed_tokens.weight"] + kinds[0]
    assert_encoder(found, {name: value for name, value in parameters.items() if name not in found}, layer_norm_eps=1e-12)


def test_a_whole_roberta_of_fairseq(peer: Peer) -> None:
    found = peer("fairseq_roberta")
    parameters = {name: value for name, value in found.items() if name not in ("tokens", "states")}
    parameters["positions.absolute.weight"] = parameters.pop("embed_positions.weight")[PADDING + 1 :]
    assert_encoder(found, parameters)


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_the_files_are_what_the_script_makes(name: str) -> None:
    pytest.importorskip(library(name))
    made = values(name, layers=1)
    stored = _stored(name)
    assert stored.keys() == made.keys()
    for key, value in made.items():
        assert_close(stored[key].double(), value.double(), 1e-6)


def test_the_files_are_few_and_small() -> None:
    files = [*GOLDEN.iterdir()]
    assert {file.stem for file in files} == PEERS.keys()
    assert sum(file.stat().st_size for file in files) < 350_000
