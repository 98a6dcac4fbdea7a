"""A task that needs word order, at the papers' learning rate: that of scripts/order_task.py.

The curves in docs/ say which architectures learn it within three times the updates of absolute positions. The slow test holds
them to it: bash scripts/test.sh -m slow tests/conformance/test_early_learning.py
"""

import importlib.util
import inspect
import json
import math

import pytest
import readme

from fairseq_posenc.families import expressions
from fairseq_posenc.schemes import parse

SPEC = importlib.util.spec_from_file_location("order_task", readme.ROOT / "scripts" / "order_task.py")
order_task = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(order_task)
NEEDED = {
    name: order_task.updates_needed(curve) or math.inf
    for name, curve in json.loads((readme.ROOT / "docs" / "order_task.json").read_text()).items()
}
LIMIT = 3 * NEEDED["absolute"]
SOON = [name for name in expressions() if NEEDED.get(name, 0) <= LIMIT]


def test_all_architectures_have_curves():
    assert NEEDED.keys() == expressions().keys(), "python scripts/order_task.py --out docs/order_task.json"
    assert (readme.ROOT / "docs" / "order_task.png").exists()


@pytest.mark.parametrize("name", [name for name in expressions() if name not in SOON])
def test_learned_positions_that_come_later_say_why(name):
    schemes = parse(expressions()[name])
    docstrings = [cls.__doc__ or "" for scheme in schemes for cls in inspect.getmro(scheme)]
    assert not any(scheme.data_driven for scheme in schemes) or any("order task" in text for text in docstrings)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOON)
def test_it_is_learned_within_three_times_what_absolute_needs(name):
    curve = list(order_task.learn(name, LIMIT))
    assert order_task.updates_needed(curve) is not None, curve
