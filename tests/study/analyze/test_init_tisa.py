"""What init-tisa writes: the paper's cases a) and b), their baselines, and what is refused."""

import pytest
import torch
from commands import status_of
from untrained import write_chance, write_untrained

from fairseq_posenc.cli import main
from fairseq_posenc.core.transformer import Encoder, EncoderConfig
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.study.analyze.embeddings import positional_scores
from fairseq_posenc.study.analyze.init_tisa import fitted
from fairseq_posenc.study.analyze.regression import fit

pytest.importorskip("transformers")
pytest.importorskip("scipy")
ENCODER = "encoder.sentence_encoder."
TISA = ("amplitude", "sharpness", "offset")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_chance(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def absolute(data, tmp_path_factory):
    return write_untrained(tmp_path_factory.mktemp("checkpoint") / "absolute.pt", data, "roberta_absolute_tiny")


def init(model, out, *flags):
    return status_of("init-tisa", model, "--out", out / "model.pt", *flags)


@pytest.mark.parametrize("replace", [False, True])
def test_each_head_gets_the_function_of_its_positions(replace, absolute, tmp_path, capsys):
    assert init(absolute, tmp_path, "--kernels", "2", *(["--replace"] if replace else [])) == 0
    assert f"--checkpoint {tmp_path / 'model.pt'}" in capsys.readouterr().out
    before, after = Checkpoint(absolute), Checkpoint(tmp_path / "model.pt")
    encoder = before.encoder()
    encoder.layers = encoder.layers[1:]  # the second is as if it were the first
    expected, _ = fit(positional_scores(encoder, 16), 2)
    for i, name in enumerate(TISA):
        found = after.state[f"{ENCODER}positions.tisa.{name}"]
        assert found.shape == (2, 2, 2)
        torch.testing.assert_close(found[1].double(), expected[:, i], rtol=1e-4, atol=1e-4)
    words = before.state[f"{ENCODER}embed_tokens.weight"]
    table = f"{ENCODER}positions.absolute.weight"
    if replace:
        words = words + before.state[table].mean(0)
    else:
        assert torch.equal(after.state[table], before.state[table])
    assert torch.equal(after.state[f"{ENCODER}embed_tokens.weight"], words)
    assert Checkpoint(tmp_path / "model.pt").positions == ("tisa" if replace else "absolute+tisa")


def test_the_scale_of_the_scores_stays(data, tmp_path):
    path = write_untrained(tmp_path / "scaled.pt", data, "roberta_absolute_tiny", position_scale_factor=2.0)
    assert init(path, tmp_path / "out", "--kernels", "1") == 0
    assert Checkpoint(tmp_path / "out/model.pt").encoder().positions.settings.factor == 2


def test_layers_that_share_their_weights_begin_alike(capsys):
    """ALBERT's, with parameters of TISA for each layer."""
    torch.manual_seed(0)
    sizes = {"layers": 4, "layer_groups": 2, "dim": 16, "embed_dim": 8, "ffn_dim": 16, "heads": 2, "max_positions": 12}
    found = fitted(Encoder(EncoderConfig(vocab_size=20, **sizes)).eval(), 2, "it")
    assert [values.shape for values in found.values()] == [(4, 2, 2)] * 3
    for values in found.values():
        assert torch.equal(values[0], values[1])
        assert torch.equal(values[2], values[3])
        assert not torch.equal(values[1], values[2])
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2


def test_no_kernels_are_the_baselines(absolute, tmp_path, capsys):
    assert init(absolute, tmp_path / "a", "--kernels", "0") == 0
    assert "outputs differ from the source's by 0 at most" in capsys.readouterr().out
    assert init(absolute, tmp_path / "b", "--kernels", "0", "--replace") == 0
    words = Checkpoint(tmp_path / "b/model.pt")
    assert words.positions == "none"
    encoder = words.encoder()
    tokens = torch.tensor([[0, 5, 6, 7, 8, 2]])
    assert torch.allclose(
        encoder(tokens).last_hidden_state.flip(1), encoder(tokens.flip(1)).last_hidden_state, atol=1e-5
    )  # a bag of words


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--kernels -1", "--kernels must be at least 0, got -1"),
        ("--kernels many", "--kernels"),
        ("--kernels 11", "has 16 positions, whose 31 offsets do not determine so many"),
        ("--kernels 2 --data-bin {tmp_path}", "dict.txt"),
    ],
)
def test_bad_flags_are_refused(flags, said, absolute, tmp_path, capsys):
    assert init(absolute, tmp_path / "out", *flags.format(tmp_path=tmp_path).split()) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out/model.pt").exists()


def test_a_model_without_such_positions_is_refused(data, tmp_path, capsys):
    path = write_untrained(tmp_path / "t5.pt", data, "roberta_t5_tiny")
    assert init(path, tmp_path / "out", "--kernels", "2") == 2
    assert "has the positions t5, and TISA is fitted to learned absolute positions" in capsys.readouterr().err


def test_scores_that_are_no_sum_are_refused(data, tmp_path, capsys):
    path = write_untrained(tmp_path / "scaled.pt", data, "roberta_absolute_tiny", position_log_n="ssmax")
    assert init(path, tmp_path / "out", "--kernels", "2") == 2
    assert "TISA is fitted to the scores of positions alone, and rotations, mixtures" in capsys.readouterr().err


def test_scores_that_are_not_finite_are_refused(absolute, tmp_path, capsys):
    content = torch.load(absolute, weights_only=False)
    content["model"][f"{ENCODER}positions.absolute.weight"][3] = float("nan")
    torch.save(content, tmp_path / "diverged.pt")
    assert init(tmp_path / "diverged.pt", tmp_path / "out", "--kernels", "2") == 2
    assert "in layer 1, scores of positions are not finite" in capsys.readouterr().err


def test_the_model_is_never_written_over(absolute, capsys):
    assert main(["init-tisa", str(absolute), "--kernels", "2", "--out", str(absolute), "--overwrite"]) == 2
    assert "itself: name another file" in capsys.readouterr().err
