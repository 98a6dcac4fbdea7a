"""What installed libraries compute, from tiny random models in float64: kept in ``golden/``, one file per entry of ``PEERS``.

    python tests/core/conformance/make_golden.py [NAME ...]

rewrites the files, all or those named; each names the releases that made it in its metadata. They hold inputs, parameters and
results, all of them numbers that came out of a run. Parameters are rounded to what 16 bits can hold, and stored so.
"""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

GOLDEN = Path(__file__).parent / "golden"
HEADS, HEAD_DIM, LAYERS = 4, 8, 2
DIM, SYMBOLS, MAX_POSITIONS, PADDING = HEADS * HEAD_DIM, 30, 48, 1
LENGTHS = (12, 9)  # of the two sequences; the rest of the second is padding
CLIP = 3

Tensors = dict[str, Tensor]


@contextmanager
def float64() -> Iterator[None]:
    """transformers makes parts of a model in the default type and keeps them."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def tokens() -> Tensor:
    drawn = torch.randint(5, SYMBOLS, (len(LENGTHS), max(LENGTHS)), generator=torch.Generator().manual_seed(1))
    return drawn.masked_fill(torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS)[:, None], PADDING)


def randomise(model: nn.Module) -> nn.Module:
    """Every parameter that learns away from its initial value, so that no term is left unseen."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.double().parameters():
            if parameter.requires_grad:
                parameter.copy_((parameter + 0.3 * torch.randn(parameter.shape, generator=generator)).half())
    return model.eval().requires_grad_(False)


def config(name: str, layers: int = LAYERS, **options: object):
    import transformers

    sizes = dict(vocab_size=SYMBOLS, hidden_size=DIM, num_attention_heads=HEADS, num_hidden_layers=layers, intermediate_size=DIM)
    common = dict(pad_token_id=PADDING, attn_implementation="eager")
    if name not in ("XLNetConfig", "T5Config"):  # which have no maximum length
        common["max_position_embeddings"] = MAX_POSITIONS
    return getattr(transformers, name)(**{**sizes, **common, **options})


def run(model: nn.Module, modules: list[nn.Module], norms: list[nn.Module] | None = None) -> Tensors:
    """The input x of every layer's self-attention, its parameters, and the attention weights p, (batch, heads, queries, keys)."""
    ids = tokens()
    output = model(ids, attention_mask=ids.ne(PADDING).long(), output_hidden_states=True, output_attentions=True)
    found = {"padding": ids.eq(PADDING)}
    for number, module in enumerate(modules):
        x = output.hidden_states[number]
        own = {"x": norms[number](x) if norms else x, "p": output.attentions[number], **module.state_dict()}
        found |= {f"layer{number}.{name}": value for name, value in own.items()}
    return found


def bert(layers: int) -> Tensors:
    from transformers import BertModel

    model = randomise(BertModel(config("BertConfig"), add_pooling_layer=False))
    states = model(tokens(), attention_mask=tokens().ne(PADDING).long()).last_hidden_state
    return {"tokens": tokens(), "states": states, **model.state_dict()}


def t5(layers: int, buckets: int, distance: int) -> Tensors:
    from transformers import T5EncoderModel

    own = dict(d_model=DIM, d_kv=HEAD_DIM, d_ff=DIM)
    own |= dict(relative_attention_num_buckets=buckets, relative_attention_max_distance=distance)
    model = randomise(T5EncoderModel(config("T5Config", layers, **own)))
    blocks = [block.layer[0] for block in model.encoder.block]
    found = run(model, [block.SelfAttention for block in blocks], [block.layer_norm for block in blocks])
    return found | {"bias": blocks[0].SelfAttention.compute_bias(max(LENGTHS), max(LENGTHS))[0]}


def roformer(layers: int) -> Tensors:
    from transformers import RoFormerModel

    model = randomise(RoFormerModel(config("RoFormerConfig", layers)))
    return run(model, [layer.attention.self for layer in model.encoder.layer])


def gpt_neox(layers: int) -> Tensors:
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding, apply_rotary_pos_emb

    q, k = torch.randn(2, 1, HEADS, max(LENGTHS), HEAD_DIM, generator=torch.Generator().manual_seed(2)).half().double()
    own = config("GPTNeoXConfig", rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0})
    cos, sin = GPTNeoXRotaryEmbedding(own)(q, torch.arange(max(LENGTHS))[None])
    rotated = apply_rotary_pos_emb(q, k, cos, sin)
    return {"q": q, "k": k, "rotated_q": rotated[0], "rotated_k": rotated[1]}


