"""Expressions and options: what is refused, with which words, and what a composition is."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any

import pytest
import torch
from attending import attend, call_of
from torch import Tensor

from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.attention import BACKENDS, choose
from fairseq_posenc.core.schemes import REGISTRY, Positions, Scheme, Settings, option_fields, parse, register
from fairseq_posenc.core.terms import Window

SETTINGS = Settings(layers=2, heads=2, dim=8, max_positions=6, separator=2)


def refused(expression: str, match: str, settings: Settings = SETTINGS, **options: Any) -> None:
    with pytest.raises(ValueError, match=match):
        Positions(expression, settings, options)


def test_an_unknown_scheme_names_the_near_ones() -> None:
    refused("tysa", r"'tysa' in positions 'tysa': did you mean tisa.*Known are absolute, .*absolute\+tisa")
    refused("absolute+m44", "'m44'.*did you mean m4")
    refused("", "write names of schemes")


def test_a_scheme_is_named_once() -> None:
    refused("tisa+absolute+tisa", "names 'tisa' twice")


def test_none_stands_alone() -> None:
    refused("none+tisa", "'none'.*cannot be part of a sum")


def test_spaces_around_names_do_not_matter() -> None:
    assert [scheme.name for scheme in parse(" absolute + tisa ")] == ["absolute", "tisa"]


def test_an_unknown_option_names_the_near_ones() -> None:
    refused("tisa", "unknown position option 'tisa_kernel'.*tisa_kernels", tisa_kernel=3)


@pytest.mark.parametrize("name", sorted(name for name, scheme in REGISTRY.items() if scheme.reads_input))
def test_terms_of_the_input_are_probed_in_half_precision(name: str) -> None:
    positions = Positions(name, Settings(layers=1, heads=2, dim=8, max_positions=8)).to(torch.bfloat16)
    probe = positions.probes()[0]
    assert probe.biases or probe.transforms


def test_an_option_of_another_scheme_is_refused() -> None:
    refused("tisa", "shaw_terms keys means nothing to positions tisa, only to shaw: leave it out", shaw_terms="keys")
    refused("absolute+tisa", r"t5_buckets 8 means nothing to positions absolute\+tisa, only to t5", t5_buckets=8)
    refused("rope", "position_share_heads True means nothing to positions rope: leave it out", position_share_heads=True)
    refused("untied", "position_share_layers False means nothing", position_share_layers=False)
    assert Positions("untied", SETTINGS, {"position_share_layers": False, "untied_form": "head"})


def test_effective_options_are_those_given_or_the_schemes_own() -> None:
    assert Positions("tisa", SETTINGS).effective_options == {
        "tisa_kernels": 5, "position_scale_factor": 1.0, "position_share_heads": False, "position_share_layers": False,
    }  # fmt: skip
    by_scheme = Positions("untied+t5", SETTINGS, {"untied_form": "head"}).effective_options
    assert by_scheme["position_share_layers"] == {"untied": False, "t5": True}
    assert Positions("m4", SETTINGS).effective_options["max_relative_position"] == SETTINGS.max_positions - 1


@pytest.mark.parametrize("clip", [-1, -3])
def test_a_clip_below_zero_is_refused(clip: int) -> None:
    refused("shaw", f"max_relative_position must be at least 0, got {clip}", max_relative_position=clip)


def test_keys_move_where_no_rotation_turns_them() -> None:
    refused("rope+key_offset", "'key_offset' moves the features that rotations leave still, and these turn all")
    refused("rope(fraction=0.5)+pope+key_offset", "no meaning to")
    assert Positions("key_offset+rope(fraction=0.5)", SETTINGS)


@pytest.mark.parametrize("expression", ["m4m", "synthesizer_random"])
def test_log_n_needs_one_query_in_each_score(expression: str) -> None:
    refused(expression, f"positions '{expression}': a factor of queries needs .*: leave out log-n", position_log_n="ssmax")


def test_log_n_belongs_to_any_sum_and_has_the_options_of_its_form() -> None:
    floor = Positions("rope+absolute", SETTINGS, {"position_log_n": "floor", "log_n_beta": 0.2})
    assert {"position_log_n": "floor", "log_n_beta": 0.2, "log_n_length": 6}.items() <= floor.complete_options.items()
    assert Positions("none", SETTINGS, {"position_log_n": "ssmax"}).log_n.scale.shape == (2, 2)
    refused("rope", "log_n_beta 0.2 means nothing", position_log_n="ssmax", log_n_beta=0.2)
    refused("rope", "log_n_beta 0.2 means nothing to positions rope, only to log_n", log_n_beta=0.2)


def test_selective_rotations_start_as_rope() -> None:
    x, window = torch.randn(1, 6, 8), Window(6, dtype=torch.float32)
    (selective,) = Positions("selective_rope", SETTINGS).terms(window).of(1, x).transforms
    (rope,) = Positions("rope", SETTINGS).terms(Window(7, dtype=torch.float32)).of(1, x).transforms
    torch.testing.assert_close(selective.cos, rope.cos[1:].expand_as(selective.cos))
    torch.testing.assert_close(selective.sin, rope.sin[1:].expand_as(selective.sin))


def test_a_scale_factor_must_be_positive() -> None:
    refused("t5", "position_scale_factor must be at least", position_scale_factor=0.0)


@pytest.mark.parametrize("name", sorted(name for name, field in option_fields().items() if "choices" in field.metadata))
def test_a_value_that_is_no_choice_is_refused(name: str) -> None:
    refused("none", f"{name} must be one of .*, got 'nonsense'", **{name: "nonsense"})


NUMBERS = sorted(name for name, field in option_fields().items() if field.type in (int, float))


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_bounded(name: str) -> None:
    """So that nothing is built without end, and nothing is computed with what is not a number."""
    field = option_fields()[name]
    refused("none", f"{name} must be at least {field.metadata['minimum']}", **{name: -1})
    refused("none", f"{name} must be at most .*, got 1{'0' * 400}$", **{name: 10**400})
    for value in (float("nan"), float("inf"), "3", True, [3]):
        refused("none", f"{name} must be a .*number.*, got {re.escape(repr(value))}", **{name: value})


@pytest.mark.parametrize("name", sorted(name for name, field in option_fields().items() if field.type is bool))
def test_a_truth_value_is_not_a_word(name: str) -> None:
    refused("none", f"{name} must be true or false, got 'no'", **{name: "no"})


def test_a_factor_is_not_wider_than_the_sequence() -> None:
    refused("synthesizer_factorized_dense", "dense_a 7 is beyond the 6 positions", synthesizer_factorized_dense_a=7)


@pytest.mark.parametrize("name", sorted(name for name, field in option_fields().items() if "minimum" in field.metadata))
def test_a_value_below_its_minimum_is_refused(name: str) -> None:
    minimum = option_fields()[name].metadata["minimum"]
    refused("none", f"{name} must be at least {minimum}", **{name: minimum - 1})


def test_rope_needs_pairs_of_features() -> None:
    refused("rope", "even, and it is 3.*dim", Settings(layers=1, heads=2, dim=6, max_positions=6))


def test_t5_has_as_many_buckets_to_either_side() -> None:
    refused("t5", "t5_buckets 5 must be even", t5_buckets=5)


def test_t5_needs_distances_beyond_its_exact_buckets() -> None:
    refused("t5", "t5_max_distance 16 must be greater than half of t5_buckets 32", t5_max_distance=16)


@pytest.mark.parametrize("expression", ["reset", "absolute+reset", "rope+reset"])
def test_reset_needs_something_to_replace(expression: str) -> None:
    refused(expression, f"positions '{expression}'".replace("+", r"\+"))


@pytest.mark.parametrize("other", ["m4", "shaw", "deberta", "transformer_xl"])
def test_a_product_stands_apart_from_other_vectors(other: str) -> None:
    refused(f"m4m+{other}", rf"positions 'm4m\+{other}': a product of q·k.*vector terms of another scheme")


@pytest.mark.parametrize("other", ["reset", "m1", "m2"])
def test_transformer_xl_is_not_changed_in_part(other: str) -> None:
    refused(f"transformer_xl+{other}", rf"positions 'transformer_xl\+{other}': 'transformer_xl'")


def test_real_positions_leave_no_meaning_to_rotations_beside_transformer_xl() -> None:
    with pytest.raises(FieldError, match=r"positions 'rope\+transformer_xl'"):
        make("rope+transformer_xl").terms(Window(2, positions=torch.tensor([[0.5, 1.5]])))


def test_terms_of_the_input_read_what_other_schemes_add_to_it() -> None:
    positions, window, x = make("cable+floater"), Window(4), torch.randn(1, 4, SETTINGS.dim)
    terms = positions.terms(window).of(1, x)
    assert torch.equal(terms.biases[0], positions.cable.input_terms(1, window, x + terms.inputs[0]).biases[0])


def test_a_product_needs_content() -> None:
    refused("m4m+synthesizer_random", "removes q·k")


def test_a_product_takes_in_values_and_biases() -> None:
    assert Positions("m4m+shaw", SETTINGS, {"shaw_terms": "values"}).probes()[0].combine == "multiply"
    assert Positions("m4m+tisa", SETTINGS).probes()[0].combine == "multiply"


def test_sentences_are_found_by_tokens() -> None:
    positions = Positions("sentence_absolute", SETTINGS)
    with pytest.raises(ValueError, match="needs tokens"):
        positions.embed(Window(4), None)


def test_positions_of_sentences_in_any_order_have_rows() -> None:
    window = Window(6, positions=torch.tensor([[5, 4, 3, 0, 1, 5]]), span=6)
    assert Positions("sentence_absolute", SETTINGS).embed(window, torch.tensor([[0, 5, 2, 6, 5, 6]])).isfinite().all()


def test_two_schemes_cannot_have_one_name() -> None:
    class Impostor(Scheme):
        name = "tisa"

    with pytest.raises(ValueError, match="two schemes are called 'tisa'"):
        register(Impostor)
    assert REGISTRY["tisa"] is not Impostor


def test_none_as_a_value_means_the_default() -> None:
    assert Positions("tisa", SETTINGS, {"tisa_kernels": None}).tisa.amplitude.shape == (2, 2, 5)


def test_the_greatest_factor_of_a_sum_applies() -> None:
    assert Positions("untied+t5", SETTINGS).probes()[0].factor == 2.0
    assert Positions("t5+deberta", SETTINGS).probes()[0].factor == 3.0
    assert Positions("t5+deberta", SETTINGS, {"position_scale_factor": 1.0}).probes()[0].factor == 1.0


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_checkpoint_holds_parameters_only(name: str) -> None:
    positions = make(f"t5+{name}" if name == "reset" else name)
    assert not list(positions.buffers())
    assert set(positions.state_dict()) == {name for name, _ in positions.named_parameters()}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_sum_of_two_runs_or_is_refused(name: str) -> None:
    """A composition is found out when it is built, never in the middle of a training."""
    for other in sorted(REGISTRY):
        found: list[Tensor] = []
        q, x = torch.randn(1, 2, 5, 4), torch.randn(1, 5, SETTINGS.dim)
        state: dict[str, Tensor] = {}
        for first, second in itertools.permutations((name, other), 2):
            try:
                positions = make(f"{first}+{second}")
            except ValueError as error:
                assert f"{first}+{second}" in str(error)  # noqa: PT017
                continue
            window = Window(5)
            positions.load_state_dict(state := state or positions.state_dict())
            positions.embed(window, torch.tensor([[0, 5, 2, 6, 2]]))
            terms = positions.terms(window).of(1, x)
            terms = terms.project(lambda table: table.view(2, -1, 4), lambda table: table.view(2, -1, 4))
            z, _ = attend(choose("auto", terms, call_of(q, q)), terms, q, q, q)
            assert z.isfinite().all(), f"{first}+{second}"
            assert BACKENDS["eager"].objection(terms) is None
            found.append(z)
        assert all(torch.allclose(z, found[0], atol=1e-5) for z in found), "the order of schemes makes no difference"


TERMS = sorted(
    {*REGISTRY, "rope(layout=half)", "fire(threshold=1)", "cable(gates=2)", "shaw(terms=values)", "alibi(sided=true)"} - {"fire"}
)
SAME_PAIRS = {"liere+rope"}
"""Rotations that commute, since both turn adjacent features; they count as others that rotate, and so do those by words."""


@pytest.mark.parametrize("first", TERMS)
def test_moving_all_positions_changes_the_scores_of_exactly_the_sums_that_say_so(first: str) -> None:
    """All pairs, in float64: ten positions from 0, and ten from 7."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    q, k, v, x, weight = random(1, 2, 10, 4), random(1, 2, 10, 4), random(1, 2, 10, 4), random(1, 10, 8), random(8, 8)
    cls = torch.arange(10)[None] == 0

    def moved(positions: Positions, by: int) -> Tensor:
        terms = positions.terms(Window(10, positions=torch.arange(10)[None] + by, span=10 + by, first=cls)).of(1, x)
        by_head = terms.project(*[lambda table: (table[0] @ weight).unflatten(-1, (2, 4)).transpose(0, 1)] * 2)
        z, _ = attend(BACKENDS["eager"], by_head, q, k, v)
        return z + sum(added.sum() for added in terms.inputs)

    for second in TERMS[TERMS.index(first) :]:
        expression = first if first == second else f"{first}+{second}"
        try:
            positions = Positions(expression, dataclasses.replace(SETTINGS, max_positions=20)).double()
        except ValueError:
            continue  # no such sum, or both are one scheme
        with torch.no_grad():
            for parameter in positions.parameters():
                parameter += 0.5 * random(*parameter.shape)
        invariant = torch.allclose(moved(positions, 7), moved(positions, 0), rtol=0, atol=1e-9)
        by_words = invariant and "selective_rope" in expression
        if "reset" not in expression and expression not in SAME_PAIRS and not by_words:
            assert positions.terms_are_invariant == invariant, expression
        assert not (positions.terms_are_invariant and not invariant), expression
    assert not make("rope+liere").terms_are_invariant
    assert make("rope").terms_are_invariant


def make(expression: str) -> Positions:
    return Positions(expression, SETTINGS)
