"""Scoring functions out of a checkpoint, and their picture."""

import math

import pytest
import torch

from fairseq_posenc import cli
from fairseq_posenc.analysis.figure import scoring_figure
from fairseq_posenc.analysis.scoring import reach, scoring_curves, tisa_parameters

LAYERS, HEADS, KERNELS = 2, 3, 2


@pytest.fixture
def kernels():
    torch.manual_seed(0)
    return tuple(torch.randn(LAYERS, HEADS, KERNELS) for _ in range(3))


@pytest.fixture
def checkpoint(tmp_path, kernels):
    prefix = "encoder.sentence_encoder.positions."
    names = ("amplitude", "sharpness", "offset")
    model = {f"{prefix}tisa.{name}": value for name, value in zip(names, kernels, strict=True)}
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": {**model, "encoder.sentence_encoder.embed_tokens.weight": torch.zeros(4, 2)}}, path)
    return path


def test_curves_are_equation_5(checkpoint, kernels):
    """f(r) = Σ_s a_s exp(-|b_s| (r - c_s)²), added up here in double precision, kernel by kernel."""
    curves = scoring_curves(tisa_parameters(checkpoint), torch.tensor([-3, 0, 2]))
    assert curves.shape == (LAYERS, HEADS, 3)
    for layer in range(LAYERS):
        for head in range(HEADS):
            for column, r in enumerate((-3, 0, 2)):
                rows = zip(*(kernel[layer, head].tolist() for kernel in kernels), strict=True)
                expected = sum(a * math.exp(-abs(b) * (r - c) ** 2) for a, b, c in rows)
                assert curves[layer, head, column].item() == pytest.approx(expected, abs=1e-5)


def test_reach_is_where_the_functions_fade():
    """One kernel of width 1 at -7: what is left of it at distance 1 is 1/e, at distance 2 e^-4, less than 2 percent."""
    parameters = tuple(torch.full((1, 1, 1), value) for value in (2.0, 1.0, -7.0))
    assert reach(parameters, limit=50) == 8
    assert reach(parameters, limit=7) == 7


def test_figure_has_a_panel_a_layer_and_a_line_a_head(kernels):
    figure = scoring_figure(kernels, max_offset=4)
    assert [panel.get_title() for panel in figure.axes] == ["layer 1", "layer 2"]
    for layer, panel in enumerate(figure.axes):
        lines = [line for line in panel.lines if line.get_label().startswith("head")]
        assert len(lines) == HEADS
        for head, line in enumerate(lines):
            assert list(line.get_xdata()) == list(range(-4, 5))
            expected = scoring_curves(kernels, torch.arange(-4, 5))[layer, head]
            assert torch.equal(torch.as_tensor(line.get_ydata()), expected)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_plot_command(checkpoint, tmp_path, ending):
    out = tmp_path / "pictures" / f"heads.{ending}"
    assert cli.main(["plot", str(checkpoint), "--out", str(out), "--title", "two layers"]) == 0
    assert out.stat().st_size > 1000
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_a_file_that_is_there_is_replaced_only_where_that_is_asked_for(checkpoint, tmp_path, capsys):
    out = tmp_path / "heads.png"
    out.write_text("mine")
    assert cli.main(["plot", str(checkpoint), "--out", str(out)]) == 2
    assert f"--out {out} exists: name another file, or add --overwrite" in capsys.readouterr().err
    assert out.read_text() == "mine"
    before = checkpoint.read_bytes()
    assert cli.main(["plot", str(checkpoint), "--out", str(checkpoint), "--overwrite"]) == 2
    assert checkpoint.read_bytes() == before
    assert cli.main(["plot", str(checkpoint), "--out", str(out), "--overwrite"]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_plot_command_names_what_is_wrong(checkpoint, tmp_path, capsys):
    absolute = tmp_path / "absolute.pt"
    torch.save({"model": {"encoder.sentence_encoder.positions.absolute.weight": torch.zeros(4, 2)}}, absolute)
    text = tmp_path / "text.txt"
    text.write_text("no checkpoint", "utf-8")
    for arguments, message in [
        ((absolute, "--out", tmp_path / "x.png"), "has no TISA kernels (its positional parameters: absolute)"),
        ((text, "--out", tmp_path / "x.png"), "text.txt cannot be read as a checkpoint"),
        ((tmp_path / "missing.pt", "--out", tmp_path / "x.png"), "missing.pt"),
        ((checkpoint, "--out", tmp_path / "x.doc"), "'doc' is not supported"),
        ((checkpoint, "--out", tmp_path / "x.png", "--max-offset", 0), "--max-offset 0: at least 1"),
    ]:
        assert cli.main(["plot", *map(str, arguments)]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*.png"))