def deberta(layers: int) -> Tensors:
    from transformers import DebertaModel

    own = dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=8, type_vocab_size=0)
    model = randomise(DebertaModel(config("DebertaConfig", layers, **own)))
    found = run(model, [layer.attention.self for layer in model.encoder.layer])
    return found | {"table": model.encoder.rel_embeddings.weight}


def deberta_v2(layers: int) -> Tensors:
    from transformers import DebertaV2Model

    own = dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=8, type_vocab_size=0)
    own |= dict(position_buckets=-1, share_att_key=True, norm_rel_ebd="layer_norm", layer_norm_eps=1e-5)
    model = randomise(DebertaV2Model(config("DebertaV2Config", layers, **own)))
    found = run(model, [layer.attention.self for layer in model.encoder.layer])
    norm = {f"layer_norm.{name}": value for name, value in model.encoder.LayerNorm.state_dict().items()}
    return found | {"table": model.encoder.rel_embeddings.weight, **norm}


def deberta_v2_buckets(layers: int) -> Tensors:
    """As v3 is configured, a whole model: offsets go beyond the buckets. And gradients of Σ cotangent · states."""
    from transformers import DebertaV2Model

    own = dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=10, type_vocab_size=0)
    own |= dict(position_buckets=6, share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False)
    model = randomise(DebertaV2Model(config("DebertaV2Config", layers, **own)))
    parameters = {name: value.clone() for name, value in model.state_dict().items()}
    real = tokens().ne(PADDING)
    states = model.requires_grad_(True)(tokens(), attention_mask=real.long()).last_hidden_state
    cotangent = torch.randn(states.shape, generator=torch.Generator().manual_seed(3)).half().double() * real[..., None]
    (states * cotangent).sum().backward()
    looked_at = ("encoder.rel_embeddings.", "encoder.LayerNorm.", "query_proj.bias", "value_proj.bias")
    gradients = {
        f"gradient of {name}": parameter.grad
        for name, parameter in model.named_parameters()
        if any(part in name for part in looked_at)
    }
    return {"tokens": tokens(), "states": states.detach(), "cotangent": cotangent, **gradients, **parameters}


def wav2vec2_bert(layers: int) -> Tensors:
    """Of its ``relative_key`` alone the self-attention: one row for each offset key minus query, clipped."""
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    own = dict(left_max_position_embeddings=CLIP, right_max_position_embeddings=CLIP, position_embeddings_type="relative_key")
    attention = randomise(Wav2Vec2BertSelfAttention(config("Wav2Vec2BertConfig", **own)))
    x = torch.randn(*tokens().shape, DIM, generator=torch.Generator().manual_seed(2)).half().double()
    z, p = attention(x, output_attentions=True)
    return {"x": x, "p": p, "z": z, **attention.state_dict()}


def inkling(layers: int) -> Tensors:
    """Of its attention the bias of queries and of the keys before them, and its convolution of keys, at padded tokens 0."""
    from transformers.models.inkling.modeling_inkling import InklingRelativeLogits, InklingShortConvolution

    n, generator = max(LENGTHS), torch.Generator().manual_seed(2)
    logits = InklingRelativeLogits(d_rel=6, rel_extent=n - 3)
    nn.init.zeros_(logits.proj)
    curves, projection = randomise(logits), randomise(nn.Linear(DIM, HEADS * 6, bias=False))
    x, k = torch.randn(2, *tokens().shape, DIM, generator=generator).half().double()
    bias = curves(projection(x).unflatten(-1, (HEADS, -1)), torch.arange(n), torch.arange(n))
    convolution = randomise(InklingShortConvolution(DIM, 4, layer_idx=0, conv_idx=0))
    present = tokens().ne(PADDING)
    found = {"x": x, "bias": bias, "k": k, "padding": ~present, "convolved": convolution(k, conv_mask=present)}
    return found | {"curves": curves.proj, "projection": projection.weight, "weight": convolution.conv1d.weight}


def xlnet(layers: int) -> Tensors:
    """Transformer-XL's attention in both directions."""
    from transformers import XLNetModel

    own = dict(d_model=DIM, n_head=HEADS, d_inner=DIM, attn_type="bi", use_mems_eval=False)
    model = randomise(XLNetModel(config("XLNetConfig", 1, **own)))
    unused = ("layer0.layer_norm", "layer0.o", "layer0.r_s_bias", "layer0.seg_embed")
    return {name: value for name, value in run(model, [model.layer[0].rel_attn]).items() if not name.startswith(unused)}


