"""The time of a training step relative to the reference's, as ``fairseq-posenc compare`` measures it."""

import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from test_compare import LANGUAGE_MODELS, write

from fairseq_posenc.study.compare import costs
from fairseq_posenc.study.compare.cells import Runs
from fairseq_posenc.study.compare.plan import read_plan
from fairseq_posenc.study.measure import work


@pytest.fixture
def measured(world, tmp_path):
    return costs.cells(Runs(read_plan(write(tmp_path, train="--encoder-layers 2 --mask-prob 0.4")), world.prepared, {}))


def test_steps_are_of_the_batch_and_model_of_the_plan(measured, world):
    (cell,) = measured
    assert cell.key == {"cost": "tisa", "reference": "none"}  # whose own is 1
    step = costs.Step(world.prepared, cell.configuration["flags"])
    assert step.sample["net_input"]["src_tokens"].shape == (8, 16)
    assert step.sample["target"].ne(step.model.encoder.dictionary.pad()).sum() == pytest.approx(0.4 * 8 * 15, abs=8)
    assert len(step.model.encoder.sentence_encoder.layers) == 2
    before = [parameter.clone() for parameter in step.model.parameters()]
    first = step.compute().item()
    step.run()
    assert step.compute().item() < first
    assert all((old != new).any() for old, new in zip(before, step.model.parameters(), strict=True))


def test_a_step_of_a_language_model(world, tmp_path):
    plan = read_plan(write(tmp_path, **LANGUAGE_MODELS))
    step = costs.Step(world.prepared, plan.flags("none"))
    assert step.sample["net_input"]["src_tokens"].shape == (8, 16)
    first = step.compute().item()
    step.run()
    assert step.compute().item() < first


def test_the_ratio_is_of_the_schemes_time_to_the_references(measured, world, tmp_path, monkeypatch):
    """With the range over models, of which one is slower here."""
    seconds, built = {"tisa": 3.0, "none": 2.0}, []

    def timed(step, calls):
        if step not in built:
            built.append(step)
        slower = 2 if step is built[0] else 1
        return slower * seconds[step.model.encoder.sentence_encoder.positions.expression]

    monkeypatch.setattr(work, "_seconds", timed)
    monkeypatch.setattr(costs, "MODELS", 3)
    result = costs.measure(world.prepared, measured[0], tmp_path, lambda text, share=None: None)
    assert result["ratio"] == {"median": 1.5, "low": 1.5, "high": 3.0}
    assert len(built) == 6
