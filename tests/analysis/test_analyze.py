"""The command: its page, its numbers, and what it says of input that it cannot use."""

import csv
import json
import os
import re
from contextlib import suppress
from html.parser import HTMLParser

import pytest
import torch
from finetuning.conftest import make_data_bin, sentences
from omegaconf import OmegaConf

from fairseq_posenc.analysis import findings
from fairseq_posenc.analysis.findings import examine
from fairseq_posenc.analysis.scores import read_scores
from fairseq_posenc.analysis.subjects import read
from fairseq_posenc.analysis.toeplitz import r_squared
from fairseq_posenc.cli import main
from fairseq_posenc.models.checkpoint import untrained, write
from fairseq_posenc.models.hub import load_vocabulary
from fairseq_posenc.models.options import build

SIZES = dict(encoder_layers=2, encoder_embed_dim=8, encoder_ffn_embed_dim=8, encoder_attention_heads=2, max_positions=20)


@pytest.fixture(scope="module")
def data_bin(tmp_path_factory):
    return make_data_bin(tmp_path_factory.mktemp("vocabulary") / "a")


@pytest.fixture(scope="module")
def save(data_bin, tmp_path_factory):
    """``save(folder, arch, seed, updates)``: a checkpoint as fairseq's trainer writes it."""
    root = tmp_path_factory.mktemp("runs")

    def save(folder, arch, seed=1, updates=0, name="checkpoint_last.pt"):
        torch.manual_seed(seed)
        model = build(arch, OmegaConf.create({"_name": arch, **SIZES}), load_vocabulary(data_bin).dictionary)
        task = {"_name": "masked_lm", "data": str(data_bin), "tokens_per_sample": SIZES["max_positions"]}
        cfg = {"model": OmegaConf.to_container(model.args), "task": task, "criterion": {"_name": "masked_lm"}}
        content = untrained(OmegaConf.create(cfg), model)
        content["optimizer_history"][0]["num_updates"] = updates
        (root / folder).mkdir(exist_ok=True)
        write(root / folder / name, content)
        return root / folder / name

    return save


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(sentences(60, seed=3)), "utf-8")
    return path


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text):
        super().__init__()
        self.open, self.sources, self.captions, self.links = [], [], 0, []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.captions += tag == "figcaption"
        self.sources += [found[name] for name in ("src", "srcset") if name in found]
        self.links += [found["href"]] if tag == "a" else []
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_page_with_all_its_parts(save, text, tmp_path, capsys):
    save("<run>", "roberta_absolute_tiny", seed=1, updates=5, name="checkpoint_1_5.pt")
    run = save("<run>", "roberta_absolute_tiny", seed=2, updates=9)
    tupe = save("tupe", "roberta_tupe_a_tiny")
    scores = tmp_path / "scores.csv"
    scores.write_text("model,score,after\n<run>,80,\nours,81.5,<run>\n")
    out = tmp_path / "out"
    command = ["analyze", str(run.parent), f"ours={tupe}", "--out", str(out), "--text", str(text), "--length", "12"]
    assert main([*command, "--windows", "8", "--scores", str(scores)]) == 0
    assert str(out / "index.html") in capsys.readouterr().out

    page = Page((out / "index.html").read_text("utf-8"))
    pictures = [path.stem for path in sorted((out / "figures").glob("*.png"))]
    assert pictures == sorted(path.stem for path in (out / "figures").glob("*.pdf"))
    parts = {"products", "score", "run", "kinds", "identical", "linear", "swaps"}
    parts |= {f"{part}-1--run-" for part in ("scores", "rows", "correlations")} | {"correlations-2-ours", "bias-2-ours"}
    assert set(pictures) == parts
    assert page.captions == len(pictures)
    assert len(page.sources) == 2 * len(pictures)  # light and dark
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert all(link.startswith("#") for link in page.links)

    absolute, ours = json.loads((out / "analysis.json").read_text("utf-8"))
    vectors = read(str(run), None, False).encoder.positions.absolute.weight.detach()
    assert absolute["r_squared"] == pytest.approx(r_squared(vectors @ vectors.T).item())
    assert list(absolute["run"]) == ["5", "9"]
    assert absolute["run"]["9"] == pytest.approx(absolute["r_squared"])
    assert absolute["vectors"]["rank"]["full"] == 8
    assert ours["vectors"] is None
    assert [rank["full"] <= 4 + 2 for rank in ours["bias_ranks"]] == [True, True]  # d, and the two of [CLS]
    assert 0 < ours["r_squared"] < 1
    heads = rows_of(out / "heads.csv")
    assert [(row["model"], row["layer"], row["head"]) for row in heads[:2]] == [("<run>", "1", "1"), ("<run>", "1", "2")]
    assert len(heads) == 8
    assert {row["kind"] for row in heads} <= {"previous", "next", "local", "global", "flat", "[CLS]"}
    assert [row["offset"] for row in rows_of(out / "functions.csv")[:21]] == [str(r) for r in range(-10, 11)]  # without [CLS]
    assert [row["state"] for row in rows_of(out / "probes.csv")] == ["0", "1", "2"] * 2


