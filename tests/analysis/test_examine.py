"""Everything about one model, for every scheme."""

import json

import pytest
import torch
from encoders import N, encoder_of

from fairseq_posenc.analysis.examine import examine, require_positions
from fairseq_posenc.analysis.overview import SECTIONS
from fairseq_posenc.analysis.subjects import Subject
from fairseq_posenc.errors import InputError
from fairseq_posenc.schemes import REGISTRY

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
    ("content",): (
        "absolute",
        "absolute_untied_projection",
        "floater",
        "liere",
        "pope",
        "rope",
        "sentence_absolute",
        "sinusoidal",
    ),
}


@pytest.mark.parametrize("scheme", sorted(name for name, scheme in REGISTRY.items() if scheme.alone and name != "none"))
def test_a_scheme(scheme):
    subject = Subject(scheme, encoder_of(scheme).float())
    require_positions(subject, N)
    torch.manual_seed(2)
    numbers, pictures = examine(subject, N, torch.randint(3, 30, (4, N)))
    functions = next(terms for terms, schemes in FUNCTIONS.items() if scheme in schemes)
    assert (numbers["vectors"] is not None) == (scheme in VECTORS)
    assert tuple(numbers["functions"]) == functions
    assert (numbers["text"]["correlations"] is None) == (numbers["text"]["no_correlations_because"] is not None)
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert {picture.section for picture in pictures} <= SECTIONS.keys()
    only, pictures = examine(subject, N, None, everything=False)
    assert tuple(only["functions"]) == tuple(picture.name for picture in pictures) == functions


def test_a_model_without_positions_is_refused():
    with pytest.raises(InputError, match="bare has no positions"):
        require_positions(Subject("bare", encoder_of("none")), N)
