"""Everything about one model, for every scheme."""

import json
from dataclasses import replace

import pytest
import torch
from encoders import N, encoder_of

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.schemes import REGISTRY
from fairseq_posenc.study.analyze.examine import examine, require_positions
from fairseq_posenc.study.analyze.models import AnalyzedModel
from fairseq_posenc.study.analyze.report import SECTIONS

VECTORS = {"absolute", "sinusoidal", "sentence_absolute"}
FUNCTIONS = {
    ("bias",): (
        "alibi",
        "cable",
        "fire",
        "kerple",
        "log_cpb",
        "raffel",
        "t5",
        "tisa",
        "untied",
        *(n for n in REGISTRY if n.startswith("synthesizer")),
    ),
    ("gain",): ("m1", "m2"),
    ("query", "key"): ("deberta", "m4", "m4m"),
    ("content", "query", "value"): ("shaw",),  # its values differ at the ends, and with them the queries of the second layer
    ("bias", "query"): ("transformer_xl",),
    ("query",): ("relative_logits",),
    ("content",): (
        "key_convolution",
        "absolute",
        "absolute_untied_projection",
        "floater",
        "liere",
        "pope",
        "rope",
        "selective_rope",
        "sentence_absolute",
        "sinusoidal",
    ),
}


NOTHING_TO_SEE = {"none", "key_offset", "log_n"}  # equal words have equal queries and keys
ALONE = sorted(name for name, scheme in REGISTRY.items() if scheme.alone and name not in NOTHING_TO_SEE)


@pytest.mark.parametrize("scheme", ALONE)
def test_a_scheme(scheme):
    model = AnalyzedModel(scheme, encoder_of(scheme).float())
    require_positions(model, N)
    torch.manual_seed(2)
    numbers, sections = examine(model, N, torch.randint(3, 30, (4, N)))
    functions = next((terms for terms, schemes in FUNCTIONS.items() if scheme in schemes), tuple(numbers["functions"]))
    assert (numbers["vectors"] is not None) == (scheme in VECTORS)
    assert tuple(numbers["functions"]) == functions
    assert (numbers["text"]["correlations"] is None) == (numbers["text"]["no_correlations_because"] is not None)
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert sections.keys() <= SECTIONS.keys()


def test_layers_that_differ():
    """The mean of R² is over the layers that have biases, and NaN is None in JSON."""
    model = AnalyzedModel("both", encoder_of("none | untied(window=3)").float())
    require_positions(model, N)
    numbers, sections = examine(model, N, torch.randint(3, 30, (4, N)))
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    bias = numbers["functions"]["bias"]
    assert bias["values"][0][0] == [None] * (2 * N - 1)
    assert bias["values"][1][0].count(None) == 2 * (N - 4)
    assert numbers["r_squared"] == pytest.approx(sum(bias["r_squared"][1]) / 2)
    caption = next(figure.caption for figure in sections["Functions of the offset"] if figure.name == "bias")
    assert "window" in caption
    assert caption.endswith(" 1.")


def test_r_squared_is_that_of_the_vectors():
    model = AnalyzedModel("sum", encoder_of("absolute+rope+tisa").float())
    numbers, sections = examine(model, N, None)
    _, other = examine(replace(model, common=torch.zeros(8)), N, None)
    assert "token type" in other["Position vectors"][0].caption
    assert "token type" not in sections["Position vectors"][0].caption
    assert numbers["r_squared"] == numbers["vectors"]["r_squared"] < 1
    assert numbers["vectors"]["scores_r_squared"] is None  # rotations act on every product of words
    assert [figure.name for figures in sections.values() for figure in figures] == ["products", *numbers["functions"]]


def test_a_model_without_positions_is_refused():
    with pytest.raises(InputError, match="bare has no positions"):
        require_positions(AnalyzedModel("bare", encoder_of("none")), N)
