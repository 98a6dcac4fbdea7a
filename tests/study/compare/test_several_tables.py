"""Plans with sizes, lengths and budgets, and what their tables say together, of runs whose numbers are known."""

import math
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fairseq.tasks.fairseq_task import StatefulContainer
from fairseq_cli import train
from fake_runs import make_plan, make_run
from pydantic import ValidationError

from fairseq_posenc.plugin.models.building import PosencModel
from fairseq_posenc.study.compare import tables, training
from fairseq_posenc.study.compare.results import summarise
from fairseq_posenc.study.compare.tables import Outcome

SIZES = {"small": {"layers": 2, "dim": 32, "heads": 2}, "large": {"layers": 4, "dim": 64, "heads": 4, "learning_rates": [5e-4]}}


def value_of(flags, name):
    return flags[flags.index(name) + 1]


def test_each_combination_is_a_plan():
    plan = make_plan(sizes=SIZES, lengths=[32, 128], budgets=[1500, 3000], warmup=150, decay=0.2)
    found = plan.tables()
    assert [*found] == [f"{size}_n{n}_u{updates}" for size in SIZES for n in (32, 128) for updates in (1500, 3000)]
    last = found["large_n128_u3000"]
    assert (last.tokens_per_sample, last.batch_size, last.updates, last.learning_rates) == (128, 32, 3000, [5e-4])
    assert not last.has_axes
    flags = last.flags("tisa")
    values = [value_of(flags, f"--encoder-{name}") for name in ("layers", "embed-dim", "attention-heads", "ffn-embed-dim")]
    assert values == ["4", "64", "4", "256"]
    assert value_of(flags, "--lr-scheduler") == "warmup_stable_decay"
    assert (value_of(flags, "--warmup-updates"), value_of(flags, "--decay-updates")) == ("150", "600")
    assert found["small_n32_u1500"].learning_rates == plan.learning_rates
    assert {*make_plan().tables()} == {""}


def test_recipes_change_fields_of_the_plan():
    """Of a recipe and a size, the recipe's fields count; at another length, an update has as many tokens as the recipe says."""
    recipes = {"slow": {"learning_rates": [1e-3], "warmup": 1000}, "rows": {"batch_size": 128, "decay": 0.5}}
    plan = make_plan(sizes=SIZES, recipes=recipes, lengths=[64, 128], warmup=150, budget={"updates": 4000})
    found = plan.tables()
    assert [*found][:3] == ["small_slow_n64", "small_slow_n128", "small_rows_n64"]
    slow, rows = found["large_slow_n64"], found["large_rows_n128"]
    assert (slow.learning_rates, slow.warmup, slow.batch_size, slow.tokens_per_sample) == ([1e-3], 1000, 64, 64)
    assert (rows.learning_rates, rows.warmup, rows.decay, rows.batch_size) == ([5e-4], 150, 0.5, 64)
    assert not rows.has_axes


def test_a_plan_of_starts_takes_one_learning_rate_per_table():
    recipes = {"slow": {"learning_rates": [1e-3]}, "fast": {"learning_rates": [8e-3]}}
    plan = make_plan(stop="word order", learning_rates=[2e-3, 4e-3], recipes=recipes)
    assert [table.learning_rates for table in plan.tables().values()] == [[1e-3], [8e-3]]


def test_sizes_of_decoders_have_their_flags():
    plan = make_plan(arch="transformer_lm_posenc_tiny", sizes={"small": SIZES["small"]})
    assert value_of(plan.tables()["small"].flags("tisa"), "--decoder-layers") == "2"


@pytest.mark.parametrize(
    "values",
    [
        {"sizes": {"small": {"layers": 2, "dim": 32}}},
        {"sizes": {"../small": SIZES["small"]}},
        {"recipes": {"rows_128": {"batch_size": 128}}},
        {"recipes": {"rows": {"batch_size": 0}}},
        {"recipes": {"rows": {"dim": 32}}},
        {"sizes": SIZES, "train": "--encoder-layers 4"},
        {"lengths": [4]},
        {"lengths": [48]},  # does not divide the 4,096 tokens of an update
        {"stop": "soon"},
        {"stop": "word order", "learning_rates": [1e-3, 2e-3]},
        {"stop": "word order", "learning_rates": [1e-3, 2e-3], "lengths": [64]},
        {"lengths": [128], "recipes": {"rows": {"batch_size": 7}}},
        {"stop": "word order", "learning_rates": [2e-3], "benchmarks": {"pairs": "--data blimp"}},
        {"warmup": 4, "decay": 1.0},
        {"warmup": 4, "decay": 0.2, "budgets": [1500, 3]},
    ],
    ids=str,
)
def test_bad_axes(values):
    with pytest.raises(ValidationError, match=next(iter(values))):
        make_plan(**values).tables()


def outcome(plan, name, losses=None, started=None):
    """The table of a combination, with losses by scheme, and starts by scheme and seed out of 40 validations."""
    table, runs = plan.tables()[name], []
    for scheme in table.schemes:
        for seed in (1, 2, 3):
            values = {"loss": losses[scheme] + seed / 1000} if losses else {}
            if started:
                at = started[scheme][seed - 1]
                points = [(25 * i, 0.1 + 1e-9 if 25 * i >= at else 0.0) for i in range(1, 41)]
                values = {"curve": [{"updates": updates, "loss": 7.0, "permuted": 7.0 + used} for updates, used in points]}
                values |= {"loss": 7.0, "permuted": 7.0 + points[-1][1]}
            runs.append(make_run(scheme, table.learning_rates[0], seed, **values))
    return Outcome(name, table, summarise(table, runs), runs)


