"""transformers' ModernBERT, there and back: the same logits and gradients, and the same training."""

import dataclasses
import functools
import json

import pytest
import torch
import transformers
from cases import thorough_but
from small_models import export, make_model, save
from test_import import import_hf, perturbed, refusal
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn import functional as F

from fairseq_posenc.core.attention import Mask
from fairseq_posenc.core.transformer import Encoder, EncoderConfig
from fairseq_posenc.huggingface import source_models
from fairseq_posenc.huggingface.configuration import PosencConfig
from fairseq_posenc.huggingface.model_types import MODEL_TYPES
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM
from fairseq_posenc.huggingface.new_positions import IN_LAYERS, convert
from fairseq_posenc.plugin.checkpoint.state_dict import ABSOLUTE, ENCODER, WORDS

SMALL = dict(hidden_size=32, num_attention_heads=4, intermediate_size=24, max_position_embeddings=50)
MODERN = SMALL | dict(num_hidden_layers=5, local_attention=8, cls_token_id=23, sep_token_id=24)
TOKENS = ["[PAD]", "[unused0]", *(f"w{i}" for i in range(20)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w20", "w21"]
PAD = 1  # in the dictionary
IGNORED = -100

thorough = functools.partial(pytest.param, marks=pytest.mark.thorough)


def write(folder, name, kind="ForMaskedLM", **options):
    """A small model of transformers, every parameter perturbed, whose special tokens stand elsewhere than fairseq's."""
    special = dict(pad_token_id=0, bos_token_id=23, eos_token_id=24) | options
    tokens = [TOKENS[1], TOKENS[0], *TOKENS[2:]] if special["pad_token_id"] else TOKENS
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    config = getattr(transformers, f"{name}Config")(vocab_size=len(TOKENS), **special)
    model = getattr(transformers, f"{name}{kind}")(config)
    constant = {key: value.clone() for key, value in model.state_dict().items() if key.endswith("embed_positions.weight")}
    perturbed(model).load_state_dict(constant, strict=False)
    model.save_pretrained(folder)
    return model


def of_source(source, tied=True):
    """Our model with a source's parameters."""
    ours = PosencForMaskedLM(PosencConfig(**dataclasses.asdict(source.config), tie_word_embeddings=tied))
    renamed, others = MODEL_TYPES["fairseq_posenc"].to_transformers(source.state, ours.config)
    ours.eval().load_state_dict(renamed, strict=True)
    assert (others, source.left_out) == ([], [])
    return ours


def batch(length):
    """Tokens (3, length) of which the last rows are padded, and labels of a third of them."""
    generator = torch.Generator().manual_seed(length)
    tokens = torch.randint(4, len(TOKENS), (3, length), generator=generator)
    for row in (1, 2):
        tokens[row, -(-length // row) :] = PAD
    labels = tokens.masked_fill((torch.rand(tokens.shape, generator=generator) > 0.3) | tokens.eq(PAD), IGNORED)
    labels[0, 0] = tokens[0, 0]
    return tokens, labels


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same_gradients(ours, theirs, model_type, order):
    """Of parameters by their names in both models; rows of symbols in ``order``."""
    found, _ = MODEL_TYPES["fairseq_posenc"].to_fairseq(ours, None)
    expected, _ = MODEL_TYPES[model_type].to_fairseq(theirs, None)
    assert {*found} == {*expected}
    for name, value in expected.items():
        value = value[order] if name in source_models.BY_SYMBOL else value
        torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-4, msg=name)


def cross_entropy(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")


SETTINGS = {
    "published": {},
    "biases": dict(norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, norm_eps=1e-3),
    "other layers": dict(
        hidden_activation="silu", classifier_activation="silu", global_attn_every_n_layers=2, tie_word_embeddings=False
    ),
}


@pytest.mark.parametrize("settings", thorough_but({"published"}, SETTINGS))
def test_modernbert_has_the_same_logits_and_gradients(settings, tmp_path):
    """Padded, at odd lengths, at the longest, and packed: documents in one row are as each alone."""
    options = SETTINGS[settings]
    theirs = write(tmp_path, "ModernBert", **MODERN | options)
    source = source_models.read(str(tmp_path))
    assert source.config.positions == (
        "rope(base=160000.0, layout=half)" + " | rope(layout=half, window=4)" * (options.get("global_attn_every_n_layers", 3) - 1)
    )
    ours, order = of_source(source, theirs.config.tie_word_embeddings), source.vocabulary.order
    for length in (1, 7, 33, 50):
        tokens, labels = batch(length)
        mask, real = tokens.ne(PAD), tokens.ne(PAD)
        expected = theirs(order[tokens], attention_mask=mask.long()).logits[..., order]
        found = ours(tokens, attention_mask=mask.long()).logits
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
        theirs_by_name = gradients(cross_entropy(expected, labels), theirs)
        assert_same_gradients(gradients(cross_entropy(found, labels), ours), theirs_by_name, "modernbert", order)
    starts = torch.tensor([0] * 9 + [9] * 20 + [29] * 4)[None]
    tokens, labels = (rows[:1] for rows in batch(33))
    states = ours.model.encoder(tokens, mask=Mask(documents=starts)).last_hidden_state
    parts = [theirs(order[part]).logits[..., order] for part in tokens.split((9, 20, 4), dim=1)]
    found, expected = ours.lm_head(states), torch.cat(parts, dim=1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    by_name = gradients(cross_entropy(expected, labels), theirs)
    assert_same_gradients(gradients(cross_entropy(found, labels), ours), by_name, "modernbert", order)


def test_modernbert_rope_becomes_transformers_own_class(prepared, tmp_path, capsys):
    """And is imported again as the same architecture."""
    model = make_model("modernbert_rope_tiny", prepared, encoder_layers=5)
    path = save(model, tmp_path / "checkpoint.pt", prepared)
    worst = max(parity.difference for parity in export(path, prepared, tmp_path / "out", "lm").values())
    assert worst < 1e-5
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["architectures"], "auto_map" in config) == (["ModernBertForMaskedLM"], False)
    assert (config["global_rope_theta"], config["local_rope_theta"]) == (160_000.0, 10_000.0)  # for transformers 4
    assert not list((tmp_path / "out").glob("*.py"))
    exported = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert type(exported) is transformers.ModernBertForMaskedLM
    tokens, labels = batch(47)
    ours = gradients(cross_entropy(model.train()(tokens)[0], labels), model)
    theirs = gradients(cross_entropy(exported(tokens, attention_mask=tokens.ne(PAD).long()).logits, labels), exported)
    theirs, _ = MODEL_TYPES["modernbert"].to_fairseq(theirs, exported.config)
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, atol=1e-4, rtol=1e-4, msg=name)
    state, printed = import_hf(capsys, tmp_path / "out", tmp_path / "back" / "model.pt")
    expected = {name: value for name, value in model.state_dict().items() if not name.startswith("classification_heads.")}
    assert expected.keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in expected.items())
    assert "--arch modernbert_posenc" in printed
    assert "--positions modernbert " in printed


@pytest.mark.parametrize(
    ("arch", "options", "head", "architecture"),
    [
        ("modernbert_tisa_tiny", {}, "lm", "PosencForMaskedLM"),
        thorough("modernbert_rope_tiny", {"encoder_normalize_before": False, "no_first_norm": False}, "lm", "PosencForMaskedLM"),
        thorough("modernbert_rope_tiny", {}, "topic", "PosencForSequenceClassification"),
        thorough(
            "modernbert_rope_tiny", {"activation_fn": "gelu_accurate", "no_norm_bias": False}, "lm", "ModernBertForMaskedLM"
        ),
        thorough("modernbert_posenc_tiny", {"positions": "rope(base=500, layout=half)"}, "lm", "ModernBertForMaskedLM"),
        thorough("modernbert_rope_tiny", {"no_output_bias": True}, "lm", "ModernBertForMaskedLM"),
    ],
)
def test_the_class_is_modernbert_where_the_function_is(arch, options, head, architecture, prepared, tmp_path):
    path = save(make_model(arch, prepared, **options), tmp_path / "checkpoint.pt", prepared)
    worst = max(parity.difference for parity in export(path, prepared, tmp_path / "out", head, no_tokenizer=True).values())
    assert worst < 2e-5
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == [architecture]


def test_modernbert_continues_with_other_positions(tmp_path, capsys):
    write(tmp_path / "source", "ModernBert", **MODERN)
    positions = "tisa | tisa(window=64) | tisa(window=64)"
    state, printed = import_hf(capsys, tmp_path / "source", tmp_path / "out" / "model.pt", "--positions", positions)
    assert "sums.2.tisa.amplitude" in printed
    assert any(name.endswith("positions.sums.1.tisa.offset") for name in state)
    assert "--arch modernbert_posenc" in printed
    assert not {"--gated-ffn", "--no-norm-bias", "--initialization"} & {*printed.split()}


def test_tables_of_absolute_positions_where_layers_differ():
    """They are copied where both have one, and otherwise their average goes into the word embeddings."""
    layers = "absolute+tisa | absolute+tisa(window=4)"
    config = EncoderConfig(vocab_size=9, dim=16, heads=2, ffn_dim=8, layers=3, max_positions=7)
    state = {f"{ENCODER}{name}": value for name, value in Encoder(config).state_dict().items()}
    layered = convert(config, state, layers, {})
    back = convert(layered.config, layered.state, "absolute", {})
    assert torch.equal(layered.state[IN_LAYERS], state[ABSOLUTE])
    assert {*back.state} == {*state}
    assert all(torch.equal(value, back.state[name]) for name, value in state.items())
    without = convert(layered.config, layered.state, "tisa", {})
    torch.testing.assert_close(without.state[WORDS], state[WORDS] + state[ABSOLUTE].mean(0))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (dict(attention_bias=True), "attention_bias True and mlp_bias False"),
        thorough(dict(classifier_activation="relu"), "hidden_activation gelu and classifier_activation relu"),
        (dict(rope_parameters={"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}), "rope_type linear"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_modernbert_may_have_and_this_project_has_not(options, named, tmp_path, capsys):
    write(tmp_path / "source", "ModernBert", **MODERN | options)
    said = refusal(capsys, tmp_path / "source", "--out", tmp_path / "out" / "model.pt")
    assert "config.json" in said
    assert named in said


@pytest.mark.slow
def test_training_is_transformers_training(tmp_path):
    """200 updates of AdamW on the same batches: losses agree to 1e-3."""
    theirs = write(tmp_path, "ModernBert", **MODERN)
    source = source_models.read(str(tmp_path))
    ours, order = of_source(source), source.vocabulary.order
    rate = {"lr": 1e-3, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01}
    optimizers = [torch.optim.AdamW(model.train().parameters(), **rate) for model in (ours, theirs)]
    differences = []
    for update in range(200):
        tokens, labels = batch(20 + update % 31)
        mask = tokens.ne(PAD).long()
        logits = ours(tokens, attention_mask=mask).logits, theirs(order[tokens], attention_mask=mask).logits[..., order]
        losses = [cross_entropy(each, labels) / labels.ne(IGNORED).sum() for each in logits]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        differences.append(abs(losses[0].item() - losses[1].item()))
    assert losses[0].item() < 3
    assert max(differences) < 1e-3
