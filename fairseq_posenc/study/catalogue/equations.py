"""The equations of a sum of schemes under one scale, and their source."""

import re

from ...core.schemes import Positions

SCALE = re.compile(r"/ √(?:d|\(\d+d\))")

PUBLISHED: dict[frozenset[str], tuple[str | None, str, str]] = {
    frozenset({"absolute", "m4m"}): (None, "Huang et al. 2021, §5.3, eq. 20", "m4m beside absolute positions"),
    frozenset({"absolute", "t5"}): (None, "Ke et al. 2021, BERT-R", "T5's biases beside absolute positions"),
    frozenset({"absolute", "tisa"}): (
        None,
        "Wennberg & Henter 2021, eq. 4a, 5",
        "keeps what absolute positions have learned, and learns offsets in addition",
    ),
    frozenset({"m4", "reset"}): (
        "e = (q·k + q·a_ij + k·a_ij) / √d; a_ij = a_r, a_0j = θ₁, a_i0 = θ₂",
        "Huang et al. 2021, §5.3, eq. 12",
        "m4 with vectors of its own for [CLS]",
    ),
    frozenset({"untied", "reset"}): (
        "e = q·k / √(2d) + reset((p_i U^Q)·(p_j U^K) / √(2d)); reset: b_0j = θ₁, b_i0 = θ₂",
        "Ke et al. 2021, §3.1, §3.2 (TUPE-A)",
        "TUPE-A: positions that never mix with words, and scores of its own for [CLS]",
    ),
    frozenset({"untied", "t5", "reset"}): (
        "e = q·k / √(2d) + reset((p_i U^Q)·(p_j U^K) / √(2d) + b[bucket(j-i)]); reset: b_0j = θ₁, b_i0 = θ₂",
        "Ke et al. 2021, §3.1, §3.2 (TUPE-R)",
        "TUPE-R: TUPE-A with T5's biases; good from little training",
    ),
    frozenset({"untied", "t5"}): (
        "e = (q·k + (p_i U^Q)·(p_j U^K)) / √(2d) + b[bucket(j-i)]",
        "Ke et al. 2021, §3.1 (TUPE-R, tied [CLS])",
        "TUPE-R with [CLS] as the other tokens",
    ),
}
"""The sums of papers, by the names of their schemes: the equation, where the parts do not make it, its source, and advice."""


def facts_of(positions: Positions) -> dict[str, str]:
    """Return the ``family``, ``advice``, ``equation`` and ``source`` of a sum; ``|`` separates those of alternating layers.

    The family is that of the first scheme, or, beside absolute positions, that of the second. The advice is what the sum is good
    for, and empty if no paper has it; of alternating layers, too.
    """
    first, *others = positions.schemes
    _, _, advice = _published(positions)
    equations, sources = zip(*map(_equation, positions.alternatives), strict=True)
    return {
        "family": type(others[0] if others and first.name == "absolute" else first).family,
        "advice": advice or ("" if others else type(first).advice),
        "equation": " | ".join(dict.fromkeys(equations)),
        "source": " | ".join(dict.fromkeys(sources)),
    }


def _equation(positions: Positions) -> tuple[str, str]:
    """Return the equations of a sum's parts at its own scale, and their source, or the parts' own if no paper has the sum."""
    equation, source, _ = _published(positions)
    factor = positions.settings.factor
    scale = "/ √d" if factor == 1 else f"/ √({factor:g}d)"
    equations = "; ".join(SCALE.sub(scale, scheme.equation) for scheme in positions.schemes)
    return equation or equations, source or "; ".join(dict.fromkeys(scheme.source for scheme in positions.schemes))


def _published(positions: Positions) -> tuple[str | None, str, str]:
    return PUBLISHED.get(frozenset(scheme.name for scheme in positions.schemes), (None, "", ""))
