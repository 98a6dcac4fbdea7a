"""Figures in logs and in TensorBoard."""

import pytest
import torch
from fairseq import options
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_logs_go_on_after_a_resume(train, tmp_path):
    """The training goes beyond the checkpoint that it is resumed from."""
    values = {"common.tensorboard_logdir": str(tmp_path / "tensorboard"), "common.log_interval": 1}
    checkpoint = train("plain", "run", {**values, "checkpoint.save_interval_updates": 2}).save_dir / "checkpoint_1_2.pt"
    content = torch.load(checkpoint, weights_only=False)
    content["extra_state"]["previous_training_time"] = 5000
    torch.save(content, checkpoint)
    resumed = train("plain", "resumed", {**values, "checkpoint.restore_file": str(checkpoint), "optimization.max_update": 5})
    assert all(5000 <= float(row["wall"]) < 6000 for row in resumed.rows["train_inner"])
    events = EventAccumulator(str(tmp_path / "tensorboard" / "train_inner"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("value", ["${env:HOME}", "[1,2", "x"])
def test_a_list_that_is_none_is_named(value, capsys):
    with pytest.raises(SystemExit):
        options.get_training_parser().parse_args(["data", "--update-freq", value])
    assert "--update-freq" in capsys.readouterr().err
