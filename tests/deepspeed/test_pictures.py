"""``--position-plots`` where each process has a part of every parameter."""

import pytest
from training_runs import OPTIONS, launcher, needs_deepspeed

pytestmark = needs_deepspeed


@pytest.mark.slow
def test_the_whole_model_is_drawn_at_stage_3(train, tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options = [option for option in OPTIONS if option != "--disable-validation"]
    plots = ["--position-plots", "--tensorboard-logdir", tmp_path, "--validate-interval-updates", 2, "--max-valid-steps", 1]
    run = train("--deepspeed-config", "zero3", "--no-save", *plots, launch=launcher(), options=options, updates=2)
    assert "nothing to show" not in run.output
    events = event_accumulator.EventAccumulator(str(tmp_path / "positions")).Reload()
    assert {event.step for event in events.Images("bias")} == {2}
