"""Longer tables of positions: which rows they have, what is left as it was, and what is refused."""

import pytest
import torch
from commands import status_of

from fairseq_posenc.core.schemes import REGISTRY, Positions, Settings
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint

PREFIX = "encoder.sentence_encoder.positions."


def grow(path, out, *flags):
    return status_of("grow", path, "--out", out, *flags)


def test_every_table_of_position_vectors_is_declared():
    """Those of schemes that learn positions, and not offsets or pairs; their rows are before the last dimension."""
    settings = Settings(layers=2, heads=2, dim=8, max_positions=7)
    found = {
        name: [table for table, parameter in scheme.named_parameters() if parameter.dim() >= 2 and parameter.shape[-2] == 7]
        for name in REGISTRY.keys() - {"none", "reset", "floater"}
        for scheme in Positions(name, settings).schemes
        if not scheme.inductive and not name.startswith("synthesizer")
    }
    declared = {name: list(REGISTRY[name].position_vectors) for name in found}
    assert declared == found
    assert sum(map(bool, declared.values())) == 4


@pytest.mark.parametrize(
    ("arch", "table"),
    [
        ("roberta_absolute_tisa_tiny", "absolute.weight"),
        ("roberta_tupe_r_tiny", "untied.weight"),
        ("modernbert_absolute_tisa_tiny", "sums.0.absolute.weight"),
    ],
)
def test_rows_are_repeated_and_the_beginning_gives_the_same(arch, table, checkpoint, tmp_path, capsys):
    path = checkpoint(arch)
    content = torch.load(path, weights_only=False)
    torch.save(content | {"extra_state": {"ema": content["model"], "epoch": 3}}, path)  # of tables of the old length
    before = path.read_bytes()
    assert grow(path, tmp_path / "long.pt", "--max-positions", "40") == 0
    assert "--max-positions 40 --tokens-per-sample 40" in capsys.readouterr().out
    assert path.read_bytes() == before
    short, long = Checkpoint(path), Checkpoint(tmp_path / "long.pt")
    assert [name for name, value in short.state.items() if not torch.equal(value, long.state[name])] == [PREFIX + table]
    old, new = short.state[PREFIX + table], long.state[PREFIX + table]
    assert len(new) == 40
    for row in range(40):
        assert torch.equal(new[row], old[row % 16])
    tokens = torch.randint(4, 30, (2, 40))
    tokens[:, 0] = 0
    torch.testing.assert_close(
        long.encoder()(tokens[:, :16]).last_hidden_state, short.encoder()(tokens[:, :16]).last_hidden_state
    )
    assert long.encoder()(tokens).last_hidden_state.isfinite().all()
    written = torch.load(tmp_path / "long.pt", weights_only=False)
    assert (written["last_optimizer_state"], written["extra_state"]) == (None, {"epoch": 3})


def test_a_length_that_follows_the_table_stays_as_it_is(checkpoint, tmp_path, capsys):
    path = checkpoint("roberta_posenc_tiny", positions="absolute+log_n", position_log_n="floor")
    assert grow(path, tmp_path / "long.pt", "--max-positions", "40") == 0
    assert "--log-n-length 16" in capsys.readouterr().out


@pytest.mark.parametrize("scheme", [{"positions": "absolute+deberta", "deberta_buckets": 4}, {"positions": "absolute+shaw"}])
def test_a_clip_that_follows_the_length_stays_as_it_is(scheme, checkpoint, tmp_path, capsys):
    path = checkpoint("roberta_posenc_tiny", **scheme)
    assert grow(path, tmp_path / "long.pt", "--max-positions", "40") == 0
    assert "--max-relative-position 15" in capsys.readouterr().out
    short, long = Checkpoint(path), Checkpoint(tmp_path / "long.pt")
    tokens = torch.randint(4, 30, (2, 16))
    torch.testing.assert_close(long.encoder()(tokens).last_hidden_state, short.encoder()(tokens).last_hidden_state)


def test_rows_lie_on_the_lines_between_the_old_ones(checkpoint, tmp_path):
    path = checkpoint("roberta_absolute_tiny")
    assert grow(path, tmp_path / "long.pt", "--max-positions", "31", "--method", "interpolate") == 0
    old, new = (Checkpoint(file).state[f"{PREFIX}absolute.weight"] for file in (path, tmp_path / "long.pt"))
    torch.testing.assert_close(new[::2], old)
    torch.testing.assert_close(new[1::2], (old[1:] + old[:-1]) / 2)


def test_positions_of_deberta_s_mask_decoder_grow_too(checkpoint, tmp_path):
    path = checkpoint("roberta_deberta_tiny", mask_decoder_steps=2, max_relative_position=8)
    assert grow(path, tmp_path / "long.pt", "--max-positions", "40") == 0
    state = Checkpoint(tmp_path / "long.pt").state
    assert torch.equal(
        state["encoder.sentence_encoder.mask_positions.weight"][16:32], Checkpoint(path).encoder().mask_positions.weight
    )
    assert Checkpoint(tmp_path / "long.pt").encoder().config.max_positions == 40


def test_a_model_that_has_diverged_does_not_grow(checkpoint, tmp_path, capsys):
    path = checkpoint("roberta_absolute_tiny")
    content = torch.load(path, weights_only=True)
    content["model"]["encoder.sentence_encoder.layers.0.fc1.bias"][3] = float("nan")
    torch.save(content, path)
    assert grow(path, tmp_path / "long.pt", "--max-positions", "40") == 2
    assert f"{path}: its encoder.sentence_encoder.layers.0.fc1.bias is not finite" in capsys.readouterr().err
    assert not (tmp_path / "long.pt").exists()


@pytest.mark.parametrize(
    ("arch", "flags", "said"),
    [
        ("tisa", "--max-positions 40", "positions tisa take any length"),
        ("m4", "--max-positions 40", "m4 learns no vector per position"),
        ("synthesizer_random", "--max-positions 40", "synthesizer_random learns no vector per position"),
        ("absolute", "--max-positions 16", "has 16 positions already"),
        ("absolute", f"--max-positions {10**9}", "--max-positions must be at most 1048576"),
        ("absolute", "--max-positions 40 --method stretch", "invalid choice: 'stretch'"),
        ("absolute_m4m", "--max-positions 40", "m4m learns no vector per position"),
    ],
)
def test_what_cannot_grow_is_refused(arch, flags, said, checkpoint, tmp_path, capsys):
    assert grow(checkpoint(f"roberta_{arch}_tiny"), tmp_path / "long.pt", *flags.split()) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "long.pt").exists()


def test_rows_that_sampling_would_never_use_are_refused(checkpoint, tmp_path, capsys):
    path = checkpoint("roberta_absolute_tiny", max_positions=16, position_sampling="random:16")
    assert grow(path, tmp_path / "long.pt", "--max-positions", "40") == 2
    assert "--position-sampling random:16" in capsys.readouterr().err


def test_the_source_is_never_written_over(checkpoint, tmp_path, capsys):
    path = checkpoint("roberta_absolute_tiny")
    assert grow(path, path, "--max-positions", "40", "--overwrite") == 2
    assert "is CHECKPOINT" in capsys.readouterr().err
    (tmp_path / "there.pt").write_text("mine")
    assert grow(path, tmp_path / "there.pt", "--max-positions", "40") == 2
    assert (tmp_path / "there.pt").read_text() == "mine"
