"""RoPE's extensions: what is refused, and what each does to the angles."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fairseq_posenc.core.schemes import Positions, Settings
from fairseq_posenc.core.schemes.rope import Rope

HEAD_DIM = 64
YARN = {"rope_type": "yarn", "rope_factor": 4.0, "rope_original_positions": 512}


def rope(head_dim: int = HEAD_DIM, **options: Any) -> Rope:
    scheme = Positions("rope", Settings(layers=1, heads=2, dim=2 * head_dim, max_positions=6), options).rope
    assert isinstance(scheme, Rope)
    return scheme


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rope_factor": 2.0}, "rope_factor 2 means nothing to rope_type default, only to linear, ntk"),
        ({"rope_type": "linear"}, "rope_type linear needs a value of rope_factor"),
        ({"rope_type": "yarn", "rope_factor": 2.0}, "rope_type yarn needs a value of rope_original_positions"),
        ({"rope_type": "ntk", "rope_factor": 2.0, "rope_beta_fast": 8.0}, "rope_beta_fast 8 means nothing to rope_type ntk"),
        ({"rope_type": "ntk", "rope_factor": 2.0, "head_dim": 2}, "a head needs two or more"),
        (YARN | {"rope_beta_slow": 32.0}, "rope_beta_fast 32 must be above rope_beta_slow 32"),
        ({"rope_base": 1.0}, "rope_base must be at least 2.0"),
        ({"rope_fraction": 0.03}, "rope_fraction 0.03 of 32 pairs"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        rope(**options)


def test_only_what_an_extension_takes_is_among_its_options() -> None:
    positions = Positions("rope", Settings(1, 2, 16, 6), {"rope_type": "ntk", "rope_factor": 2.0})
    assert positions.complete_options == {
        "rope_layout": "interleaved", "rope_base": 10000.0, "rope_fraction": 1.0, "rope_type": "ntk", "rope_factor": 2.0,
    }  # fmt: skip


def test_factors_stand_in_parentheses() -> None:
    expression = "rope(type=longrope, factor=2, original_positions=8, factors=1:1.5:2:4)"
    assert Positions(expression, Settings(1, 2, 16, 6)).rope._factors == [1, 1.5, 2, 4]


def test_which_pairs_turn_slower() -> None:
    plain = rope().frequencies()
    torch.testing.assert_close(rope(rope_type="linear", rope_factor=4.0).frequencies(), plain / 4)
    ntk = plain / rope(rope_type="ntk", rope_factor=4.0).frequencies()
    assert ntk[0] == 1
    assert ntk.diff().gt(0).all()
    assert ntk[-1] == pytest.approx(4)
    yarn = plain / rope(**YARN).frequencies()
    turns = 512 * plain / (2 * torch.pi)
    assert yarn[turns > 32].sub(1).abs().max() < 1e-12
    assert yarn[turns < 0.7].sub(4).abs().max() < 1e-12  # from the first whole t below one turn on
    assert yarn[(turns < 20) & (turns > 1)].gt(1).all()
