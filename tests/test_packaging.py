"""What an installation holds."""

import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from email import message_from_string
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

import fairseq_posenc

ROOT = Path(__file__).parent.parent
HOOK = {"_fairseq_posenc_hook.py", "fairseq_posenc_hook.pth"}


class Wheel(NamedTuple):
    files: dict[str, str]
    source: Path


@pytest.fixture(scope="module", params=["build_wheel", "build_editable"])
def wheel(request, tmp_path_factory):
    """A wheel that is built the way pip does, and the sources that it was built from."""
    folder = tmp_path_factory.mktemp(request.param)
    source = folder / "source"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("fairseq_posenc", "startup"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = f"from setuptools import build_meta; build_meta.{request.param}({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return Wheel({name: archive.read(name).decode() for name in archive.namelist()}, source)


def test_hook_lies_in_site_packages_and_is_recorded(wheel):
    assert set(wheel.files) >= HOOK
    (record,) = (content for name, content in wheel.files.items() if name.endswith("dist-info/RECORD"))
    assert all(f"{name}," in record for name in HOOK), "pip uninstall would leave the hook behind"


def test_pth_only_imports_the_hook(wheel):
    assert wheel.files["fairseq_posenc_hook.pth"] == "import _fairseq_posenc_hook\n"


def test_installed_version_is_that_of_the_package():
    assert metadata.version("fairseq-posenc") == fairseq_posenc.__version__


def test_the_python_versions_agree():
    assert 'python_requires=">=3.10,<3.14"' in (ROOT / "setup.py").read_text()
    assert r"^3\.1[0-3]$" in (ROOT / "scripts" / "setup_venv.sh").read_text()
    for name in ("README.md", "CONTRIBUTING.md", "scripts/setup_venv.sh"):
        assert re.search(r"Python 3\.10 to 3\.13\b", (ROOT / name).read_text("utf-8")), name


def test_wheel_holds_every_package(wheel):
    if any("__editable__" in name for name in wheel.files):
        pytest.skip("an editable wheel points to the sources")
    modules = {str(path.relative_to(wheel.source)) for path in (wheel.source / "fairseq_posenc").rglob("*.py")}
    assert set(wheel.files) >= modules | {"fairseq_posenc/py.typed"}


def test_nothing_else_is_installed(wheel):
    tops = {name.split("/")[0] for name in wheel.files}
    other = {name for name in tops - HOOK if not name.startswith(("fairseq_posenc", "__editable__"))}
    assert other == set()


def test_no_extra_installs_torchaudio(wheel):
    """fairseq requires it. Where it does not load beside the installed PyTorch, transformers cannot be imported."""
    (own,) = (content for name, content in wheel.files.items() if name.endswith("dist-info/METADATA"))
    waiting, required = message_from_string(own).get_all("Requires-Dist"), set()
    while waiting:
        name = re.match(r"[\w.-]+", waiting.pop())[0].lower()
        if name not in required:
            required.add(name)
            with suppress(metadata.PackageNotFoundError):  # of an extra that is not installed here
                waiting += [requirement for requirement in metadata.requires(name) or () if "extra ==" not in requirement]
    assert {"torch", "omegaconf", "transformers"} <= required
    assert "torchaudio" not in required
