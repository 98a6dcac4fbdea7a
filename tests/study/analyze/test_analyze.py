"""The command: its page, its numbers, and what it says of input that it cannot use."""

import json
import re
import shutil
from contextlib import suppress

import pytest
import torch
from omegaconf import OmegaConf
from pages import Page
from untrained import plain
from world import make_english, sentences

from fairseq_posenc import load_vocabulary
from fairseq_posenc.cli import main
from fairseq_posenc.plugin.checkpoint.checkpoint_file import untrained, write
from fairseq_posenc.plugin.models.building import build
from fairseq_posenc.study.analyze import examine, models
from fairseq_posenc.study.analyze.models import read
from fairseq_posenc.study.analyze.toeplitz import r_squared

SIZES = dict(encoder_layers=2, encoder_embed_dim=8, encoder_ffn_embed_dim=8, encoder_attention_heads=2, max_positions=20)


@pytest.fixture(scope="module")
def data_bin(world):
    return world.english


@pytest.fixture(scope="module")
def save(data_bin, tmp_path_factory):
    """``save(folder, arch, seed, updates)``: a checkpoint as fairseq's trainer writes it."""
    root = tmp_path_factory.mktemp("runs")

    def save(folder, arch, seed=1, updates=0, name="checkpoint_last.pt"):
        torch.manual_seed(seed)
        model = build(arch, OmegaConf.create({"_name": arch, **SIZES}), load_vocabulary(data_bin).dictionary)
        task = {"_name": "masked_lm", "data": str(data_bin), "tokens_per_sample": SIZES["max_positions"]}
        cfg = {"model": OmegaConf.to_container(model.args), "task": task, "criterion": {"_name": "masked_lm"}}
        content = untrained(plain(cfg), model)
        content["optimizer_history"][0]["num_updates"] = updates
        (root / folder).mkdir(parents=True, exist_ok=True)
        write(root / folder / name, content)
        return root / folder / name

    return save


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(sentences(60, seed=3)), "utf-8")
    return path


def pictures_in(out):
    return {str(path.relative_to(out).with_suffix("")) for path in out.rglob("*.png")}


def test_a_page_with_all_its_parts(save, text, tmp_path, capsys, quick_pictures):
    save("<run>/checkpoints", "roberta_absolute_tiny", seed=1, updates=5, name="checkpoint_1_5.pt")
    run = save("<run>/checkpoints", "roberta_absolute_tiny", seed=2, updates=9)
    tupe = save("tupe", "roberta_tupe_a_tiny")
    out = tmp_path / "out"
    command = ["analyze", str(run.parent.parent), f"ours={tupe}", "--out", str(out), "--text", str(text), "--length", "12"]
    assert main([*command, "--windows", "8"]) == 0
    assert str(out / "report.html") in capsys.readouterr().out

    page = Page((out / "report.html").read_text("utf-8"))
    pictures = pictures_in(out)
    assert pictures == {str(path.relative_to(out).with_suffix("")) for path in out.rglob("*.pdf")}
    parts = {f"figures/{name}" for name in ("run", "kinds", "linear")}
    parts |= {f"models/-run-/{name}" for name in ("products", "scores", "rows", "correlations", "content")}
    parts |= {"models/ours/correlations", "models/ours/bias"}
    assert pictures == parts
    assert page.captions == len(page.sources) == len(pictures)
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert all(link.startswith("#") for link in page.links)

    absolute, ours = json.loads((out / "results.json").read_text("utf-8"))["models"]
    vectors = read(str(run), None, False).encoder.positions.absolute.weight.detach()
    assert absolute["r_squared"] == pytest.approx(r_squared(vectors @ vectors.T).item())
    assert list(absolute["run"]) == ["5", "9"]
    assert absolute["run"]["9"] == pytest.approx(absolute["r_squared"])
    assert absolute["vectors"]["rank"]["full"] == 8
    assert ours["vectors"] is None
    assert [rank["full"] <= 4 + 2 for rank in ours["text"]["bias_ranks"]] == [True, True]  # d, and the two of [CLS]
    assert 0 < ours["r_squared"] < 1
    assert {kind for layer in ours["text"]["kinds"] for kind in layer} <= {"previous", "next", "local", "global", "flat", "[CLS]"}
    assert len(ours["functions"]["bias"]["values"][0][0]) == 21  # offsets from -10 to 10: without [CLS]
    assert [len(values) for values in ours["text"]["linear_probes"].values()] == [3, 3, 3]