def test_what_was_found_before_a_kill_is_not_looked_for_again(save, text, tmp_path, monkeypatch, capsys):
    tisa, absolute = save("first", "roberta_tisa_tiny"), save("second", "roberta_absolute_tiny")
    labels = []

    def look(subject, *rest):
        labels.append(subject.label)
        if labels == ["a", "b"]:
            raise KeyboardInterrupt
        return examine(subject, *rest)

    monkeypatch.setattr(findings, "examine", look)
    command = ["analyze", f"a={tisa}", f"b={absolute}", "--text", str(text), "--length", "12", "--windows", "8", "--out"]
    with suppress(KeyboardInterrupt):
        main([*command, str(tmp_path / "killed")])
    assert main([*command, str(tmp_path / "killed")]) == 0
    assert labels == ["a", "b", "b"]
    assert main([*command, str(tmp_path / "whole")]) == 0
    assert (tmp_path / "killed" / "index.html").read_bytes() == (tmp_path / "whole" / "index.html").read_bytes()

    labels.clear()
    os.utime(absolute)  # another state of the file
    assert main([*command, str(tmp_path / "killed")]) == 0
    assert labels == ["b"]
    (kept, _) = sorted((tmp_path / "killed" / "findings").glob("*.pt"))
    kept.write_bytes(kept.read_bytes()[:100])
    assert main([*command, str(tmp_path / "killed")]) == 2
    assert f"{kept} is damaged" in " ".join(capsys.readouterr().err.split())


def test_without_a_text_it_says_so(save, tmp_path):
    out = tmp_path / "out"
    assert main(["analyze", str(save("m4m", "roberta_m4m_tiny")), "--out", str(out)]) == 0
    assert "No text was read" in (out / "index.html").read_text("utf-8")
    assert sorted(path.stem for path in (out / "figures").glob("*.png")) == ["key-1-m4m", "query-1-m4m"]
    assert main(["analyze", f"other={save('tisa', 'roberta_tisa_tiny')}", "--out", str(out)]) == 0  # over what it made before
    assert [path.stem for path in (out / "figures").glob("*.png")] == ["bias-1-other"]


def test_input_that_cannot_be_used(save, text, tmp_path, capsys):
    tisa, none = save("tisa", "roberta_tisa_tiny"), save("none", "roberta_none_tiny")
    broken = torch.load(tisa, weights_only=False)
    broken["model"]["encoder.sentence_encoder.positions.tisa.offset"][0, 1, 2] = torch.nan
    torch.save(broken, tmp_path / "broken.pt")
    short, other, empty = tmp_path / "short.txt", make_data_bin(tmp_path / "other", vocab_size=60), tmp_path / "empty.csv"
    short.write_text("A red ball.")
    empty.write_text("model,score\nthis,1\n")
    (tmp_path / "folder").mkdir()
    for arguments, message in [
        ([none], "none has no positions to look at (--positions none)"),
        ([tisa, "--text", short], "tokens in the vocabulary of tisa, and two windows of --length 128 need 252"),
        ([tisa, "--text", text, "--data-bin", other], "another vocabulary"),
        ([tisa, "--scores", empty], "has no row for the model tisa, only for this"),
        ([tmp_path / "broken.pt"], "broken: its positions.tisa.offset is not finite (NaN or infinity)"),
        ([tisa, tisa], "two models are called tisa: give each a name of its own, LABEL=MODEL"),
        ([tisa, "--length", 3], "--length 3: at least 8 are needed"),
        ([tmp_path / "folder"], "cannot be read as a model of transformers"),
    ]:
        assert main(["analyze", *map(str, arguments), "--out", str(tmp_path / "out")]) == 2
        assert re.sub(r"\s+", " ", capsys.readouterr().err).find(message) >= 0, message
        assert not (tmp_path / "out" / "index.html").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,score\na,1\n", "lacks the column model"),
        ("model,score\na,high\n", "line 2: a model and a number are needed, got 'a' and 'high'"),
        ("model,score\na,1\na,2\n", "line 3: a has a row already"),
        ("model,score,after\na,1,b\n", "a comes after b, which has no row"),
        (b"\xff\xfe\x00", "is not a CSV file in UTF-8"),
    ],
)
def test_scores_that_are_none(content, message, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=re.escape(message)):
        read_scores(path, ["a"])
