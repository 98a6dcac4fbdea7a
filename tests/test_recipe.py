"""The recipe of docs/add_a_scheme.md for a new scheme works to the letter, and with another name."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import readme
from commands import environment

from fairseq_posenc.base.errors import MODULES

RECIPE = "docs/add_a_scheme.md"
OTHERS = (
    *("core/test_sampling.py", "core/schemes", "plugin/models", "huggingface/test_assemble.py"),
    *("study/analyze/test_examine.py", "study/catalogue"),
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
    from fairseq.distributed.utils import call_main
    from fairseq_cli.train import main

    given = [DATA, "--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "32", "--cpu", "--optimizer", "adam",
             "--lr", "1e-3", "--max-update", "2", "--batch-size", "4", "--num-workers", "0", "--save-dir", str(tmp_path), *flags]
    namespace = options.parse_args_and_arch(options.get_training_parser(), given)
    call_main(convert_namespace_to_omegaconf(namespace), main)
    assert (tmp_path / "checkpoint_last.pt").exists()
"""
WITHOUT = """import runpy, sys
sys.modules.update(dict.fromkeys({packages}))
sys.argv = {arguments}
runpy.run_module({arguments}[0], run_name="__main__", alter_sys=True)
"""


def put(path: Path, code: str, where: str) -> None:
    """Add code at the end of a file, or of the list or mapping of that name in it."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if where:
        end = re.compile(r"^[\]}]", re.MULTILINE).search(old, old.index(f"\n{where} = ")).start()
    else:
        end, code = len(old), f"\n\n{code}" if old else code
    path.write_text(old[:end] + code + old[end:], encoding="utf-8")


def named(text: str, name: str) -> str:
    """A text of the recipe, for a scheme of this name."""
    return text.replace("decay", name).replace("Decay", name.title().replace("_", ""))


@pytest.fixture(params=["decay", "hyperbolic_bias"])
def followed(request, tmp_path) -> tuple[str, Path]:
    """The scheme's name, and a copy of this repository with the recipe's files."""
    for name in ("fairseq_posenc", "tests", "scripts", "docs", "examples", "README.md", "pyproject.toml"):
        source, target = readme.ROOT / name, tmp_path / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for block in readme.blocks("# Add a scheme", "python", "", file=RECIPE):
        head, _, code = named(block, request.param).partition("\n")
        path, _, where = head.removeprefix("# ").partition(", in ")
        if path.endswith(".py"):
            put(tmp_path / path, code, where)
    return request.param, tmp_path


def python(folder: Path, *arguments: str) -> str:
    variables = environment(
        PYTHONPATH=os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def optional_packages() -> set[str]:
    """The modules of all extras but those that the installation in README.md and the recipe bring."""
    required = [re.match(r"([\w-]+).*extra == .(\w+)", line) for line in metadata.requires("fairseq-posenc")]
    names = {match[1] for match in required if match and match[2] != "fairseq"}
    return {MODULES.get(name, name) for name in names - {"matplotlib", "pytest", "setuptools"}}


@pytest.mark.thorough
def test_the_check_passes_with_nothing_but_pytest(followed):
    name, folder = followed
    blocks = readme.blocks("# Add a scheme", "", file=RECIPE)
    (command,) = (line for block in blocks for line in block.splitlines() if "pytest tests" in line)
    _, _, *arguments = shlex.split(named(command, name))
    ran = python(folder, "-c", WITHOUT.format(packages=optional_packages(), arguments=arguments))
    assert int(re.search(r"(\d+) passed", ran)[1]) > 40


@pytest.mark.slow
def test_the_other_tests_pass(followed, data_bin):
    name, folder = followed
    (folder / "tests" / "test_training_step.py").write_text(named(TRAINING, name).replace("DATA", repr(str(data_bin))))
    python(folder, "scripts/write_tables.py")
    files = [f"tests/{file}" for file in ("test_training_step.py", *OTHERS)]
    python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", f"{name} or decay or readme or every_scheme")