def bloom(layers: int) -> Tensors:
    """ALiBi's slopes: what a query adds to the scores of key 1 beyond key 0."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    mask = torch.ones(1, 2, dtype=torch.long)
    return {f"slopes{heads}": build_alibi_tensor(mask, heads, torch.float64)[:, 0, 1] for heads in (4, 8, 12, 16)}


def x_transformers_pope(layers: int) -> Tensors:
    from x_transformers.x_transformers import PolarEmbedding, apply_polar_pos_emb

    q, k = torch.randn(2, 1, HEADS, max(LENGTHS), HEAD_DIM, generator=torch.Generator().manual_seed(2)).half().double()
    embedding = randomise(PolarEmbedding(HEAD_DIM, HEADS))
    freqs, bias = embedding(torch.arange(max(LENGTHS)))
    products = apply_polar_pos_emb(q, freqs) @ apply_polar_pos_emb(k, freqs + bias).transpose(-1, -2)
    return {"q": q, "k": k, "products": products, "bias": embedding.learned_bias}


def x_transformers_forgetting(layers: int) -> Tensors:
    """The bias of the Forgetting Transformer in both directions, each with gates of its own."""
    from x_transformers.x_transformers import DataDependentAlibi

    module = randomise(DataDependentAlibi(DIM, HEADS, causal=False))
    x = torch.randn(*tokens().shape, DIM, generator=torch.Generator().manual_seed(2)).half().double()
    return {"x": x, "bias": module(x), **module.state_dict()}


def fairseq_roberta(layers: int) -> Tensors:
    import fairseq  # noqa: F401  first, so that it is patched for current libraries
    from fairseq.data import Dictionary
    from fairseq.models.roberta import RobertaModel

    dictionary = Dictionary()
    for i in range(SYMBOLS - len(dictionary)):
        dictionary.add_symbol(str(i))
    sizes = dict(encoder_layers=LAYERS, encoder_embed_dim=DIM, encoder_ffn_embed_dim=DIM, encoder_attention_heads=HEADS)
    task = Namespace(source_dictionary=dictionary, cfg=Namespace(tokens_per_sample=MAX_POSITIONS))
    model = randomise(RobertaModel.build_model(Namespace(**sizes, max_positions=MAX_POSITIONS), task))
    states, _ = model(tokens(), features_only=True)
    prefix = "encoder.sentence_encoder."
    unused = ("_weight", "_bias", ".version")  # copies of a layer's parameters that nothing reads
    state = {name: value for name, value in model.state_dict().items() if not name.endswith(unused)}
    parameters = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return {"tokens": tokens(), "states": states, **parameters}


def fairseq_sinusoidal(layers: int) -> Tensors:
    import fairseq  # noqa: F401
    from fairseq.modules import SinusoidalPositionalEmbedding

    return {"tokens": tokens(), "embedding": SinusoidalPositionalEmbedding(DIM, PADDING, MAX_POSITIONS)(tokens())}


PEERS: dict[
    str, Callable[[int], Tensors]
] = {  # each is told for how many layers; what runs as a whole, or has none, does not care
    "bert": bert,
    "t5": functools.partial(t5, buckets=32, distance=128),
    "t5_few_buckets": functools.partial(t5, buckets=8, distance=20),
    "roformer": roformer,
    "gpt_neox": gpt_neox,
    "deberta": deberta,
    "deberta_v2": deberta_v2,
    "deberta_v2_buckets": deberta_v2_buckets,
    "wav2vec2_bert": wav2vec2_bert,
    "inkling": inkling,
    "xlnet": xlnet,
    "bloom": bloom,
    "x_transformers_pope": x_transformers_pope,
    "x_transformers_forgetting": x_transformers_forgetting,
    "fairseq_roberta": fairseq_roberta,
    "fairseq_sinusoidal": fairseq_sinusoidal,
}


def library(name: str) -> str:
    """The package that a peer comes from."""
    return next((package for package in ("fairseq", "x_transformers") if name.startswith(package)), "transformers")


def values(name: str, layers: int) -> Tensors:
    """One peer's numbers, computed now."""
    with float64(), torch.random.fork_rng():
        torch.manual_seed(0)  # for what randomise starts from
        return PEERS[name](layers)


def _small(tensor: Tensor) -> Tensor:
    half = tensor.half()
    return (half if tensor.is_floating_point() and torch.equal(half.to(tensor.dtype), tensor) else tensor).contiguous()


if __name__ == "__main__":
    import sys
    from importlib.metadata import version

    from safetensors.torch import save_file

    GOLDEN.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PEERS:
        made_by = ", ".join(f"{package} {version(package)}" for package in (library(name), "torch"))
        small = {key: _small(value).clone() for key, value in values(name, layers=1).items()}
        save_file(small, GOLDEN / f"{name}.safetensors", metadata={"made_by": made_by})
