"""An export computes on a GPU what the checkpoint computes on the CPU in float64."""

from __future__ import annotations

import pytest
import torch
from on_device import DEVICE, needs_device

from fairseq_posenc import cli
from fairseq_posenc.plugin.models.hub_interface import load_hub_interface

pytestmark = needs_device


@pytest.fixture(scope="module")
def models(train, data, tmp_path_factory):
    """The checkpoint's model, and the export's."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[hf]'")
    checkpoint, out = train("--no-epoch-checkpoints").save_dir / "checkpoint_last.pt", tmp_path_factory.mktemp("export") / "hf"
    assert cli.main(["export-hf", str(checkpoint), "--data", str(data), "--out", str(out)]) == 0
    exported = transformers.AutoModelForMaskedLM.from_pretrained(out).eval()
    return load_hub_interface(checkpoint, data).model.double(), exported


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2), (torch.float16, 1e-2)], ids=str)
def test_parity(models, dtype, tolerance):
    ours, exported = models
    tokens = torch.randint(4, 60, (3, 30), generator=torch.Generator().manual_seed(1))
    tokens[1, 20:] = 1
    real = tokens != 1
    with torch.no_grad():
        expected = ours(tokens)[0][real]
        found = exported.to(DEVICE, dtype)(tokens.to(DEVICE), attention_mask=real.long().to(DEVICE)).logits.cpu().double()[real]
    assert (found - expected).norm() <= tolerance * expected.norm()
