"""What a checkpoint gives to a fine-tuned model, and what is refused."""

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf
from torch import nn

from fairseq_posenc.finetuning.options import max_length
from fairseq_posenc.finetuning.start import write_start
from fairseq_posenc.finetuning.training import build, configure
from fairseq_posenc.models.heads import SpanHead
from fairseq_posenc.models.options import build as build_model
from fairseq_posenc.models.pretrained import Pretrained

from .conftest import make_data_bin


def question_answering_model(pretrained):
    """A model as ``--task squad`` builds it from the checkpoint's options."""
    options = pretrained.model_options()
    arguments = [str(pretrained.vocabulary.folder), "--task", "squad", "--criterion", "squad", "--batch-size", "1"]
    return build(configure(pretrained.arch, options, [*arguments, "--max-positions", str(options.max_positions)]))


def test_everything_but_the_head_is_loaded(checkpoint, tmp_path):
    pretrained = Pretrained(checkpoint)
    model = question_answering_model(pretrained)
    report = write_start(pretrained.trained, model, tmp_path / "start.pt")
    saved = torch.load(checkpoint, weights_only=False)["model"]
    assert set(report.new) == {"encoder.lm_head.span.weight", "encoder.lm_head.span.bias"}
    assert set(report.unused) == {name for name in saved if name.startswith("encoder.lm_head.")} - {"encoder.lm_head.weight"}
    assert set(report.loaded) == {name for name in saved if not name.startswith("encoder.lm_head.")}
    assert report.unexpected == []
    assert str(report).startswith(f"{len(report.loaded)} parameter tensors loaded; 2 new (encoder.lm_head); ")
    head = {name: value.clone() for name, value in model.encoder.lm_head.state_dict().items()}
    model.load_state_dict(checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "start.pt"))["model"], strict=True)
    state = model.state_dict()
    assert all(torch.equal(state[name], saved[name]) for name in report.loaded)
    assert all(torch.equal(state[f"encoder.lm_head.{name}"], value) for name, value in head.items())


def test_options_come_from_the_checkpoint(pretrain):
    pretrained = Pretrained(pretrain("roberta_tisa_tiny", "--tisa-kernels", "3"))
    model = question_answering_model(pretrained)
    scheme = model.encoder.sentence_encoder.positions.tisa
    assert scheme.options.kernels == 3
    assert model.args.encoder_embed_dim == 32


TINY = sorted(name for name in ARCH_MODEL_REGISTRY if name.startswith(("roberta_", "albert_")) and name.endswith("_tiny"))
SLOW = [name for name in TINY if name.startswith("albert_") and name != "albert_tisa_tiny"]  # the same code twice


@pytest.mark.parametrize("arch", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TINY])
def test_every_architecture_is_taken_over_whole(arch, checkpoint, tmp_path):
    saved = torch.load(checkpoint, weights_only=False)
    given = OmegaConf.create({"_name": arch, "max_positions": 32})
    state = build_model(arch, given, Pretrained(checkpoint).vocabulary.dictionary).state_dict()
    cfg = {**saved["cfg"], "model": OmegaConf.to_container(given)}
    torch.save({**saved, "cfg": cfg, "model": state}, tmp_path / "checkpoint.pt")
    pretrained = Pretrained(tmp_path / "checkpoint.pt")
    report = write_start(pretrained.trained, question_answering_model(pretrained), tmp_path / "start.pt")
    assert set(report.loaded) == {name for name in state if not name.startswith("encoder.lm_head.")}


def damaged(checkpoint, path, change):
    saved = torch.load(checkpoint, weights_only=False)
    change(saved["model"])
    torch.save(saved, path)
    return path


def test_a_missing_parameter_is_an_error_unless_allowed(checkpoint, data_bin, tmp_path):
    name = "encoder.sentence_encoder.layers.1.fc1.weight"
    path = damaged(checkpoint, tmp_path / "less.pt", lambda state: state.pop(name))
    pretrained = Pretrained(path)
    model = question_answering_model(pretrained)
    with pytest.raises(ValueError, match=f"lacks {name}.*--allow-partial"):
        write_start(pretrained.trained, model, tmp_path / "start.pt")
    assert not (tmp_path / "start.pt").exists()
    report = write_start(pretrained.trained, model, tmp_path / "start.pt", allow_partial=True)
    assert name in report.new
    model.load_state_dict(torch.load(tmp_path / "start.pt", weights_only=False)["model"], strict=True)


def test_an_unknown_parameter_and_another_shape_are_errors(checkpoint, tmp_path):
    path = damaged(checkpoint, tmp_path / "more.pt", lambda state: state.update({"encoder.surprise": torch.ones(1)}))
    pretrained = Pretrained(path)
    with pytest.raises(ValueError, match=r"no place for encoder\.surprise"):
        write_start(pretrained.trained, question_answering_model(pretrained), tmp_path / "start.pt")
    name = "encoder.sentence_encoder.layers.0.fc2.bias"
    path = damaged(checkpoint, tmp_path / "shape.pt", lambda state: state.update({name: torch.ones(7)}))
    pretrained = Pretrained(path)
    with pytest.raises(ValueError, match=r"fc2\.bias has the shape \(7,\)"):
        write_start(pretrained.trained, question_answering_model(pretrained), tmp_path / "start.pt")


