"""``fairseq-posenc schemes``: it fits the terminal, filters, shows one scheme, and gives data to programs."""

import json
import re
import subprocess
import sys

import pytest
from untrained import write_chance, write_untrained

from fairseq_posenc.cli import main
from fairseq_posenc.core.families import expressions
from fairseq_posenc.study.catalogue import PROPERTIES


@pytest.fixture
def schemes(capsys):
    """``schemes(*arguments)``: what the command prints."""

    def schemes(*arguments: str, status: int = 0) -> str:
        assert main(["schemes", *arguments]) == status
        out, err = capsys.readouterr()
        return err if status else out

    return schemes


def rows(schemes, *arguments):
    return json.loads(schemes(*arguments, "--json"))


@pytest.mark.parametrize("columns", [64, 80, 120, 400])
def test_fits_the_terminal(schemes, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    table = schemes()
    assert max(map(len, table.splitlines())) <= columns
    assert {*expressions().values()} <= {line.split()[0] for line in table.splitlines() if line}
    assert max(map(len, schemes("tupe_r").splitlines())) <= columns


def test_what_one_types_is_listed_by_families_with_advice(schemes, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    family, listed = "", {}
    for line in schemes().splitlines()[1:]:
        if line and not line.startswith(" "):
            family = line
        elif re.match("  [a-z]", line):
            listed.setdefault(family, []).append(line.split()[0])
    assert listed["rotations"] == ["liere", "pope", "rope", "selective_rope"]
    assert listed["scalar biases by offset"][-2:] == ["absolute+t5", "absolute+tisa"]
    assert sum(map(len, listed.values())) == len(expressions())
    assert all(row["advice"] for row in rows(schemes))
    assert "  absolute+t5" in schemes()
    assert "--arch roberta_bert_r" in schemes()


def test_several_and_models(schemes, tmp_path):
    write_untrained(tmp_path / "checkpoint_best.pt", write_chance(tmp_path), "roberta_tisa_tiny")
    assert [row["positions"] for row in rows(schemes, "shaw", "roberta_tupe_r", "t5+alibi")] == [
        "shaw",
        "untied+t5+reset",
        "t5+alibi",
    ]
    (model,) = rows(schemes, str(tmp_path))
    assert (model["positions"], model["parameters"]) == ("tisa", 3 * 5 * 2 * 2)


def test_fairseq_and_the_compiler_are_not_imported():
    """They take most of the time that PyTorch takes."""
    code = "import sys; from fairseq_posenc import cli; cli.main(['schemes'])\n"
    code += "assert not {'fairseq', 'torch._dynamo'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_nothing_is_cut(schemes, monkeypatch):
    monkeypatch.setenv("COLUMNS", "64")
    words = set(schemes().split())
    for row in rows(schemes):
        assert {word.rstrip(";") for word in row["equation"].split()} <= words
        assert row["positions"] in words


@pytest.mark.parametrize("name", ["tupe_r", "roberta_tupe_r", "untied+t5+reset"])
def test_one_in_full(schemes, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "200")
    card = schemes(name)
    assert card.startswith("roberta_tupe_r: --positions untied+t5+reset\n")
    for expected in ("Ke et al. 2021, §3.1", "--t5-buckets", "--untied-form", "(default: 32)", "1,577,856", *PROPERTIES):
        assert expected in card
    assert "--tisa-kernels" not in card
    assert "--max-relative-position" not in card  # means nothing to these


def test_options_without_a_value_are_listed(schemes):
    """All of RoPE's, also those of extensions; without those that the expression gives."""
    assert "--rope-factor " in schemes("rope")
    given = schemes("rope(type=yarn,factor=2,original_positions=16)")
    assert "--rope-factors" in given
    assert "--rope-factor " not in given


def test_a_sum_without_an_architecture(schemes):
    assert schemes("absolute+kerple").startswith("no architecture of its own: --positions absolute+kerple\n")


@pytest.mark.parametrize(
    ("name", "equation", "source"),
    [
        ("absolute_tisa", "x_i = w_i + p_i; e = q·k / √d + Σ_s a_s exp(-|b_s| (j-i-c_s)²)", "Wennberg & Henter 2021, eq. 4a, 5"),
        (
            "tupe_r",
            "e = q·k / √(2d) + reset((p_i U^Q)·(p_j U^K) / √(2d) + b[bucket(j-i)]); reset: b_0j = θ₁, b_i0 = θ₂",
            "Ke et al. 2021, §3.1, §3.2 (TUPE-R)",
        ),
        ("m4_reset", "e = (q·k + q·a_ij + k·a_ij) / √d; a_ij = a_r, a_0j = θ₁, a_i0 = θ₂", "Huang et al. 2021, §5.3, eq. 12"),
        ("shaw+kerple", "e = (q·k + q·a^K_r) / √d,  z = Σ p (v + a^V_r); e = q·k / √d - r₁ log(1 + r₂|j-i|)", None),
        (
            "t5 | alibi",
            "e = q·k / √d + b[bucket(j-i)] | e = q·k / √d - m_h |j-i|",
            "Raffel et al. 2020, §2.1 | Press et al. 2022, §3",
        ),
        (
            "untied+deberta",
            "e = (q·k + (p_i U^Q)·(p_j U^K)) / √(3d); e = (q·k + q·(a_r W^K) + k·(a_r W^Q)) / √(3d)",
            None,
        ),
        ("untied+rope", "e = (q·k + (p_i U^Q)·(p_j U^K)) / √(2d); e = (R_i q)·(R_j k) / √(2d)", None),
    ],
)
def test_a_sum_has_one_scale_and_its_own_source(schemes, name, equation, source):
    (row,) = rows(schemes, name)
    assert row["equation"] == equation
    assert source in (None, row["source"])


def test_named_sums_have_one_equation_of_scores(schemes):
    for row in rows(schemes):
        assert row["equation"].count("e = ") <= 1, row["architecture"]
        assert len(set(re.findall(r"/ (√d|√\(\d+d\))", row["equation"]))) <= 1, row["architecture"]


def test_defaults_that_differ_by_scheme(schemes, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "for all layers (default: false for deberta, true for t5)" in schemes("deberta+t5")


def test_filters(schemes):
    assert sorted(row["architecture"] for row in rows(schemes, "synth")) == [
        f"roberta_{name}" for name in expressions() if "synth" in name
    ]
    everything = rows(schemes)
    for name in PROPERTIES:
        assert rows(schemes, "--property", name) == [row for row in everything if row[name]]
    both = rows(schemes, "--property", "inductive", "--property", "translation-invariant")
    assert both == [row for row in everything if row["inductive"] and row["translation-invariant"]]
    assert 0 < len(both) < len(everything)
    assert not rows(schemes, "rope+shaw")[0]["translation-invariant"]


def test_what_there_is_not(schemes):
    assert "there is no tysa. Similar are tisa" in schemes("tysa", status=2)
    assert "inductive of those with synth" in schemes("synth", "--property", "inductive", status=2)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("albert_tisa", 2_160),
        ("albert_absolute", 512 * 128),
        ("albert_absolute_tisa_xxlarge", 512 * 128 + 3 * 5 * 64 * 12),
        ("roberta_tisa_large", 3 * 5 * 16 * 24),
    ],
)
def test_any_family_and_size_by_its_whole_name(schemes, name, parameters):
    (row,) = rows(schemes, name)
    assert (row["architecture"], row["parameters"]) == (name, parameters)
    assert row["parameter-efficient"] == ("absolute" not in name)
    assert schemes(name).startswith(f"{name}: --positions {row['positions']}\n")
