"""The papers' numbers come out of the live modules, and the tables of README.md and docs/ are the command's."""

import re
import runpy
from pathlib import Path

import pytest
import torch
from untrained import write_chance, write_untrained

from fairseq_posenc.catalogue import listing, parameters, properties
from fairseq_posenc.catalogue.parameters import count, positions_of
from fairseq_posenc.cli import main
from fairseq_posenc.families import expressions
from fairseq_posenc.runs.record import write_json
from fairseq_posenc.schemes import REGISTRY, Positions, Settings, parse

ROOT = Path(__file__).parents[2]
WRITTEN = runpy.run_path(str(ROOT / "scripts" / "write_tables.py"))


@pytest.fixture(autouse=True, scope="module")
def _count_each_once():
    """A count of products takes half a second, and all tables of one length need the same ones."""
    counts, multiply_adds = {}, parameters.multiply_adds

    def counted(*arguments):
        if repr(arguments) not in counts:
            counts[repr(arguments)] = multiply_adds(*arguments)
        return counts[repr(arguments)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameters, "multiply_adds", counted)
        yield


def test_huang_et_al_table_1():
    for name, _, paper, ours, counting_one in parameters.huang():
        assert counting_one == paper, name
        assert ours - counting_one == (12 * 64 * 64 if name in ("DeBERTa", "TUPE") else 0), name


def test_eq_14_at_another_size_has_a_table_per_layer_of_a_heads_width():
    """At 12 layers of 12 heads, (n, d) per layer are as many numbers as one (n, D)."""
    (row,) = (row for row in parameters.HUANG if row.name == "TUPE")
    with torch.device("meta"):
        settings = Settings(layers=24, heads=16, dim=1024, max_positions=512)
        positions = Positions(row.expression, settings, row.options)
    n, d = 512, 64
    assert count(positions) == 24 * (n * d + 2 * d**2 + 2 * n - 1) == 909_288 + 24 * d**2


def test_shaw_has_tables_for_keys_alone():
    (row,) = (row for row in parameters.HUANG if row.expression == "shaw")
    assert (row.name, row.options) == ("Shaw (a^K only)", {"shaw_terms": "keys"})


@pytest.mark.thorough
@pytest.mark.parametrize("n", [16, pytest.param(512, marks=pytest.mark.slow)])
def test_multiply_adds_are_those_of_the_equations(n):
    """Beside the encoder's own: 4 D² of projections and 8 D² of the feed-forward network for each token, and 2 n² D."""
    d, dim, layers = 64, 768, 12
    encoder = layers * (12 * n * dim**2 + 2 * n**2 * dim)
    by_offset = layers * n * (2 * n - 1) * dim  # queries, or keys, times the vectors of all offsets
    projected = layers * (2 * n - 1) * d**2  # a table that all heads share
    added = {
        "absolute": 0,
        "raffel": 0,
        "m2": 0,
        "shaw": by_offset,
        "m4": 2 * by_offset,
        "m4m": 2 * by_offset,
        "deberta": 2 * (by_offset + projected),
        "untied+raffel": layers * (2 * n * d**2 + n**2 * d),  # one p for all heads
    }
    counts = {row.expression: parameters.multiply_adds(row.expression, n, row.options) for row in parameters.HUANG}
    assert counts == {expression: encoder + more for expression, more in added.items()}


@pytest.mark.thorough
def test_costs_of_another_length(capsys):
    assert main(["parameters", "--tokens", "16"]) == 0
    assert "n = 16" in capsys.readouterr().out
    assert main(["parameters", "--tokens", "0"]) == 2
    assert "--tokens must be at least 1" in capsys.readouterr().err


def test_wennberg_henter_table_2():
    """The paper counts TUPE's U^Q and U^K as wide as ALBERT's word embeddings, but they belong to its layers."""
    differing = []
    for name, _, *cells in parameters.wennberg():
        differing += [(name, cell) for cell in cells if len(set(cell.split(" / "))) > 1]
    assert differing == [("Ke et al. (TUPE)", f"98,304 / {512 * 768 + 2 * 768**2:,}")]


