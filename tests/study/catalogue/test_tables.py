"""The papers' numbers come out of the live modules, and the tables of README.md and docs/ are the command's."""

import re
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from untrained import write_chance, write_untrained

from fairseq_posenc.base.record import write_json
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import REGISTRY, Positions, Settings, parse
from fairseq_posenc.core.transformer import Encoder, EncoderConfig
from fairseq_posenc.study.catalogue import listing
from fairseq_posenc.study.catalogue.listing import count, positions_of

ROOT = Path(__file__).parents[3]
WRITTEN = runpy.run_path(str(ROOT / "scripts" / "write_tables.py"))


class Published(NamedTuple):
    """A row of Huang et al. 2021, Table 1."""

    name: str
    expression: str
    options: dict[str, Any]
    parameters: int  # n = 512, D = 768, 12 layers of 12 heads


HUANG = (
    Published("Absolute", "absolute", {}, 393_216),
    Published("Shaw (a^K only)", "shaw", {"shaw_terms": "keys"}, 785_664),
    Published("Raffel", "raffel", {}, 12_276),
    Published("M2", "m2", {}, 12_276),
    Published("M4", "m4", {}, 785_664),
    Published("M4M", "m4m", {}, 785_664),
    Published("DeBERTa", "deberta", {}, 834_816),
    Published("TUPE", "untied(form=head)+raffel(scaled=false)", {}, 454_644),
)

# Wennberg & Henter 2021, Table 2: 12 layers of 12 heads, D = 768. By model, n and the width of the embeddings.
WENNBERG_MODELS = {"Longformer": (4096, 768), "BERT": (512, 768), "ALBERT": (512, 128)}
WENNBERG: tuple[tuple[str, str, dict[str, Any], tuple[int, ...]], ...] = (
    ("Standard", "absolute", {}, (3_145_728, 393_216, 65_536)),
    ("Ke et al. (TUPE)", "untied", {"untied_form": "equation"}, (4_325_376, 1_572_864, 98_304)),
    ("TISA (S = 5)", "tisa", {}, (2_160, 2_160, 2_160)),
)


def multiply_adds(expression, n, options):
    """Those of the matrix products of a base encoder on one sequence of n tokens, in the eager backend; nothing is computed."""
    config = EncoderConfig(
        vocab_size=4, max_positions=n, positions=expression, position_options=options, attention_backend="eager"
    )
    with FakeTensorMode(), torch.no_grad():
        encoder, words = Encoder(config).eval(), torch.empty(1, n, config.dim)
        with FlopCounterMode(display=False) as counter:
            encoder(None, inputs_embeds=words)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("row", HUANG, ids=lambda row: row.name)
def test_huang_et_al_table_1(row):
    """The paper counts one (D/H)² projection per layer for DeBERTa and TUPE; its equations 13 and 14, and so we, have two."""
    second = 12 * 64 * 64 if row.name in ("DeBERTa", "TUPE") else 0
    assert count(positions_of(row.expression, options=row.options)) - second == row.parameters


def test_eq_14_at_another_size_has_a_table_per_layer_of_a_heads_width():
    """At 12 layers of 12 heads, (n, d) per layer are as many numbers as one (n, D)."""
    (row,) = (row for row in HUANG if row.name == "TUPE")
    with torch.device("meta"):
        settings = Settings(layers=24, heads=16, dim=1024, max_positions=512)
        positions = Positions(row.expression, settings, row.options)
    n, d = 512, 64
    assert count(positions) == 24 * (n * d + 2 * d**2 + 2 * n - 1) == 909_288 + 24 * d**2


def test_shaw_has_tables_for_keys_alone():
    (row,) = (row for row in HUANG if row.expression == "shaw")
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
        "untied(form=head)+raffel(scaled=false)": layers * (2 * n * d**2 + n**2 * d),  # one p for all heads
    }
    counts = {row.expression: multiply_adds(row.expression, n, row.options) for row in HUANG}
    assert counts == {expression: encoder + more for expression, more in added.items()}
    if n == 512:
        rows = [row for row in (ROOT / "docs/schemes.md").read_text("utf-8").splitlines() if "| O(" in row]
        shown = [(cells[2], cells[5], cells[6]) for cells in ([cell.strip() for cell in row.split("|")] for row in rows)]
        ratios = [count / counts["absolute"] for count in counts.values()]
        wanted = zip(counts, counts.values(), ratios, strict=True)
        assert shown == [(name, f"{total / 1e6:,.0f}", f"{ratio:.3f}") for name, total, ratio in wanted]


def test_wennberg_henter_table_2():
    """The paper counts TUPE's U^Q and U^K as wide as ALBERT's word embeddings, but they belong to its layers."""
    differing = {}
    for name, expression, options, published in WENNBERG:
        for paper, (n, width) in zip(published, WENNBERG_MODELS.values(), strict=True):
            if (here := count(positions_of(expression, n, options=options, embed_dim=width))) != paper:
                differing[name, paper] = here
    assert differing == {("Ke et al. (TUPE)", 98_304): 512 * 768 + 2 * 768**2}


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
    families = {name: row.split("|")[1].strip() for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert families == {name: scheme.family for name, scheme in REGISTRY.items() if name != "none"}


PROPERTIES_PUBLISHED = {
    "Wennberg & Henter 2021": {
        "sinusoidal": "ynynyn",
        "absolute": "nynnyn",
        "shaw": "nyyynn",
        "t5": "nyyyyy",
        "floater": "yyynnn",
        **dict.fromkeys(("synthesizer_dense", "synthesizer_random"), "nyynyn"),
        **dict.fromkeys(("synthesizer_factorized_dense", "synthesizer_factorized_random"), "nyynyn"),
        **dict.fromkeys(("untied+reset", "untied+t5+reset"), "nynnyn"),
        "rope": "ynyyyn",
        "tisa": "yyyyyy",
    },
    "Dufter et al. 2022": {
        "absolute": "ny",  # "BERT"
        "floater": "yy",
        "shaw": "ny",
        "t5": "ny",
        "m4": "ny",  # "Huang et al. 2020"
        "deberta": "ny",
        "transformer_xl": "yy",
        **dict.fromkeys(("untied+reset", "untied+t5+reset"), "ny"),
    },
}
"""Paper -> positions -> yes or no for each property, as far as the paper has them."""


def test_properties_unlike_the_papers_are_named_with_a_reason():
    text = (ROOT / "docs" / "schemes.md").read_text("utf-8")
    named = {(match[1], match[2], match[3]) for match in re.finditer(r"^- `(\S+)`, ([\w-]+); (.*?): ", text, re.MULTILINE)}
    found = set()
    for row in listing.find():
        for index, name in enumerate(listing.PROPERTIES):
            marks = {paper: marks.get(row["positions"], "")[index : index + 1] for paper, marks in PROPERTIES_PUBLISHED.items()}
            papers = [paper for paper, mark in marks.items() if mark == ("n" if row[name] else "y")]
            found |= {(row["positions"], name, " and ".join(papers))} if papers else set()
    assert found == named


def test_every_scheme_has_an_architecture():
    assert {scheme.name for expression in expressions().values() for scheme in parse(expression)} == set(REGISTRY)
