"""``--train-flags '--pack-examples N'`` of ``glue`` and ``squad``: the same results from fuller rows."""

import json
import re

import pytest
from glue_files import write_task
from squad_files import write_squad

from fairseq_posenc import cli

SAME = ["--lrs", "1e-3", "--seeds", "1", "--epochs", "1", "--batch-size", "8", "--dropout", "0", "--attention-dropout", "0"]
WINDOWS = ["--version", "2.0", "--max-length", "40", "--doc-stride", "12", "--max-question-length", "16"]
LOSS = re.compile(r'"(?:train|valid)_loss": "([\d.]+)"')


def run(command, out, *flags):
    """The scores of the one run, and the losses that fairseq logged."""
    assert cli.main([*command, "--out", str(out), *SAME, *flags]) == 0
    (result,) = out.glob("runs/*/*/result.json")
    log = (result.parent / "train.log").read_text()
    losses = [float(loss) for loss in LOSS.findall(log)]
    assert len(losses) == 2
    return json.loads(result.read_text())["scores"], losses


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["SST-2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("STS-B", "SQuAD"))])
def test_the_same_losses_and_scores(name, checkpoint, tmp_path):
    data, source = tmp_path / "data", ["--data", str(tmp_path / "data"), "--checkpoint", str(checkpoint)]
    if name == "SQuAD":
        write_squad(data, "2.0", paragraphs=3)
        command = ["squad", *source, *WINDOWS]
    else:
        write_task(data, name, rows=24)
        command = ["glue", *source, "--tasks", name]
    scores, losses = run(command, tmp_path / "padded")
    packed_scores, packed_losses = run(command, tmp_path / "packed", "--train-flags", "--pack-examples 60")
    assert packed_losses == pytest.approx(losses, abs=2e-3)  # they are logged with three decimals
    for key, expected in scores.items():
        assert packed_scores[key] == pytest.approx(expected, abs=1e-2)  # per cent
