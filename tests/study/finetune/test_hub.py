"""Checkpoints from Python: the encoder alone, the vocabulary, and the names of classes."""

import shutil
import subprocess
import sys

import pytest
import readme
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, indexed_dataset
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

import fairseq_posenc
from fairseq_posenc import load_encoder, load_vocabulary
from fairseq_posenc.cli import main
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.plugin.models.building import stock_model

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
    [code] = readme.blocks("## From Python", "python", file="examples/pretraining/README.md")
    names = {}
    exec(code, names)  # noqa: S102 - the document's
    assert names["states"].shape == (1, names["tokens"].shape[1], 32)


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
    tokens = torch.tensor(load_vocabulary(data_bin).sequence(TEXT))[None]
    with torch.no_grad():
        expected, _ = stock_model(Checkpoint(path))(tokens, features_only=True)
        torch.testing.assert_close(load_encoder(path)(tokens).last_hidden_state, expected)


@pytest.mark.parametrize("kind", ["data_bin", "gpt2_bin", "wordpiece_bin"])
def test_encode_and_decode_agree_with_prepare(kind, tmp_path, request):
    lines = ["red ball", "the red ball is round 42.", "x² €"]
    (tmp_path / "text.txt").write_text("\n\n".join(lines), "utf-8")
    (tmp_path / "valid.txt").write_text("red\n")
    texts = [tmp_path / "text.txt", "--valid", tmp_path / "valid.txt", "--vocabulary", request.getfixturevalue(kind)]
    assert main(["prepare", *map(str, texts), "--out", str(tmp_path / "data"), "--workers", "1"]) == 0
    vocabulary, items = load_vocabulary(tmp_path / "data"), indexed_dataset.MMapIndexedDataset(str(tmp_path / "data" / "train"))
    for number, line in enumerate(lines):
        tokens = vocabulary.sequence(line).tolist()
        assert tokens == [0, *items[2 * number].tolist()]
        assert vocabulary.sequence(line, line).tolist() == [*tokens, 2, *tokens[1:]]
    assert vocabulary.decode(vocabulary.sequence("red ball")) == "red ball"


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"dict\.txt"):
        load_vocabulary(tmp_path)
    (tmp_path / "other.pt").write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="cannot be read as a checkpoint"):
        load_encoder(tmp_path / "other.pt")


@pytest.mark.parametrize("recorded", [True, False])
def test_classes_have_their_names(recorded, checkpoint, data_bin, tmp_path):
    """As in fairseq's recipe for classes of one's own, those of fairseq's own task included; or those of the data."""
    content = load_checkpoint(checkpoint)
    [model], _ = checkpoint_utils.load_model_ensemble([str(checkpoint)])
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
    assert Checkpoint(tmp_path / "topic.pt", data_bin).labels == ["wet", "royal"]
