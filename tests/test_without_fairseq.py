"""docs/pytorch.md: what it shows runs in this order, where fairseq cannot be imported."""

import subprocess
import sys

import readme
from commands import environment

BLOCKED = "import sys\nsys.modules.update(dict.fromkeys(('fairseq', 'transformers', 'deepspeed', 'hydra', 'omegaconf')))\n"
SHOWN = """
assert states.shape == (masked.sum(), 64)
assert [tuple(p.shape) for p in weights] == [(8, 4, 20, 20)] * 2
assert all((again.state_dict()[name] == value).all() for name, value in saved["model"].items())
assert exported.shape == (2, 31, 64)
assert bias.shape == (1, 4, 20, 20)
assert z.shape == (8, 4, 20, 16)
"""


def test_plain_pytorch(tmp_path):
    code = "".join(block.text for block in readme.blocks_of("docs/pytorch.md") if block.language == "python")
    command = [sys.executable, "-W", "error", "-c", BLOCKED + code + SHOWN]
    ran = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