def test_another_vocabulary_is_refused(checkpoint, data_bin, tmp_path):
    smaller = make_data_bin(tmp_path / "smaller", vocab_size=80)
    with pytest.raises(ValueError, match=r"another vocabulary.*--data-bin"):
        Pretrained(checkpoint, smaller)
    same_size = make_data_bin(tmp_path / "same", ending="ßß ñandú ¡ola!")
    assert len((same_size / "dict.txt").read_text().splitlines()) == len((data_bin / "dict.txt").read_text().splitlines())
    with pytest.raises(ValueError, match="other symbols"):
        Pretrained(checkpoint, same_size)


def test_a_checkpoint_whose_data_is_elsewhere(checkpoint, data_bin, tmp_path):
    saved = torch.load(checkpoint, weights_only=False)
    saved["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(saved, tmp_path / "moved.pt")
    with pytest.raises(FileNotFoundError, match="say with --data-bin"):
        Pretrained(tmp_path / "moved.pt")
    assert Pretrained(tmp_path / "moved.pt", data_bin).arch == "roberta_tisa_tiny"


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="--checkpoint"):
        Pretrained(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("not a checkpoint")
    with pytest.raises(ValueError, match=r"--checkpoint.*text\.pt"):
        Pretrained(tmp_path / "text.pt")


def test_options_of_schemes_that_are_not_in_use_are_left_out(checkpoint, data_bin, tmp_path):
    """Older releases took them for training, where they had no effect; now they would be refused."""
    content = torch.load(checkpoint, weights_only=True)
    content["cfg"]["model"] |= {"shaw_terms": "keys", "tisa_kernels": None}
    torch.save(content, tmp_path / "old.pt")
    options = Pretrained(tmp_path / "old.pt", data_bin).model_options()
    assert (options.shaw_terms, options.tisa_kernels) == (None, 5)


def test_length_is_bound_by_tables_alone(pretrain, checkpoint):
    inductive, learned = Pretrained(checkpoint), Pretrained(pretrain("roberta_absolute_tiny"))
    assert learned.longest() == 32
    assert max_length(2000, inductive, least=4) == 2000
    with pytest.raises(ValueError, match=r"--max-length 33.*32 positions"):
        max_length(33, learned, least=4)


def test_length_is_that_of_pretraining_whatever_the_scheme(pretrain, checkpoint, data_bin, tmp_path):
    for path in (checkpoint, pretrain("roberta_absolute_tiny"), pretrain("roberta_tisa_tiny", "--max-positions", "64")):
        assert max_length(None, Pretrained(path), least=4) == 32
        assert max_length(None, Pretrained(path), least=4, default=24) == 24
    with pytest.raises(ValueError, match="--max-length 32: at least 40"):
        max_length(None, Pretrained(checkpoint), least=40)
    saved = torch.load(checkpoint, weights_only=False)  # of a task that has no such option
    saved["cfg"]["task"] = {"_name": "squad", "data": str(data_bin), "max_positions": 32}
    torch.save(saved, tmp_path / "squad.pt")
    assert Pretrained(tmp_path / "squad.pt").length == 32
    saved["cfg"]["task"]["tokens_per_sample"] = -3
    torch.save(saved, tmp_path / "damaged.pt")
    with pytest.raises(ValueError, match=r"damaged\.pt: its configuration has tokens_per_sample = -3"):
        max_length(None, Pretrained(tmp_path / "damaged.pt"), least=4)


def test_the_scheme_is_named(pretrain, checkpoint):
    assert Pretrained(checkpoint).positions == "tisa"
    assert Pretrained(pretrain("roberta_posenc_tiny", "--positions", "absolute+t5")).positions == "absolute+t5"
    assert Pretrained(pretrain("roberta_base", "--encoder-layers", "2")).positions == "absolute"


def test_a_name_of_other_positions_is_put_right(pretrain, data_bin, tmp_path):
    """Earlier releases trained any positions under the name of any architecture."""
    content = torch.load(pretrain("roberta_posenc_tiny", "--positions", "absolute+t5"), weights_only=True)
    content["cfg"]["model"]["_name"] = "roberta_tisa_tiny"
    torch.save(content, tmp_path / "old.pt")
    old = Pretrained(tmp_path / "old.pt", data_bin)
    assert (old.arch, old.positions) == ("roberta_posenc_tiny", "absolute+t5")
    report = write_start(old.trained, question_answering_model(old), tmp_path / "start.pt")
    assert report.unexpected == []
    assert old.model_options()._name == "roberta_posenc_tiny"


def test_span_head_keeps_its_own_weights_when_resumed():
    model = nn.Module()
    model.head = SpanHead(4)
    trained = {f"head.{name}": value + 1 for name, value in model.head.state_dict().items()}
    state = dict(trained, **{"head.dense.weight": torch.ones(4, 4)})
    model.head.upgrade_state_dict_named(state, "head")
    assert state.keys() == trained.keys()
    assert all(torch.equal(state[name], trained[name]) for name in trained)
