"""Checkpoints from Python: the encoder alone, the vocabulary, and fairseq's hub interface."""

import shutil
import subprocess
import sys

import pytest
import readme
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

import fairseq_posenc
from fairseq_posenc import PosencRobertaModel, load_encoder, load_vocabulary
from fairseq_posenc.cli import main
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.plugin.models.building import restored

TEXT = "The red ball is round."


@pytest.fixture
def folder(checkpoint, data_bin, tmp_path, monkeypatch):
    """The folder that the documents' commands have worked in."""
    (tmp_path / "checkpoints").mkdir()
    shutil.copy(checkpoint, tmp_path / "checkpoints" / "checkpoint_best.pt")
    (tmp_path / "data-bin").symlink_to(data_bin)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_documents_snippets(folder):
    first, hub = readme.blocks("## From Python", "python", file="examples/pretraining/README.md")
    names = {}
    exec(first, names)  # noqa: S102 - the document's
    assert names["states"].shape == (1, names["tokens"].shape[1], 32)
    exec(hub, names)  # noqa: S102
    features = names["roberta"].extract_features(names["roberta"].encode("The sky is blue."))
    torch.testing.assert_close(features, names["states"])


def test_what_the_package_exports(folder):
    for name in fairseq_posenc.__all__:
        assert getattr(fairseq_posenc, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Enkoder'"):
        fairseq_posenc.Enkoder  # noqa: B018


@pytest.mark.thorough
def test_the_first_import_may_be_of_a_name(folder):
    """In a process where nothing has imported fairseq before."""
    code = (
        "import fairseq_posenc as f; f.load_encoder('checkpoints/checkpoint_best.pt');"
        "from fairseq.models import ARCH_MODEL_REGISTRY as known; assert 'roberta_tisa' in known"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_encoder_has_the_checkpoints_parameters_and_takes_no_data(checkpoint, tmp_path):
    shutil.copy(checkpoint, tmp_path / "alone.pt")
    encoder = load_encoder(tmp_path / "alone.pt")
    assert not encoder.training
    prefix = "encoder.sentence_encoder."
    saved = {name.removeprefix(prefix): value for name, value in load_checkpoint(checkpoint)["model"].items() if prefix in name}
    state = encoder.state_dict()
    assert state.keys() == saved.keys()
    assert all(torch.equal(state[name], saved[name]) for name in saved)


def test_the_encoder_of_stock_roberta(pretrain, data_bin):
    path = pretrain("roberta_base", "--encoder-layers", "2")
    stock = PosencRobertaModel.from_pretrained(str(path.parent), path.name, str(data_bin))
    tokens = stock.encode(TEXT)
    torch.testing.assert_close(load_encoder(path)(tokens[None]).last_hidden_state, stock.extract_features(tokens))


def with_vocabulary(checkpoint, data, path):
    """A checkpoint for the dictionary of another data-bin: other word embeddings, otherwise the same."""
    saved = load_checkpoint(checkpoint)
    symbols = len(load_vocabulary(data).dictionary)
    torch.manual_seed(0)
    for name, value in saved["model"].items():
        if name.endswith(("embed_tokens.weight", "lm_head.weight", "lm_head.bias")):
            saved["model"][name] = torch.randn(symbols, *value.shape[1:])
    saved["cfg"]["task"]["data"] = str(data)
    torch.save({**saved, "task_state": {}}, path)


@pytest.mark.parametrize("kind", ["data_bin", "gpt2_bin", "wordpiece_bin"])
def test_encode_and_decode_agree_with_prepare(kind, checkpoint, tmp_path, request):
    lines = ["red ball", "the red ball is round 42.", "x² €"]
    (tmp_path / "text.txt").write_text("\n\n".join(lines), "utf-8")
    (tmp_path / "valid.txt").write_text("red\n")
    data, folder = tmp_path / "data", tmp_path / "model"
    texts = [tmp_path / "text.txt", "--valid", tmp_path / "valid.txt", "--vocabulary", request.getfixturevalue(kind)]
    assert main(["prepare", *map(str, texts), "--out", str(data), "--workers", "1"]) == 0
    shutil.copytree(request.getfixturevalue(kind), folder)  # next to the checkpoint, as import-hf leaves it
    with_vocabulary(checkpoint, data, folder / "model.pt")
    hub = PosencRobertaModel.from_pretrained(str(folder))
    items = indexed_dataset.MMapIndexedDataset(str(data / "train"))
    for number, line in enumerate(lines):
        tokens = hub.encode(line)
        assert tokens.tolist() == [0, *items[2 * number].tolist()]
        assert hub.encode(line, line).tolist() == [*tokens.tolist(), 2, *tokens[1:].tolist()]
        assert load_vocabulary(folder).sequence(line, line).tolist() == hub.encode(line, line).tolist()
    assert hub.decode(hub.encode("red ball")) == "red ball"
    assert hub.decode(hub.encode("red", "ball")) == ["red", "ball"]
    assert load_vocabulary(folder).decode(hub.encode("red ball")) == "red ball"
    assert [text.count("<mask>") for text, _, _ in hub.fill_mask("red <mask>", topk=2)] == [0, 0]


def test_fill_mask_and_heads(checkpoint, data_bin):
    hub = PosencRobertaModel.from_pretrained(str(checkpoint.parent), checkpoint.name)  # the data-bin is the checkpoint's own
    answers = hub.fill_mask("The <mask> ball is round.", topk=3)
    assert len(answers) == 3
    assert all(0 < probability < 1 and text.endswith("ball is round.") for text, probability, _ in answers)
    assert [answer[1] for answer in answers] == sorted((answer[1] for answer in answers), reverse=True)
    hub.register_classification_head("color", num_classes=4)
    assert hub.predict("color", hub.encode(TEXT)).exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    assert len(hub.extract_features(hub.encode(TEXT), return_all_hiddens=True)) == 3


def test_what_is_not_there_is_named(checkpoint, data_bin, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere/model\.pt"):
        PosencRobertaModel.from_pretrained(str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"dict\.txt"):
        load_vocabulary(tmp_path)
    (tmp_path / "other.pt").write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="cannot be read as a checkpoint"):
        load_encoder(tmp_path / "other.pt")


@pytest.mark.parametrize("recorded", [True, False])
def test_classes_have_their_names(recorded, checkpoint, data_bin, tmp_path):
    """As in fairseq's recipe for classes of one's own, those of fairseq's own task included; or those of the data."""
    content = load_checkpoint(checkpoint)
    model = restored(Checkpoint(checkpoint))
    model.register_classification_head("topic", num_classes=2)
    names = Dictionary()
    for name in ("wet", "royal", "unused"):
        names.add_symbol(name)
    (tmp_path / "label").mkdir()
    names.save(str(tmp_path / "label" / "dict.txt"))
    cfg = SentencePredictionConfig(data=str(tmp_path), num_classes=2, regression_target=False)
    task = SentencePredictionTask(cfg, model.encoder.dictionary, names)
    state = task.state_dict()
    assert state["labels"] == ["wet", "royal"]
    cfg.regression_target = True
    assert task.state_dict()["labels"] == []
    content |= {"model": model.state_dict(), "task_state": {"labels": state["labels"]} if recorded else {}}
    content["cfg"]["task"]["data"] = str(data_bin if recorded else tmp_path)
    torch.save(content, tmp_path / "topic.pt")
    interface = PosencRobertaModel.from_pretrained(str(tmp_path), "topic.pt", str(data_bin))
    label = interface.predict("topic", interface.encode(TEXT)).argmax().item()
    dictionary = interface.task.label_dictionary
    assert dictionary.string([label + dictionary.nspecial]) == ["wet", "royal"][label]


def test_a_checkpoint_without_classes_has_no_names(checkpoint, data_bin):
    interface = PosencRobertaModel.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data_bin))
    assert len(interface.task.label_dictionary) == interface.task.label_dictionary.nspecial
