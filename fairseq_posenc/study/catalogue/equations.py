"""The equation of a sum of schemes under one scale, and its source."""

import re

from ...core.schemes import Positions

SCALE = re.compile(r"/ √(?:d|\(\d+d\))")
SCORE = re.compile(rf"e = (?P<content>.+?) {SCALE.pattern}(?P<rest>.*)")
SUM = re.compile(r"\(q·k \+ (?P<added>.+)\)")
BARE = "q·k"

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
    frozenset({"untied", "t5"}): (None, "Ke et al. 2021, §3.1 (TUPE-R, tied [CLS])", "TUPE-R with [CLS] as the other tokens"),
}
"""The sums of papers, by the names of their schemes: the equation, where the parts do not make it, its source, and advice."""


def family_of(positions: Positions) -> str:
    """Return the family of a sum: that of its first scheme, or, beside absolute positions, that of the second."""
    first, *others = positions.schemes
    return type(others[0] if others and first.name == "absolute" else first).family


def advice_of(positions: Positions) -> str:
    """Return what a sum is good for, or an empty string if no paper has it; of alternating layers, nothing either."""
    _, _, advice = PUBLISHED.get(frozenset(scheme.name for scheme in positions.schemes), (None, "", ""))
    return advice or (type(positions.schemes[0]).advice if len(positions.schemes) == 1 else "")


def source_of(positions: Positions) -> str:
    """Return the source of the equation, or the parts' own sources if no paper has the sum; of alternating layers, all."""
    return " | ".join(dict.fromkeys(map(_source, positions.alternatives)))


def _source(positions: Positions) -> str:
    _, source, _ = PUBLISHED.get(frozenset(scheme.name for scheme in positions.schemes), (None, None, None))
    return source or "; ".join(dict.fromkeys(scheme.source for scheme in positions.schemes))


def equation_of(positions: Positions) -> str:
    """Return the equation of the word embeddings and of the scores; semicolons separate its parts, ``|`` alternating layers."""
    return " | ".join(dict.fromkeys(map(_equation, positions.alternatives)))


def _equation(positions: Positions) -> str:
    equation, *_ = PUBLISHED.get(frozenset(scheme.name for scheme in positions.schemes), (None,))
    parts = [scheme.equation for scheme in positions.schemes]
    return equation or "; ".join(parts if len(parts) == 1 else _one_score(parts, positions.settings.factor))


def _one_score(parts: list[str], factor: float) -> list[str]:
    """Return the same parts at the sum's own scale, with those that are sums of scores made one."""
    root = "√d" if factor == 1 else f"√({factor:g}d)"
    scores = [match for part in parts if (match := SCORE.fullmatch(part))]
    contents = [match["content"] for match in scores if match["content"] != BARE]
    added = [match["added"] for content in contents if (match := SUM.fullmatch(content))]
    if not scores or len(contents) > max(1, len(added)):  # what multiplies or rotates does not add up with other vectors
        return [SCALE.sub(f"/ {root}", part) for part in parts]
    content = f"({' + '.join([BARE, *added])})" if added else (*contents, BARE)[0]
    rests = sorted((match["rest"] for match in scores), key=lambda rest: rest.startswith(","))  # what is no score comes last
    return [*(part for part in parts if not SCORE.fullmatch(part)), f"e = {content} / {root}{''.join(rests)}"]
