"""Properties that two papers give to schemes, where the live modules have the opposite, and why.

Dufter et al. 2022 (Computational Linguistics 48(3), "Comparison according to several criteria") have two of the properties:
"unbound", which is inductive here, and "learnable", which is data-driven.
"""

from collections.abc import Iterator, Mapping
from typing import Any

PROPERTIES = ("inductive", "data-driven", "parameter-efficient", "translation-invariant", "parallelisable", "interpretable")

PUBLISHED = {
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
"""Paper -> positions -> yes or no for each of ``PROPERTIES``, as far as the paper has them."""
_SYNTHESIZER = "at n = 512, the modules of the base model have more parameters than learned absolute positions"
_UNTIED = "the positional scores are one matrix per head, which does not depend on the words and can be drawn"
REASONS = {
    ("shaw", "inductive"): "they count a vector per offset up to the maximum length; beyond a clip, all share one",
    ("shaw", "parameter-efficient"): "a clip, such as Shaw et al.'s 16, has fewer parameters; counted here without one",
    ("shaw", "parallelisable"): "all pairs of tokens are computed at once, in matrix products",
    ("synthesizer_dense", "parameter-efficient"): _SYNTHESIZER,
    ("synthesizer_factorized_dense", "parameter-efficient"): _SYNTHESIZER,
    ("synthesizer_factorized_random", "parameter-efficient"): _SYNTHESIZER,
    ("synthesizer_factorized_random", "interpretable"): "the scores are one matrix per head, which can be drawn",
    ("synthesizer_random", "parameter-efficient"): _SYNTHESIZER,
    ("synthesizer_random", "interpretable"): "the scores are one matrix per head, which can be drawn",
    ("t5", "inductive"): "they count a scalar per offset up to the maximum length; T5's last bucket takes all beyond",
    ("untied+reset", "interpretable"): _UNTIED,
    ("untied+t5+reset", "interpretable"): _UNTIED,
}
"""(positions, property) -> why it is another here."""


def differing(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each property of a row of the listing that is the opposite in a paper, and the papers with the reason."""
    for index, name in enumerate(PROPERTIES):
        marks = {paper: marks.get(row["positions"], "")[index : index + 1] for paper, marks in PUBLISHED.items()}
        if papers := [paper for paper, mark in marks.items() if mark == ("n" if row[name] else "y")]:
            yield name, f"{' and '.join(papers)}: {REASONS[row['positions'], name]}"