@pytest.mark.thorough
def test_a_killed_analysis_continues(save, tmp_path, monkeypatch, capsys):
    tisa, absolute = save("first", "roberta_tisa_tiny"), save("second", "roberta_absolute_tiny")
    look, labels = examine.examine, []

    def stopped(model, *rest, **options):
        labels.append(model.label)
        if labels == ["a", "b"]:
            raise KeyboardInterrupt
        return look(model, *rest, **options)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(examine, "examine", stopped)
    command = ["analyze", f"a={tisa}", f"b={absolute}", "--length", "12", "--out"]
    with suppress(KeyboardInterrupt):
        main([*command, str(tmp_path / "killed")])
    assert main([*command, str(tmp_path / "killed")]) == 0
    assert labels == ["a", "b", "b"]
    assert main([*command, str(tmp_path / "whole")]) == 0
    assert (tmp_path / "killed" / "report.html").read_bytes() == (tmp_path / "whole" / "report.html").read_bytes()
    mine = [tmp_path / "killed" / name for name in ("findings/my.pt", "models/a/my.pt", "figures/my.png", "notes.txt")]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    more = ["analyze", f"a={tisa}", f"c={tisa}", f"b={absolute}", *command[3:], str(tmp_path / "killed")]
    monkeypatch.setattr(examine, "examine", interrupted)
    with suppress(KeyboardInterrupt):  # in a folder that holds a finished run
        main(more)
    monkeypatch.setattr(examine, "examine", look)
    assert main(more) == 0
    assert [path.read_text() for path in mine] == ["mine"] * 4
    assert main([*command, str(tmp_path / "killed"), "--length", "13"]) == 2
    assert "length was 12, now 13" in capsys.readouterr().err


def test_names_on_the_hub_are_told_apart(save, tmp_path, monkeypatch, capsys):
    """Two models under one label, neither of which is a file."""
    path, load = save("hub", "roberta_tisa_tiny"), models.read
    monkeypatch.setattr(models, "read", lambda model, *rest: load(f"m={path}", *rest))
    command = ["--length", "8", "--out", str(tmp_path)]
    assert main(["analyze", "m=bert-base", *command]) == 0
    assert main(["analyze", "m=roberta-base", *command]) == 2
    assert "roberta-base" in capsys.readouterr().err
    assert main(["analyze", "m=bert-base", *command]) == 0


def test_without_a_text_it_says_so(save, tmp_path):
    out = tmp_path / "out"
    assert main(["analyze", str(save("m4m", "roberta_m4m_tiny")), "--out", str(out)]) == 0
    assert "No text was read" in (out / "report.html").read_text("utf-8")
    assert pictures_in(out) == {"models/m4m/query", "models/m4m/key"}


@pytest.mark.thorough
def test_each_model_has_its_data_bin(save, data_bin, text, tmp_path, capsys):
    """The text is read in the vocabulary of its own model; a wrong one is named before the first model is looked at."""
    first, second = save("one", "roberta_tisa_tiny"), save("two", "roberta_t5_tiny")
    copy = shutil.copytree(data_bin, tmp_path / "copy")
    other = make_english(tmp_path / "other", vocab_size=60)
    command = ["analyze", str(first), str(second), "--text", str(text), "--length", "12", "--windows", "4"]
    assert main([*command, "--data-bin", f"two={other}", "--out", str(tmp_path / "bad")]) == 2
    assert str(other) in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()
    assert main([*command, "--data-bin", str(other), "--data-bin", f"one={copy}", "--data-bin", f"two={copy}",
                 "--out", str(tmp_path / "good")]) == 0  # fmt: skip
    assert main([*command, "--data-bin", f"three={copy}", "--out", str(tmp_path / "bad")]) == 2
    assert "three" in capsys.readouterr().err


def test_input_that_cannot_be_used(save, text, tmp_path, capsys):
    tisa, none = save("tisa", "roberta_tisa_tiny"), save("none", "roberta_none_tiny")
    broken = torch.load(tisa, weights_only=False)
    broken["model"]["encoder.sentence_encoder.positions.tisa.offset"][0, 1, 2] = torch.nan
    torch.save(broken, tmp_path / "broken.pt")
    short, other = tmp_path / "short.txt", make_english(tmp_path / "other", vocab_size=60)
    short.write_text("A red ball.")
    (tmp_path / "folder").mkdir()
    for arguments, message in [
        ([none], "none has no positions to look at (--positions none)"),
        ([tisa, "--text", short], "tokens in the vocabulary of tisa, and two windows of --length 128 need 252"),
        ([tisa, "--text", text, "--data-bin", other], "another vocabulary"),
        ([tmp_path / "broken.pt"], "broken: its positions.tisa.offset is not finite (NaN or infinity)"),
        ([tisa, tisa], "two models are called tisa"),
        ([tisa, "--length", 3], "--length must be at least 8, got 3"),
        ([tisa, "--length", 10**9], "--length must be at most 2048"),
        ([tisa, tmp_path / "folder"], "cannot be read as a model of transformers"),
    ]:
        assert main(["analyze", *map(str, arguments), "--out", str(tmp_path / "out")]) == 2
        assert re.sub(r"\s+", " ", capsys.readouterr().err).find(message) >= 0, message
        assert not (tmp_path / "out").exists()
