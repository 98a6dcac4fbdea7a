"""docs/pytorch.md: an installation by its commands runs what it shows, in this order, where only PyTorch can be imported."""

import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata

import pytest
import readme
from commands import environment

ALONE = """
import sys, warnings
sys.path[:0] = [{target!r}, {purelib!r}]
sys.modules.update(dict.fromkeys({others}))
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # PyTorch's own, which does without
"""
SHOWN = """
assert bias.shape == (8, 20, 20)
assert z.shape == (2, 8, 20, 64)
assert attention.positions.shaw.keys.grad.any()
assert states.shape == (masked.sum(), 64)
assert [tuple(p.shape) for p in weights] == [(8, 4, 20, 20)] * 2
assert all((again.state_dict()[name] == value).all() for name, value in saved["model"].items())
assert exported.shape == (2, 31, 64)
assert continued.shape == (7, 8)
assert {target!r} in sys.modules["fairseq_posenc"].__file__
"""


def needed_by(distribution: str) -> set[str]:
    """The names of what a distribution requires, itself included, without extras."""
    waiting, found = [distribution], set()
    while waiting:
        name = re.match(r"[\w.-]+", waiting.pop())[0].lower().replace("_", "-")
        if name not in found:
            try:
                required = metadata.requires(name) or []
            except metadata.PackageNotFoundError:  # for another platform
                continue
            found.add(name)
            waiting += [requirement for requirement in required if "extra ==" not in requirement]
    return found


@pytest.mark.thorough
def test_pytorch_is_all_that_is_needed(tmp_path):
    pips = [command.words for command in readme.commands_of("docs/pytorch.md") if command.words[0] == "pip"]
    torch, ours, *_ = pips  # the others install extras
    assert torch == ["pip", "install", "torch"]
    source, target = tmp_path / "source", tmp_path / "site"
    for name in ("setup.py", "pyproject.toml", "LICENSE", "fairseq_posenc", "startup"):
        copy = shutil.copytree if (readme.ROOT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(readme.ROOT / name, source / name)
    offline = ["--quiet", "--no-build-isolation", "--no-index", "--target", target]
    subprocess.run([sys.executable, "-m", *ours, *offline], cwd=source, check=True)
    needed = needed_by("torch")
    others = sorted(
        package
        for package, names in metadata.packages_distributions().items()
        if package != "fairseq_posenc" and not needed & {name.lower().replace("_", "-") for name in names}
    )
    code = "".join(block.text for block in readme.blocks_of("docs/pytorch.md") if block.language == "python")
    places = {"target": str(target), "purelib": sysconfig.get_path("purelib")}
    code = ALONE.format(others=others, **places) + code + SHOWN.format(**places)
    command = [sys.executable, "-I", "-S", "-c", code]  # -S: without the .pth file of an editable installation
    ran = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


OPENING = """
from fairseq_posenc.core.terms import Window

slopes = Encoder("slope", vocab_size=1000, layers=2)
(term,) = slopes.positions.terms(Window(4)).of(1, states).biases
assert states.shape == (8, 20, 768) and bias.shape == (8, 20, 20)
assert term.table[0].tolist() == [-3, -2, -1, 0, -1, -2, -3]
"""
BLOCKED = "import sys\nsys.modules.update(dict.fromkeys(('fairseq', 'transformers', 'deepspeed', 'hydra', 'omegaconf')))\n"


def test_the_readmes_python(tmp_path):
    code = BLOCKED + "".join(block.text for block in readme.blocks_of("README.md") if block.language == "python") + OPENING
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
