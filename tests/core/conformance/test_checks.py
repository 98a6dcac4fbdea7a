"""``fairseq-posenc check``: every scheme has what it claims, and what a scheme lacks is found."""

from __future__ import annotations

import pytest
from cases import thorough_but
from commands import status_of

from fairseq_posenc.core.schemes import REGISTRY
from fairseq_posenc.study.catalogue import checks

from .planted import HalfIdle, Idle, Mirrored, OneHead, OneLength, Right, SeesPadding, WrongInHalf
from .table import ROWS, Row

FIRST = {row.expression: row for row in reversed(ROWS)}
ELSEWHERE = ("half precision stays near", "an export for transformers gives equal outputs")  # tested for models of usual sizes


@pytest.mark.parametrize("row", thorough_but([*FIRST.values()], ROWS, ()), ids=lambda row: row.id)
def test_every_scheme_has_what_it_claims(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ELSEWHERE:
        monkeypatch.delitem(checks.CHECKS, name)
    found = list(checks.run(checks.Subject(row.expression, row.options, row.spread)))
    assert [(name, text) for name, holds, text in found if holds is False] == []
    claimed = {name: holds for name, holds, _ in found}
    assert (claimed["depends on offsets alone, if it claims so"] is True) <= row.translation_invariant
    assert (claimed["a decoder sees no future, with and without a cache"] is True) == row.decoder


@pytest.mark.parametrize(
    ("scheme", "lacking", "said"),
    [
        (Right, None, ""),
        (Mirrored, "equals its reading, pair by pair", "planted, layer 0, i = 0, j = 1: they differ by"),
        (SeesPadding, "padding changes nothing", "7 tokens, alone and with padding on the right"),
        (Idle, "gradients reach every parameter", "the gradient of planted.idle is missing"),
        (HalfIdle, "gradients reach every parameter", "the gradient of planted.slope is 0 in layer 1"),
        (OneHead, "gradients reach every parameter", "the gradient of planted.slope is 0 in head 1"),
        (WrongInHalf, "half precision stays near", "in bfloat16, the states differ by"),
        (OneLength, "takes the lengths that it claims", "IndexError"),
    ],
)
def test_what_a_scheme_lacks_is_found(scheme, lacking, said, monkeypatch, capsys):
    monkeypatch.delitem(checks.CHECKS, ELSEWHERE[1])  # whose code registers the scheme; tests/test_user_package.py exports one
    monkeypatch.setitem(REGISTRY, "planted", scheme)
    status = status_of("check", "planted")
    lines = capsys.readouterr().out.splitlines()
    assert (status != 0) == (lacking is not None)
    if lacking is not None:
        (line,) = (line for line in lines if line.startswith(lacking))
        assert " no " in line
        assert said in line
    assert sum(" yes" in line for line in lines) >= (4 if lacking else 9)


def test_an_unknown_scheme_is_named(capsys):
    assert status_of("check", "tizza") == 2
    assert "tizza" in capsys.readouterr().err
