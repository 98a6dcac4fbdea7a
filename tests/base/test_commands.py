"""Files that flags name."""

import pytest

from fairseq_posenc.base.commands import best_checkpoint


@pytest.mark.parametrize(
    ("names", "best"),
    [
        (("checkpoint9", "checkpoint10", "checkpoint_1_500"), "checkpoint10"),
        (("checkpoint1", "checkpoint_1_500"), "checkpoint1"),
        (("checkpoint_2_900", "checkpoint_2_1000"), "checkpoint_2_1000"),
        (("checkpoint10", "checkpoint_last"), "checkpoint_last"),
        (("checkpoint_last", "checkpoint_best"), "checkpoint_best"),
    ],
)
def test_the_best_checkpoint_of_a_run_or_its_last(names, best, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in names:
        (tmp_path / "checkpoints" / f"{name}.pt").touch()
    assert best_checkpoint(tmp_path).stem == best


def test_a_folder_without_checkpoints_is_itself(tmp_path):
    assert best_checkpoint(tmp_path) == tmp_path
