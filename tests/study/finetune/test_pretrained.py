"""What a checkpoint gives to a fine-tuned model, and what is refused."""

import shutil

import pytest
import torch
from fairseq import tasks
from omegaconf import OmegaConf
from torch import nn
from world import make_english

from fairseq_posenc.plugin.batches.squad import SquadHead
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.models.building import parse
from fairseq_posenc.study.finetune.tuning import max_length


def question_answering_model(pretrained):
    """A model as ``--task squad`` builds it from the checkpoint's options."""
    options = OmegaConf.create(vars(pretrained.options))
    arguments = [str(pretrained.vocabulary.folder), "--task", "squad", "--criterion", "squad", "--batch-size", "1"]
    cfg = parse(["--arch", pretrained.arch, *arguments, "--max-positions", str(options.max_positions)])
    return tasks.setup_task(cfg.task).build_model(options)


def test_everything_but_the_head_is_loaded(checkpoint):
    model = question_answering_model(Checkpoint(checkpoint))
    saved = torch.load(checkpoint, weights_only=False)["model"]
    head = {name: value.clone() for name, value in model.encoder.lm_head.state_dict().items()}
    model.load_state_dict(dict(saved), strict=True)
    state = model.state_dict()
    assert state.keys() == {name for name in saved if ".lm_head." not in name} | {f"encoder.lm_head.{name}" for name in head}
    assert all(torch.equal(state[name], saved[name]) for name in state if ".lm_head." not in name)
    assert all(torch.equal(state[f"encoder.lm_head.{name}"], value) for name, value in head.items())


def test_options_come_from_the_checkpoint(pretrain):
    pretrained = Checkpoint(pretrain("roberta_tisa_tiny", "--tisa-kernels", "3"))
    model = question_answering_model(pretrained)
    scheme = model.encoder.sentence_encoder.positions.tisa
    assert scheme.options.kernels == 3
    assert model.args.encoder_embed_dim == 32


def test_another_vocabulary_is_refused(checkpoint, data_bin, tmp_path):
    smaller = make_english(tmp_path / "smaller", vocab_size=80)
    with pytest.raises(ValueError, match=r"another vocabulary.*--data-bin"):
        Checkpoint(checkpoint, smaller).vocabulary  # noqa: B018
    same_size = make_english(tmp_path / "same", ending="ßß ñandú ¡ola!")
    assert len((same_size / "dict.txt").read_text().splitlines()) == len((data_bin / "dict.txt").read_text().splitlines())
    with pytest.raises(ValueError, match=r"dictionary, sentencepiece\.model"):
        Checkpoint(checkpoint, same_size).vocabulary  # noqa: B018


def test_a_checkpoint_whose_data_is_elsewhere(checkpoint, data_bin, tmp_path):
    saved = torch.load(checkpoint, weights_only=False)
    saved["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(saved, tmp_path / "moved.pt")
    with pytest.raises(FileNotFoundError, match="--data-bin"):
        Checkpoint(tmp_path / "moved.pt").vocabulary  # noqa: B018
    assert Checkpoint(tmp_path / "moved.pt", data_bin).arch == "roberta_tisa_tiny"


@pytest.mark.parametrize("files", [[], ["dict.txt"]], ids=["GLUE", "SQuAD"])
def test_a_checkpoint_whose_data_has_no_vocabulary(files, checkpoint, data_bin, tmp_path):
    """As those have that glue and squad have written."""
    for name in files:
        shutil.copy(data_bin / name, tmp_path)
    saved = torch.load(checkpoint, weights_only=False)
    saved["cfg"]["task"]["data"] = str(tmp_path)
    torch.save(saved, tmp_path / "tuned.pt")
    with pytest.raises(FileNotFoundError, match=rf"tuned\.pt was trained on {tmp_path}.*--data-bin"):
        Checkpoint(tmp_path / "tuned.pt").vocabulary  # noqa: B018


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*none\.pt"):
        Checkpoint(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("not a checkpoint")
    with pytest.raises(ValueError, match=r"text\.pt"):
        Checkpoint(tmp_path / "text.pt")


def test_length_is_bound_by_tables_alone(pretrain, checkpoint):
    inductive, learned = Checkpoint(checkpoint), Checkpoint(pretrain("roberta_absolute_tiny"))
    assert learned.max_length == 32
    assert max_length(2000, inductive, minimum=4) == 2000
    with pytest.raises(ValueError, match=r"--max-length 33.*32 tokens.*--positions absolute\."):
        max_length(33, learned, minimum=4)
    sampled = Checkpoint(pretrain("roberta_tisa_tiny", "--position-sampling", "random:48"))
    with pytest.raises(ValueError, match=r"--max-length 49.*48 tokens.*--position-sampling random:48"):
        max_length(49, sampled, minimum=4)


def test_length_is_that_of_pretraining_whatever_the_scheme(pretrain, checkpoint, data_bin, tmp_path):
    for path in (checkpoint, pretrain("roberta_absolute_tiny"), pretrain("roberta_tisa_tiny", "--max-positions", "64")):
        assert max_length(None, Checkpoint(path), minimum=4) == 32
        assert max_length(None, Checkpoint(path), minimum=4, default=24) == 24
    with pytest.raises(ValueError, match="--max-length 32: at least 40"):
        max_length(None, Checkpoint(checkpoint), minimum=40)
    saved = torch.load(checkpoint, weights_only=False)  # of a task that has no such option
    saved["cfg"]["task"] = {"_name": "squad", "data": str(data_bin), "max_positions": 32}
    torch.save(saved, tmp_path / "squad.pt")
    assert Checkpoint(tmp_path / "squad.pt").length == 32
    saved["cfg"]["task"]["tokens_per_sample"] = -3
    torch.save(saved, tmp_path / "damaged.pt")
    with pytest.raises(ValueError, match=r"damaged\.pt: its configuration has tokens_per_sample = -3"):
        max_length(None, Checkpoint(tmp_path / "damaged.pt"), minimum=4)


def test_the_scheme_is_named(pretrain, checkpoint):
    assert Checkpoint(checkpoint).positions == "tisa"
    assert Checkpoint(pretrain("roberta_posenc_tiny", "--positions", "absolute+t5")).positions == "absolute+t5"
    assert Checkpoint(pretrain("roberta_base", "--encoder-layers", "2")).positions == "absolute"


def test_span_head_keeps_its_own_weights_when_resumed():
    model = nn.Module()
    model.head = SquadHead(4)
    trained = {f"head.{name}": value + 1 for name, value in model.head.state_dict().items()}
    state = dict(trained, **{"head.dense.weight": torch.ones(4, 4)})
    model.head.upgrade_state_dict_named(state, "head")
    assert state.keys() == trained.keys()
    assert all(torch.equal(state[name], trained[name]) for name in trained)
