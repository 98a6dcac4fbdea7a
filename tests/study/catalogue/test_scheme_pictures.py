"""``fairseq-posenc schemes --plot``: the scores that they draw, and the files."""

import re

import pytest
import torch
from PIL import Image
from untrained import write_chance, write_untrained

from fairseq_posenc.base.plotting import grid, heat_maps
from fairseq_posenc.cli import main
from fairseq_posenc.study.catalogue.pictures import scores, untrained

N, HEADS = 6, 2


def matrices_of(positions, layers=(1,)):
    return [layer.matrices for layer in scores(untrained(positions, N, HEADS), N, layers)]


def test_alibi_is_its_bias():
    (matrices,) = matrices_of("alibi")
    distance = (torch.arange(N) - torch.arange(N)[:, None]).abs()
    for matrix, slope in zip(matrices, (2**-4, 2**-8), strict=True):
        assert matrix.tolist() == (-slope * distance).tolist()


def test_rope_is_the_kernel_of_equal_queries_and_keys():
    """s Σ_t |q_t|² cos((j - i) θ_t), less its mean, with the complex pairs q_t of each head's query."""
    encoder = untrained("rope", N, HEADS).double()
    with torch.no_grad():
        words = encoder.embed_tokens.weight
        x = encoder.layernorm_embedding((words.sum(0) - words[1]) / (len(words) - 1))
        pairs = encoder.layers[0].self_attn.q_proj(x).view(HEADS, 32, 2).square().sum(-1)
    r = (torch.arange(N) - torch.arange(N)[:, None]).double()
    theta = 10_000.0 ** (-torch.arange(32) / 32)
    expected = (pairs[:, None, None] * (r[..., None] * theta).cos()).sum(-1) / 8
    (matrices,) = matrices_of("rope")
    assert torch.allclose(matrices, expected - expected.mean((-2, -1), keepdim=True), atol=1e-6)


def test_layers_that_differ_and_their_windows():
    local, without = matrices_of("rope(window=2) | none", (1, 2))
    outside = (torch.arange(N) - torch.arange(N)[:, None]).abs() > 2
    assert torch.equal(local.isnan(), outside.expand_as(local))
    assert without.shape == (1, N, N)
    assert not without.any()


def test_ticks_of_a_logarithmic_scale_lie_on_it():
    figure, panels = grid(["", ""])
    heat_maps(panels, [torch.full((4, 4), 17.5), torch.full((4, 4), 0.175)], "")
    bar = figure.axes[-1]
    assert bar.get_ylim() == pytest.approx((-17.5, 17.5))
    assert [label.get_text() for label in bar.get_yticklabels()] == ["-10", "-1", "0", "1", "10"]


@pytest.fixture
def schemes(capsys, tmp_path, monkeypatch):
    """``schemes(words, status)``: what the command prints, where it runs in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def schemes(words, status=0):
        assert main(["schemes", *words.split()]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return schemes


def test_one_scheme_and_its_caption(schemes, tmp_path):
    text = schemes("absolute+tisa --plot sum.pdf --length 9")
    assert (tmp_path / "sum.pdf").read_bytes().startswith(b"%PDF")
    assert "The scores of 9 equal words before training" in text
    assert re.search(r"sum\.pdf: absolute\+tisa\. R² is 0\.\d\d to 0\.\d\d\.", text)
    assert "none.png: none. It adds nothing" in schemes("none --plot none.png --length 9 --heads 1")


def test_several_with_their_names(schemes, tmp_path):
    write_untrained(tmp_path / "model.pt", write_chance(tmp_path), "roberta_alibi_tiny")
    text = schemes("shaw t5 ./model.pt --plot three.svg --length 9")
    assert [line.partition(". ")[0] for line in text.splitlines()[1:]] == [
        "three.svg: shaw", "three.svg: t5", "three.svg: ./model.pt: alibi",
    ]  # fmt: skip
    svg = (tmp_path / "three.svg").read_text()
    places = [svg.index(f"<!-- {name} -->") for name in ("shaw", "t5", "./model.pt: alibi")]
    assert places == sorted(places)
    one, two = (
        Image.open(tmp_path / name)
        for name in ("one.png", "two.png")
        if schemes(f"tisa {'t5 ' * (name == 'two.png')}--plot {name}")
    )
    assert two.height > one.height


def test_layers_of_a_checkpoint(schemes, tmp_path):
    write_untrained(tmp_path / "model.pt", write_chance(tmp_path), "roberta_tisa_tiny")
    text = schemes("./model.pt --layers 2,1 --plot trained.svg --length 9")
    svg = (tmp_path / "trained.svg").read_text()
    assert "in ./model.pt. They differ" in text
    assert svg.index("layer 2, head 1") < svg.index("layer 1, head 2")
    assert "--layers 3" in schemes("./model.pt --layers 3 --plot another.svg", 2)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("tisa --plot picture", "--plot picture"),
        ("tisa --plot there.png", "--plot there.png exists"),
        ("./model.pt --plot a.png", "model.pt"),
        ("tisa --layers 2 --plot a.png", "--layers 2"),
    ],
)
def test_what_cannot_be_drawn(schemes, tmp_path, words, named):
    (tmp_path / "there.png").touch()
    assert re.search(named, schemes(words, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["there.png"]