@pytest.mark.parametrize(("kernels", "expected"), [(1, 432), (3, 1296), (5, 2160)])
def test_tisa_has_three_parameters_per_kernel_head_and_layer(kernels, expected):
    assert count(positions_of("tisa", options={"tisa_kernels": kernels})) == expected


@pytest.mark.parametrize("name", WRITTEN["TABLES"])
def test_readme_has_the_table_that_the_command_prints(name):
    expected = WRITTEN["renewed"](name)
    assert (ROOT / name).read_text(encoding="utf-8") == expected, "the schemes have changed: python scripts/write_tables.py"


def test_pictures_of_trained_models_are_of_the_best_learning_rate(tmp_path, capsys):
    data = write_chance(tmp_path)
    for scheme, lr, seed, loss in (("tisa", 1, 1, 5.0), ("tisa", 2, 1, 4.0), ("tisa", 2, 2, 3.0), ("rope", 1, 1, None)):
        folder = tmp_path / f"runs/{scheme}/lr-{lr}_seed-{seed}"
        folder.mkdir(parents=True)
        status = {"status": "begun"} if loss is None else {"status": "finished", "selection": loss}
        write_json(folder / "result.json", {"format": 1, "scheme": scheme, "lr": float(lr), "seed": seed, **status})
        write_untrained(folder / "checkpoint_last.pt", data, f"roberta_{scheme}_tiny", max_positions=32)
    (tmp_path / "runs/tisa/lr-1_seed-1/checkpoint_last.pt").write_bytes(b"not drawn")
    WRITTEN["draw_trained"](tmp_path, tmp_path / "pictures")
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["tisa.png"]
    assert "tisa.png: tisa. R² is" in capsys.readouterr().out


def test_the_families_name_all_schemes():
    rows = [line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if line.count("|") == 7]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == REGISTRY.keys() - {"none"}


def test_docs_have_every_column():
    assert listing.as_markdown(listing.find()) in (ROOT / "docs" / "schemes.md").read_text(encoding="utf-8")


WENNBERG_TABLE_1 = """
sinusoidal                    ✓ – ✓ – ✓ –
absolute                      – ✓ – – ✓ –
shaw                          – ✓ ✓ ✓ – –
t5                            – ✓ ✓ ✓ ✓ ✓
floater                       ✓ ✓ ✓ – – –
synthesizer_dense             – ✓ ✓ – ✓ –
synthesizer_factorized_random – ✓ ✓ – ✓ –
untied+t5+reset               – ✓ – – ✓ –
rope                          ✓ – ✓ ✓ ✓ –
tisa                          ✓ ✓ ✓ ✓ ✓ ✓
"""


def test_properties_unlike_the_papers_have_a_reason():
    """And no other has one; every cell of Wennberg & Henter 2021, Table 1, is in ours."""
    rows = listing.find()
    found = [(row["positions"], name) for row in rows for name, _ in properties.differing(row)]
    assert set(found) == properties.REASONS.keys()
    table = listing.as_markdown(rows)
    for number, (positions, name) in enumerate(found, 1):
        assert f"\n{number}. {positions}, {name}; " in table
        assert properties.REASONS[positions, name] in table
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| roberta")]
    cells = {line[1]: line[4:10] for line in lines}
    for line in WENNBERG_TABLE_1.split("\n")[1:-1]:
        positions, *marks = line.split()
        assert [cell[0] for cell in cells[positions]] == marks
    assert " / ✓ (" not in listing.as_markdown(rows, ("architecture", "equation"))


def test_huang_et_al_complexity():
    complexity = {expression: paper for _, expression, paper, *_ in parameters.costs(16)}
    assert complexity["absolute"] == "O(nd)"
    assert complexity["m2"] == complexity["raffel"] == "O(m n²)"
    assert len([paper for paper in complexity.values() if paper == "O(m n² d/h)"]) == 5


def test_every_scheme_has_an_architecture():
    assert {scheme.name for expression in expressions().values() for scheme in parse(expression)} == set(REGISTRY)


def test_commands_print(capsys):
    assert main(["parameters"]) == 0
    assert "834,816" in capsys.readouterr().out
    assert main(["schemes", "--markdown"]) == 0
    assert "roberta_tisa" in capsys.readouterr().out
