"""DeepSpeed's ZeRO on one GPU, with NCCL: the CPU's losses and gradient norms, and checkpoints that become plain ones."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from on_device import needs_device

from fairseq_posenc import cli, load_encoder

pytestmark = [
    *needs_device,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed: pip install -e '.[deepspeed]'"),
]


@pytest.mark.parametrize("preset", ["zero1", "zero2", "zero3", "zero2-offload", "zero3-offload"])
def test_sharded(train, expected, preset, tmp_path):
    flags = ("--bf16", "--no-epoch-checkpoints", "--deepspeed-config", preset)
    run = train(*flags, command=("python", "-m", "fairseq_posenc.train"))
    run.has_curve_of(expected(), 5e-2)
    out = tmp_path / "plain.pt"
    assert cli.main(["consolidate", str(run.save_dir / "checkpoint_last.pt"), "--out", str(out)]) == 0
    tokens = torch.arange(4, 24).view(2, 10)
    states = [load_encoder(file)(tokens).last_hidden_state for file in (out, run.save_dir / "consolidated.pt")]
    assert states[0].isfinite().all()
    assert states[0].equal(states[1])
