"""The loss by length and by position, against one model call per sequence; and what is refused."""

import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from commands import status_of
from fairseq.data import data_utils
from torch.nn import functional as F

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.cli import main
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.study.measure import losses
from fairseq_posenc.study.measure.extrapolate import _model

FLAGS = ["--lengths", "16,40", "--tokens", "300"]


@pytest.mark.parametrize("n", [16, 40])
def test_the_loss_is_that_of_each_sequence_alone(checkpoint, data, n):
    pretrained = Checkpoint(checkpoint("roberta_t5_tiny"), data)
    model, dictionary = pretrained.model, pretrained.vocabulary.dictionary
    text = losses.read(pretrained, data, 300, 40)
    assert len(text.tokens) == 300
    assert torch.equal(text.inputs[~text.predicted], text.tokens[~text.predicted])
    assert 0.6 < text.inputs[text.predicted].eq(dictionary.index("<mask>")).float().mean() < 0.95
    found = losses.predict(model, text, n).summary()
    expected, places = [], []
    for start in range(0, len(text.tokens), n - 1):
        sequence = torch.tensor([dictionary.bos(), *text.inputs[start : start + n - 1].tolist()])
        with torch.no_grad():
            logits = model(sequence[None])[0].double()
        for place in range(1, len(sequence)):
            if text.predicted[start + place - 1]:
                expected.append(F.cross_entropy(logits[place], text.tokens[start + place - 1]).item() / math.log(2))
                places.append(place)
    assert found["predicted"] == len(expected) == text.predicted.sum()
    assert found["sequences"] == -(-len(text.tokens) // (n - 1))
    assert found["loss"] == pytest.approx(torch.tensor(expected).mean().item(), abs=1e-5)
    spread = torch.tensor(expected).std(correction=0).item()
    assert found["error"] == pytest.approx(spread / len(expected) ** 0.5, abs=1e-5)
    assert [found["parts"][0]["from"], found["parts"][-1]["to"]] == [0, n - 1]
    for part in found["parts"]:
        own = [loss for loss, place in zip(expected, places, strict=True) if part["from"] <= place <= part["to"]]
        assert part["predicted"] == len(own)
        if own:
            assert part["loss"] == pytest.approx(sum(own) / len(own), abs=1e-5)
            assert part["error"] == pytest.approx(torch.tensor(own).std(correction=0).item() / len(own) ** 0.5, abs=1e-5)
        else:
            assert (part["loss"], part["error"]) == (None, None)


@pytest.mark.parametrize("n", [16, 40])
def test_a_text_is_read_from_left_to_right(checkpoint, data, n):
    """Each token is predicted from those before it, of which the first is the last one of the sequence before."""
    pretrained = Checkpoint(checkpoint("transformer_lm_t5_tiny"), data, may_be_causal=True)
    dictionary = pretrained.vocabulary.dictionary
    lines = data_utils.load_indexed_dataset(str(data / "valid"), dictionary)
    tokens = torch.cat([lines[number] for number in range(len(lines))]).long()[:300]
    inputs = torch.cat([torch.tensor([dictionary.eos()]), tokens[:-1]])
    found = losses.predict(pretrained.model, losses.read(pretrained, data, 300, 40), n).summary()
    with torch.no_grad():
        scores = torch.cat([pretrained.model(part[None])[0] for part in inputs.split(n)]).double()
    expected = F.cross_entropy(scores, tokens, reduction="none") / math.log(2)
    assert (found["predicted"], found["sequences"]) == (300, -(-300 // n))
    assert found["loss"] == pytest.approx(expected.mean().item(), abs=1e-5)
    first = expected[torch.arange(300) % n < n // 8]
    assert found["parts"][0]["loss"] == pytest.approx(first.mean().item(), abs=1e-5)


def test_what_order_costs_a_model_that_reads_from_left_to_right(checkpoint, data):
    """Nothing where all words before the last are alike: in one layer without positions. In two, the causal mask orders them."""
    for layers in (1, 2):
        pretrained = Checkpoint(checkpoint("transformer_lm_none_tiny", decoder_layers=layers), data, may_be_causal=True)
        text = losses.read(pretrained, data, 300, 16)
        permuted = text.permuted(16)
        places = torch.arange(300) % 16
        assert torch.equal(permuted.predicted, (places == 7) | (places == 15))
        assert torch.equal(permuted.inputs[permuted.predicted], text.inputs[permuted.predicted])
        for ours, theirs in zip(permuted.inputs.split(8), text.inputs.split(8), strict=True):
            assert torch.equal(ours.sort().values, theirs.sort().values)
        in_order, moved = (losses.predict(pretrained.model, each, 16).losses for each in (text, permuted))
        assert torch.allclose(in_order[permuted.predicted], moved, atol=1e-4) == (layers == 1)


def test_masks_are_the_same_in_threads(checkpoint, data):
    """As of runs of a grid that end at the same time."""
    pretrained = Checkpoint(checkpoint("roberta_t5_tiny"), data)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(lambda _: losses.read(pretrained, data, 1000, 40), range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert all(torch.equal(text.inputs, texts[0].inputs) for text in texts)


def test_the_command_resumes(checkpoint, data, tmp_path, capsys, monkeypatch):
    command = ["extrapolate", str(checkpoint("roberta_rope_tiny")), "--data", str(data), *FLAGS, "--out", str(tmp_path / "out")]
    assert main(command) == 0
    table = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:4]] == ["16", "40"]
    assert (tmp_path / "out/results.md").read_text("utf-8").startswith(table.rstrip())
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert [each["length"] for each in found["lengths"]] == [16, 40]
    assert (found["pretrained_on"], found["tokens"]) == (16, 300)
    assert (tmp_path / "out/extrapolation.png").stat().st_size > 10_000
    monkeypatch.setattr(losses, "predict", lambda *_: pytest.fail("it is done already"))
    assert main(command) == 0
    assert main([*command, "--rope-base", "100"]) == 2
    assert "is of another configuration: options.rope_base was None, now 100.0" in capsys.readouterr().err


def test_an_extension_of_rope_acts_without_training(checkpoint, data):
    pretrained = Checkpoint(checkpoint("roberta_rope_tiny"), data)
    text = losses.read(pretrained, data, 40, 40)
    plain, stretched = (_model(pretrained, changes, 40) for changes in ({}, {"rope_type": "linear", "rope_factor": 2.0}))
    assert losses.predict(stretched, text, 40).summary()["loss"] != losses.predict(plain, text, 40).summary()["loss"]
    with torch.no_grad():
        stretched.encoder.sentence_encoder.positions = plain.encoder.sentence_encoder.positions
    assert losses.predict(stretched, text, 40).summary()["loss"] == losses.predict(plain, text, 40).summary()["loss"]


def test_a_model_that_reads_from_left_to_right(checkpoint, data, tmp_path, capsys):
    command = ["extrapolate", checkpoint("transformer_lm_rope_tiny"), "--data", data, *FLAGS, "--out", tmp_path / "out"]
    assert status_of(*command, "--rope-base", "100") == 0
    assert "|                    40 |" in capsys.readouterr().out
    absolute = ["extrapolate", checkpoint("transformer_lm_absolute_tiny"), *command[2:]]
    assert status_of(*absolute) == 2
    assert "learned 16 positions and has none beyond (positions absolute)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arch", "flags", "said"),
    [
        ("absolute", "--lengths 16,32", "--lengths 32"),
        ("m4", "--lengths 16,32", "learned 16 positions and has none beyond (positions m4)"),
        ("t5", "--lengths 16,x", "--lengths"),
        ("t5", "--lengths 8,16", "--lengths must be at least 16, got 8"),
        ("t5", "--lengths 16,4096", "valid has 2,000 tokens, fewer than one sequence needs"),
        ("t5", "--lengths 16,32 --tokens 20", "--tokens is 20, fewer than one sequence needs"),
        ("t5", "--lengths 16,32 --tokens -5", "--tokens is -5, fewer than one sequence needs"),
        ("t5", "--lengths 16,32 --rope-base 3", "--rope-base 3.0 means nothing to --positions t5, only to rope"),
        ("t5", "--lengths 16,32 --t5-buckets 8", "--t5-buckets: {path} was trained with another shape of positions.t5.weight"),
        ("rope", "--lengths 16,32 --rope-type linear", "--rope-type linear needs a value of --rope-factor"),
    ],
)
def test_what_cannot_be_measured_is_refused(arch, flags, said, checkpoint, data, tmp_path, capsys):
    path = checkpoint(f"roberta_{arch}_tiny")
    assert status_of("extrapolate", path, "--data", data, "--out", tmp_path / "out", *flags.split()) == 2
    assert said.format(path=path) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_learned_positions_are_measured_as_far_as_they_reach(checkpoint, data):
    pretrained = Checkpoint(checkpoint("roberta_absolute_tiny", max_positions=40), data)
    assert _model(pretrained, {}, 40)
    with pytest.raises(InputError, match="learned 40 positions"):
        _model(pretrained, {}, 41)
    grown = Checkpoint(checkpoint("roberta_deberta_tiny", mask_decoder_steps=2, max_relative_position=8), data)
    with pytest.raises(InputError, match=r"learned 16 positions .*the enhanced mask decoder"):
        _model(grown, {}, 17)


def test_lengths_beyond_sampled_positions_are_refused(checkpoint, data):
    sampled = Checkpoint(checkpoint("roberta_rope_tiny", position_sampling="random:32"), data)
    assert _model(sampled, {}, 32)
    with pytest.raises(InputError, match=r"--lengths 33: .*--position-sampling random:32"):
        _model(sampled, {}, 33)


def test_what_the_task_does_besides_is_named_and_left_out(checkpoint, data, caplog):
    """Lines of 10 tokens are whole, though the task would cut them at 8, and lengths agree on the text."""
    path = checkpoint("roberta_t5_tiny")
    whole = losses.read(Checkpoint(path, data), data, 300, 16)
    content = torch.load(path, weights_only=False)
    changes = {"_name": "masked_lm_static", "pack_documents": True, "shorten_method": "truncate", "tokens_per_sample": 8}
    content["cfg"]["task"] |= changes
    torch.save(content, path)
    text = losses.read(Checkpoint(path, data), data, 300, 16)
    assert torch.equal(text.tokens, whole.tokens)
    assert sum(text.sizes(8)) == sum(text.sizes(16)) == 300
    for flag in (str(path), "--pack-documents", "--shorten-method"):
        assert flag in caplog.text
    assert "--document-mask" not in caplog.text


def test_another_dictionary_is_refused(checkpoint, data, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    for path in data.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    lines = (data / "dict.txt").read_text().splitlines(keepends=True)
    (other / "dict.txt").write_text("".join(reversed(lines)))
    path = checkpoint("roberta_t5_tiny")
    assert main(["extrapolate", str(path), "--data", str(other), *FLAGS, "--out", str(tmp_path / "out")]) == 2
    assert "another vocabulary" in capsys.readouterr().err
    (other / "valid.idx").unlink()
    (other / "dict.txt").write_text("".join(lines))
    assert main(["extrapolate", str(path), "--data", str(other), *FLAGS, "--out", str(tmp_path / "out")]) == 2
    assert "has no valid.bin and valid.idx" in capsys.readouterr().err
