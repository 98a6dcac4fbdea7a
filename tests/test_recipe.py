"""The recipe of docs/add_a_scheme.md for a new scheme works to the letter."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import readme
from commands import environment

CONCERNED = (
    "test_training_step.py",
    "conformance",
    "schemes",
    "catalogue",
    "models/test_roberta.py",
    "huggingface/test_assemble.py",
)
TRAINING = """
import pytest

@pytest.mark.parametrize("flags", [
    ["--arch", "roberta_posenc_tiny", "--positions", "decay", "--decay-power", "0.5"],
    ["--arch", "roberta_decay_tiny"],
])
def test_decay_is_trained(flags, tmp_path):
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq_posenc.finetuning.fairseq_run import train

    given = [DATA, "--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "32", "--cpu", "--optimizer", "adam",
             "--lr", "1e-3", "--max-update", "2", "--batch-size", "4", "--num-workers", "0", "--save-dir", str(tmp_path), *flags]
    namespace = options.parse_args_and_arch(options.get_training_parser(), given)
    train(convert_namespace_to_omegaconf(namespace), lambda text, share=None: None)
    assert (tmp_path / "checkpoint_last.pt").exists()
"""


def put(path: Path, code: str, where: str) -> None:
    """Add code at the end of a file, or of the list or mapping of that name in it."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if where:
        end = re.compile(r"^[\]}]", re.MULTILINE).search(old, old.index(f"\n{where} = ")).start()
    else:
        end, code = len(old), f"\n\n{code}" if old else code
    path.write_text(old[:end] + code + old[end:], encoding="utf-8")


@pytest.mark.slow
def test_a_new_scheme_passes_every_test(tmp_path, data_bin):
    for name in ("fairseq_posenc", "tests", "scripts", "docs", "examples", "README.md", "pyproject.toml"):
        source, target = readme.ROOT / name, tmp_path / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for block in readme.blocks("# Add a scheme", "python", "", file="docs/add_a_scheme.md"):
        head, _, code = block.partition("\n")
        path, _, where = head.removeprefix("# ").partition(", in ")
        put(tmp_path / path, code, where)
    (tmp_path / "tests" / "test_training_step.py").write_text(TRAINING.replace("DATA", repr(str(data_bin))))
    variables = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))

    def python(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        return ran.stdout

    python("scripts/write_tables.py")
    chosen = "decay or readme or every_scheme or every_architecture"
    ran = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in CONCERNED), "-k", chosen)
    assert int(re.search(r"(\d+) passed", ran)[1]) > 50