def test_the_order_of_two_sizes():
    plan = make_plan(["absolute", "tisa", "rope"], sizes=SIZES, learning_rates=[2e-3])
    small = outcome(plan, "small", {"absolute": 5.4, "tisa": 5.0, "rope": 4.9})
    turned = outcome(plan, "large", {"absolute": 4.0, "tisa": 4.1, "rope": 4.2})
    (found,) = tables.agreement(plan, [small, turned])
    assert (found["tau"], found["low"], found["high"], found["seeds"]) == (-1, -1, -1, 3)
    assert tables.agreement(plan, [small, outcome(plan, "large", {"absolute": 4.2, "tisa": 4.1, "rope": 4.0})])[0]["tau"] == 1
    same = dict.fromkeys(["absolute", "tisa", "rope"], 4.0)
    assert tables.agreement(plan, [small, outcome(plan, "large", same)]) == []  # no order
    assert tables.losses(plan, [small]).rows == [["small", "5.402 (3)", "5.002 (2)", "4.902 (1)"]]
    assert tables.leads(plan, [small]).rows == [["small", "−0.400 ± 0.000", "−0.500 ± 0.000"]]


def test_tables_are_compared_that_differ_in_one_thing():
    plan = make_plan(["absolute", "tisa"], lengths=[16, 32], budgets=[50, 100], learning_rates=[2e-3])
    every = [outcome(plan, name, {"absolute": 5.0, "tisa": 5.1}) for name in plan.tables()]
    pairs = [found["tables"] for found in tables.agreement(plan, every)]
    assert pairs == [["n16_u50", "n16_u100"], ["n16_u50", "n32_u50"], ["n16_u100", "n32_u100"], ["n32_u50", "n32_u100"]]


def test_the_start_grows_with_the_length():
    """As the square of it; runs that did not start make the exponent a lower bound."""
    plan = make_plan(["absolute", "rope", "none"], lengths=[32, 64], learning_rates=[2e-3])
    short = {"absolute": [100, 150, 200], "rope": [50, 50, 50], "none": [math.inf] * 3}
    longer = {"absolute": [400, 600, 800], "rope": [50, 50, 50], "none": [math.inf] * 3}
    of = [outcome(plan, "n32", started=short), outcome(plan, "n64", started=longer)]
    growth = tables.exponents(points := tables.start_points(plan, of))
    found = {each["scheme"]: each for each in growth}
    assert found.keys() == {"absolute", "rope"}
    assert found["absolute"]["exponent"] == pytest.approx(2)
    assert found["rope"]["exponent"] == pytest.approx(0)
    assert tables.exponent_table(growth).rows[0] == ["absolute", "2.00 ± 0.00"]
    assert [row[:2] for row in tables.first_uses(plan, of).rows] == [["n32", "150 (100–200)"], ["n64", "600 (400–800)"]]
    of[1] = outcome(plan, "n64", started={**longer, "absolute": [400, math.inf, math.inf]})
    points = tables.start_points(plan, of)
    bound = (2 + math.log2(1000 / 150) + math.log2(5)) / 3
    assert tables.exponent_table(tables.exponents(points)).rows[0] == ["absolute", f"at least {bound:.2f} ± 0.92"]
    assert tables.first_uses(plan, of).rows[1][1] == "never (400–never)"


def test_tokens_to_one_loss(tmp_path):
    plan = make_plan(["absolute", "rope"], budgets=[4000, 8000], learning_rates=[2e-3])
    fast = [{"updates": 1000 * i, "loss": 8.0 - i} for i in range(1, 5)]
    slow = [{"updates": 1000 * i, "loss": 8.0 - i / 2} for i in range(1, 5)]  # ends at 6, which the other has after half of it
    runs = [make_run(name, seed=seed, curve=curve) for name, curve in (("absolute", slow), ("rope", fast)) for seed in (1, 2)]
    of = [Outcome(name, table, summarise(table, runs), runs) for name, table in plan.tables().items()]
    assert tables.tokens_table(plan, of).rows[0] == ["u4000", "0.50 (0.50–0.50)"]
    runs[2]["curve"] = slow[:3]
    assert tables.tokens_table(plan, of).rows[0] == ["u4000", "not reached"]
    tables.report(plan, of).write(tmp_path)
    text = (tmp_path / "results.md").read_text()
    assert "u8000/report.html" in text
    assert "## Tokens" in text


def test_training_ends_once_word_order_is_used(monkeypatch):
    """After two validations in a row, one without use begins anew; a killed run goes on counting from its checkpoint."""
    results = iter([[8.0, 8.5], [8.0, 8.0], [8.0, 8.3], [8.0, 8.3], [8.0, 8.3]])
    monkeypatch.setattr(sys, "argv", ["training", "1", "2", "data-bin"])
    monkeypatch.setattr(train, "cli_main", lambda: None)
    monkeypatch.setattr(train, "validate", lambda cfg, trainer, *rest: next(results))
    monkeypatch.setattr(PosencModel, "build_model", PosencModel.__dict__["build_model"])  # is put back afterwards
    training.main()
    assert sys.argv == ["training", "data-bin"]
    cfg, ends, state = SimpleNamespace(optimization=SimpleNamespace(max_update=100)), [], StatefulContainer()
    for update in range(1, 6):
        saved, state = state.state_dict, StatefulContainer()
        state.merge_state_dict(saved)
        trainer, task = SimpleNamespace(get_num_updates=lambda update=update: update), SimpleNamespace(state=state)
        train.validate(cfg, trainer, task)
        ends.append(cfg.optimization.max_update)
    assert ends == [100, 100, 100, 5, 6]
