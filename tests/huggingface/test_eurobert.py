"""transformers' EuroBERT, imported: RMSNorm, a head without an inner layer, and Llama 3's kind of tokenizer."""

import json

import pytest
import torch
import transformers
from small_models import export, make_model, save
from test_import import assert_same_ids, difference, import_hf, perturbed, prepare, refusal
from test_rotary_types import PAD, assert_same_gradients, batch, cross_entropy, gradients, of_source, thorough
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from fairseq_posenc.huggingface import source_models

pytestmark = pytest.mark.skipif(not hasattr(transformers, "EuroBertConfig"), reason="transformers 4 has no EuroBERT")

SMALL = dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=3, intermediate_size=24, max_position_embeddings=50)
BASE = 250000.0
BOS, EOS, MASK, OTHER = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|parallel_sep|>"
RESERVED = [f"<|reserved_special_token_{i}|>" for i in range(3)]
WORDS = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+")


def write(folder, text, kind="ForMaskedLM", pad=EOS, reserved=RESERVED, **options):
    """A small EuroBERT, every parameter perturbed, and a byte-level BPE tokenizer as Llama 3's, learned from the text."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORDS, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train([str(text)], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens([BOS, EOS, MASK, OTHER, *reserved, pad])
    tokenizer.post_processor = processors.TemplateProcessing(f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    names = dict(bos_token=BOS, eos_token=EOS, mask_token=MASK, pad_token=pad)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.save_pretrained(folder)
    special = {name: getattr(fast, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id", "mask_token_id")}
    rope = {"rope_type": "default", "rope_theta": BASE}
    config = transformers.EuroBertConfig(
        **{**SMALL, "rope_parameters": rope, **options}, **special, vocab_size=tokenizer.get_vocab_size()
    )
    model = perturbed(getattr(transformers, f"EuroBert{kind}")(config))
    model.save_pretrained(folder)
    return model, fast


@pytest.mark.parametrize(
    ("pad", "options"),
    [
        (EOS, {}),
        thorough("<|pad|>", dict(tie_word_embeddings=True, rms_norm_eps=1e-3)),
        thorough(EOS, dict(attention_bias=True, mlp_bias=True, hidden_act="gelu")),
    ],
    ids=["published", "tied", "biases"],
)
def test_eurobert_has_the_same_logits_and_gradients(pad, options, toy_text, tmp_path):
    """Padded, at odd lengths and at the longest; every embedding of the source has a symbol."""
    theirs, _ = write(tmp_path, toy_text / "train.txt", pad=pad, **options)
    source = source_models.read(str(tmp_path))
    ours, order = of_source(source, theirs.config.tie_word_embeddings), source.vocabulary.order
    assert order.sort().values.tolist() == list(range(theirs.config.vocab_size))
    for length in (1, 7, 33, 50):
        tokens, labels = batch(length)
        real = tokens.ne(PAD)
        expected = theirs(order[tokens], attention_mask=real.long()).logits[..., order]
        found = ours(tokens, attention_mask=real.long()).logits
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
        by_name = gradients(cross_entropy(expected, labels), theirs)
        assert_same_gradients(gradients(cross_entropy(found, labels), ours), by_name, "eurobert", order)


def test_eurobert_goes_on_with_its_tokenizer_and_back(toy_text, tmp_path, capsys):
    """Equal ids for equal text; the export is of EuroBERT's class, and is imported again as the same model."""
    _, tokenizer = write(tmp_path / "source", toy_text / "train.txt")
    out = tmp_path / "imported" / "model.pt"
    state, printed = import_hf(capsys, tmp_path / "source", out)
    assert difference(printed) < 1e-5
    flags = {"--norm", "--no-head-layer", "--no-output-bias", "--first-norm", "--untie-weights-roberta", "--rope-base"}
    assert flags < {*printed.split()}
    order = source_models.read(str(tmp_path / "source")).vocabulary.order
    last = [tokenizer.convert_tokens_to_ids(name) for name in (BOS, RESERVED[2], EOS, RESERVED[1])]
    assert order[:4].tolist() == last
    data = prepare(toy_text, out.parent)
    assert_same_ids(data, tokenizer, order, toy_text)
    worst = max(parity.difference for parity in export(out, data, tmp_path / "exported").values())
    assert worst < 1e-5
    config = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert (config["architectures"], config["mask_token_id"]) == (["EuroBertForMaskedLM"], len(order) - 1)
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    text = "w3 w17 w22  Ünïcode, 12345!"
    assert order[torch.tensor(back(text)["input_ids"])].tolist() == [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    again, repeated = import_hf(capsys, tmp_path / "exported", tmp_path / "back" / "model.pt")
    assert state.keys() == again.keys()
    assert all(torch.equal(value, again[name]) for name, value in state.items())
    assert flags < {*repeated.split()}


def test_eurobert_continues_with_other_positions(toy_text, tmp_path, capsys):
    write(tmp_path / "source", toy_text / "train.txt")
    state, printed = import_hf(capsys, tmp_path / "source", tmp_path / "out" / "model.pt", "--positions", "tisa")
    assert "new, initialised by their scheme (seed 1): tisa.amplitude" in printed
    assert {"--norm", "--no-head-layer", "tisa"} < {*printed.split()}
    assert not {name for name in state if "lm_head" in name} - {"encoder.lm_head.weight"}


@pytest.mark.thorough
def test_of_a_fine_tuned_eurobert_the_encoder_is_imported(toy_text, tmp_path, capsys):
    write(tmp_path / "source", toy_text / "train.txt", "ForSequenceClassification")
    _, printed = import_hf(capsys, tmp_path / "source", tmp_path / "out" / "model.pt")
    assert difference(printed) < 1e-5
    assert "left out: classifier.bias, classifier.weight, dense.bias, dense.weight" in printed


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (dict(num_key_value_heads=2), "num_key_value_heads 2"),
        (dict(reserved=[]), "unknown"),
        thorough(dict(mlp_bias=True), "mlp_bias True"),
        thorough(dict(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": BASE}), "rope_type linear"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_eurobert_may_have_and_this_project_has_not(options, named, toy_text, tmp_path, capsys):
    write(tmp_path / "source", toy_text / "train.txt", **options)
    assert named in refusal(capsys, tmp_path / "source", "--out", tmp_path / "out" / "model.pt")


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("roberta_absolute_tiny", {"norm": "rms"}),
        thorough("roberta_rope_tiny", {"no_head_layer": True}),
        thorough("roberta_deberta_tiny", {"mask_decoder_steps": 2, "no_head_layer": True, "norm": "rms"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_models_with_a_part_of_eurobert_are_exported_as_this_projects_class(arch, options, prepared, tmp_path):
    path = save(make_model(arch, prepared, **options), tmp_path / "checkpoint.pt", prepared)
    worst = max(parity.difference for parity in export(path, prepared, tmp_path / "out", "lm", no_tokenizer=True).values())
    assert worst < 2e-5
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["PosencForMaskedLM"]
