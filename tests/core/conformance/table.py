"""What every scheme claims: one row per scheme, or a variant or composition of schemes.

To add a scheme, write its equation as a function in ``references`` and add its row here; everything else is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from cases import SOME

from .references import absolute, functional, neighbours, relative, rotary, scalar, synthesizer, untied
from .references.reading import Layer, Parameters, Reading


@dataclass(frozen=True)
class Row:
    """One expression and the equation it is held to. The claims are the paper's; the scheme's own must be the same."""

    expression: str
    reference: Callable[[Parameters, Layer], Reading]
    options: Mapping[str, Any] = field(default_factory=dict)
    inductive: bool = True  # takes any length, the same parameters agreeing on the common part
    translation_invariant: bool = True  # nothing changes where everything moves along the sequence
    decoder: bool = True  # has a causal form
    own: tuple[str, ...] = ()  # what can have parameters of its own: "layers", "heads"
    clips: bool = False  # --max-relative-position has a meaning
    content: bool = True  # scores have a part q·k, which --position-scale-factor scales
    tells_apart: bool = True  # distinguishes equal tokens at different positions
    tolerance: float = 1e-9  # in float64
    rate: float = 1.0  # of learning in the training tests, relative to the model's; Adam takes long to move lone scalars far
    spread: float = 0.5  # standard deviation of the noise that the tests add to parameters

    @property
    def general_options(self) -> set[str]:
        """Names of the general options that have a meaning."""
        claims = {"max_relative_position": self.clips, "position_scale_factor": self.content}
        return {f"position_share_{kind}" for kind in self.own} | {name for name, claimed in claims.items() if claimed}

    @property
    def id(self) -> str:
        return "-".join([self.expression, *(f"{name}={value}" for name, value in self.options.items())])


BOTH = ("layers", "heads")
CLIP = {"max_relative_position": 5}
BUCKETS = {"deberta_buckets": 8, "max_relative_position": 14}  # the offsets of 20 tokens go beyond
CURVES = {"relative_logits_rank": 3, "relative_logits_max_distance": 6}  # some offsets of most tests are beyond
POSITIONS = {"inductive": False, "translation_invariant": False}  # learns each position
YARN = {"rope_type": "yarn", "rope_factor": 4.0, "rope_original_positions": 300, "rope_base": 100.0, "rope_layout": "half"}
LLAMA3 = {"rope_type": "llama3", "rope_factor": 4.0, "rope_original_positions": 40, "rope_base": 30.0}
LONGROPE = {"rope_type": "longrope", "rope_factor": 2.0, "rope_original_positions": 8, "rope_factors": "1,1.5,2,4"}
FLOATER = {"translation_invariant": False, "own": ("layers",), "rate": 4.0, "spread": 0.2}
SYNTHESIZED = POSITIONS | {"own": BOTH, "content": False}


def tabular(expression: str, reference: Callable[[Parameters, Layer], Reading], **claims: Any) -> Row:
    """A scheme that learns each offset and, without a clip, has no value for larger ones."""
    return Row(expression, reference, **{"inductive": False, "own": BOTH, "clips": True} | claims)


ROWS = [
    Row("none", absolute.none, tells_apart=False),
    Row("absolute", absolute.absolute, inductive=False, translation_invariant=False),
    *(
        Row("sentence_absolute", absolute.sentence_absolute, options, inductive=False, translation_invariant=False, decoder=False)
        for options in ({}, {"sentence_absolute_first": 0})
    ),
    Row("sinusoidal", absolute.sinusoidal, translation_invariant=False),
    Row("sinusoidal", absolute.sinusoidal, {"sinusoidal_layout": "fairseq"}, translation_invariant=False),
    Row("shaw", relative.shaw, own=BOTH, clips=True),
    Row("shaw", relative.shaw, CLIP, own=BOTH, clips=True),
    Row("shaw", relative.shaw, {"shaw_terms": "keys"}, own=BOTH, clips=True),
    Row("shaw", relative.shaw, {"shaw_terms": "values"}, own=BOTH, clips=True),
    Row("relative_logits", relative.relative_logits, own=BOTH),
    *(
        Row("relative_logits", relative.relative_logits, CURVES | {"relative_logits_input": name}, own=BOTH)
        for name in ("query", "hidden")
    ),
    Row("rope+relative_logits", rotary.rope_relative_logits, {"rope_fraction": 0.5, "relative_logits_input": "hidden"}, own=BOTH),
    *(
        variant
        for scheme, reference, rate in [
            ("raffel", scalar.raffel, 10.0),
            ("m1", scalar.m1, 10.0),
            ("m2", scalar.m2, 10.0),
            ("m4", relative.m4, 1.0),
            ("m4m", relative.m4m, 1.0),
        ]
        for variant in (
            tabular(scheme, reference, rate=rate),
            tabular(scheme, reference, options=CLIP, inductive=True, rate=rate),
        )
    ),
    tabular("raffel", scalar.raffel, options={"raffel_scaled": False}, rate=10.0),
    Row("shaw", relative.shaw, {"max_relative_position": 0}, own=BOTH, clips=True, tells_apart=False),
    tabular("m2+reset", scalar.m2_reset, translation_invariant=False, decoder=False),
    tabular("m4+reset", relative.m4_reset, translation_invariant=False, decoder=False),
    Row("shaw+reset", relative.shaw_reset, translation_invariant=False, decoder=False, own=BOTH, clips=True),
    tabular("absolute+m4m", relative.absolute_m4m, translation_invariant=False),
    Row("rope", rotary.rope),
    Row("rope", rotary.rope, {"rope_layout": "half", "rope_base": 100.0}),
    Row("rope", rotary.rope, {"rope_type": "linear", "rope_factor": 2.5}),
    Row("rope", rotary.rope, {"rope_type": "ntk", "rope_factor": 3.0}),
    Row("rope", rotary.rope, YARN),
    Row("rope", rotary.rope, {"rope_fraction": 0.7}),
    Row("rope", rotary.rope, LLAMA3),
    Row("rope", rotary.rope, LONGROPE),
    Row("rope", rotary.rope, {"rope_type": "ntk_bidirectional", "rope_factor": 3.0, "rope_original_positions": 300}),
    Row("key_offset", neighbours.key_offset, tells_apart=False),
    Row("rope+key_offset", neighbours.rope_key_offset, {"rope_fraction": 0.5}),
    Row("rope+key_offset", neighbours.rope_key_offset, {"rope_fraction": 0.25, "rope_layout": "half"}),
    Row("key_convolution", neighbours.key_convolution, own=BOTH, tells_apart=False),
    Row("key_convolution", neighbours.key_convolution, {"key_convolution_width": 2}, own=BOTH, tells_apart=False),
    Row("rope+key_convolution", neighbours.rope_key_convolution, own=BOTH),
    Row("selective_rope", rotary.selective_rope, own=BOTH),
    Row("selective_rope", rotary.selective_rope, {"selective_rope_rank": 3, "selective_rope_base": 50.0}, own=BOTH),
    Row("log_n", rotary.plain_log_n, own=BOTH, tells_apart=False),
    Row("rope+log_n", rotary.rope_log_n, own=BOTH),
    Row("rope+log_n", rotary.rope_log_n, {"position_log_n": "floor", "log_n_length": 3, "log_n_beta": 0.7}),
    Row("pope+log_n", rotary.pope_log_n, own=BOTH),
    Row("liere", rotary.liere, own=BOTH, rate=0.3),
    Row("pope", rotary.pope, own=BOTH),
    Row("log_cpb", scalar.log_cpb, {"log_cpb_hidden": 7}, own=BOTH),
    Row("log_cpb", scalar.log_cpb, {"log_cpb_bound": 0.0, "log_cpb_hidden": 5}, own=BOTH),
    Row("cable", scalar.cable, own=BOTH),
    Row("cable", scalar.cable, {"cable_gates": 2}, own=BOTH, decoder=False),
    Row("alibi", scalar.alibi),
    Row("alibi", scalar.alibi, {"alibi_sided": True}),
    Row("kerple", scalar.kerple, {"kerple_sided": True}, own=BOTH),
    Row("kerple", scalar.kerple, own=BOTH),
    Row("kerple", scalar.kerple, {"kerple_form": "power"}, own=BOTH),
    Row("fire", functional.fire, translation_invariant=False, own=BOTH, rate=10.0),
    Row("fire", functional.fire, {"fire_threshold": 4.0, "fire_hidden": 5}, translation_invariant=False, own=BOTH, rate=10.0),
    Row("fire", functional.fire, {"fire_sided": True}, translation_invariant=False, own=BOTH, rate=10.0),
    Row("floater", functional.floater, tolerance=2e-2, **FLOATER),  # the tolerance is the solver's, at 8 tokens per step
    Row("floater", functional.floater, {"floater_stride": 1, "floater_hidden": 7}, tolerance=1e-5, **FLOATER),
    Row("synthesizer_random", synthesizer.synthesizer_random, **SYNTHESIZED),
    Row("synthesizer_factorized_random", synthesizer.synthesizer_factorized_random, **SYNTHESIZED),
    Row("synthesizer_dense", synthesizer.synthesizer_dense, tells_apart=False, **SYNTHESIZED),
    Row("synthesizer_factorized_dense", synthesizer.synthesizer_factorized_dense, tells_apart=False, **SYNTHESIZED),
    *(
        Row("absolute_untied_projection", absolute.absolute_untied_projection, options, **POSITIONS)
        for options in ({}, {"absolute_untied_projection_form": "equation"})
    ),
    Row("untied", untied.untied, **POSITIONS),
    Row("untied", untied.untied, {"untied_form": "equation"}, **POSITIONS),
    Row("untied", untied.untied, {"untied_form": "head"}, own=("layers",), **POSITIONS),
    Row("untied+t5", untied.untied_t5, own=BOTH, **POSITIONS),
    Row("untied+reset", untied.tupe_a, decoder=False, **POSITIONS),
    Row("untied+reset", untied.tupe_a, {"untied_theta": "scalars"}, own=BOTH, decoder=False, **POSITIONS),
    Row("untied+t5+reset", untied.tupe_r, own=BOTH, decoder=False, **POSITIONS),
    tabular("deberta", relative.deberta),
    tabular("deberta", relative.deberta, options=CLIP, inductive=True),
    *(
        Row(
            "deberta",
            relative.deberta,
            {"deberta_projections": projections, "deberta_indexing": indexing} | more,
            own={"head": BOTH, "model": ("layers",), "content": ()}[projections],
            clips=True,
        )
        for projections, indexing, more in [
            ("head", "original", CLIP),
            ("head", "paper", CLIP),
            ("model", "original", CLIP),
            ("model", "relative", CLIP),
            ("content", "original", CLIP),
            ("content", "paper", CLIP),
            ("head", "relative", BUCKETS),
            ("model", "paper", BUCKETS),
            ("content", "original", BUCKETS),
        ]
    ),
    Row(
        "deberta",
        relative.deberta,
        {"deberta_indexing": "original", "max_relative_position": 0},
        own=BOTH,
        clips=True,
        tells_apart=False,
    ),
    Row("transformer_xl", relative.transformer_xl, own=("layers",)),
    Row("t5", scalar.t5, own=BOTH),
    Row("t5", scalar.t5, {"t5_buckets": 8, "t5_max_distance": 20}, own=BOTH),
    Row("tisa", scalar.tisa, own=BOTH),
    Row("absolute+tisa", scalar.absolute_tisa, inductive=False, translation_invariant=False, own=BOTH),
    Row("absolute+t5", scalar.absolute_t5, inductive=False, translation_invariant=False, own=BOTH),
]


def thoroughly(rows: Iterable[Row], few: Container[str]) -> list[Any]:
    """Parameters of a test that takes long: of rows with options and of expressions but ``few``, most are ``slow``."""

    def marks(row: Row) -> list[pytest.MarkDecorator]:
        if not row.options and row.expression in few:
            return []
        return [pytest.mark.thorough if not row.options and row.expression in SOME else pytest.mark.slow]

    return [pytest.param(row, id=row.id, marks=marks(row)) for row in rows]
