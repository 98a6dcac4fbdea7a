"""What an installation holds."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from contextlib import suppress
from email import message_from_string
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
import readme
import yaml
from packaging.requirements import Requirement

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


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The sdist of the sources, and the wheel that is built from it, as they would be uploaded."""
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"
    source.mkdir()
    for name in ("fairseq_posenc", "startup", "setup.py", "pyproject.toml", "LICENSE", "README.md"):
        path = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(path, source / name, ignore=ignore) if path.is_dir() else shutil.copy(path, source)
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, str(sdist)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.mark.thorough
def test_the_wheel_of_the_sdist_holds_everything(release):
    with zipfile.ZipFile(release[1]) as archive:
        names = set(archive.namelist())
    package = ROOT / "fairseq_posenc"
    kept = {path for suffix in ("py", "json", "typed") for path in package.rglob(f"*.{suffix}")}
    assert names >= HOOK | {str(path.relative_to(ROOT)) for path in kept}


@pytest.mark.thorough
def test_an_installed_wheel_works(release, tmp_path):
    """In an environment that has everything but this package: fairseq finds the models, and the command runs."""
    site_packages = Path(sysconfig.get_path("purelib"))
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    (own,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    (own / "others.pth").write_text(f"{site_packages}\n")  # whose own .pth files, this package's among them, are not read
    code = "import fairseq_posenc"
    assert subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, check=False).returncode == 1
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(release[1])]
    subprocess.run(install, check=True, capture_output=True)
    code = (
        "import fairseq_posenc, pathlib, sys; assert pathlib.Path(sys.prefix) in pathlib.Path(fairseq_posenc.__file__).parents;"
        "from fairseq.models import ARCH_MODEL_REGISTRY; assert 'roberta_tisa' in ARCH_MODEL_REGISTRY"
    )
    subprocess.run([python, "-c", code], cwd=tmp_path, check=True)
    command = [tmp_path / "venv" / "bin" / "fairseq-posenc", "schemes", "tisa"]
    assert "2,160" in subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout


def without_fairseq(folder, wheel, extras):
    """An environment of what the wheel and these extras require, by links to what is installed here; returns its Python."""
    venv.create(folder)
    (own,) = (folder / "lib").glob("python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        (described,) = (archive.read(name) for name in archive.namelist() if name.endswith("dist-info/METADATA"))
    waiting, known = [(line, extras) for line in message_from_string(described.decode()).get_all("Requires-Dist")], set()
    while waiting:
        line, wanted = waiting.pop()
        requirement = Requirement(line)
        applies = not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *wanted))
        if not applies or requirement.name in known:
            continue
        known.add(requirement.name)
        with suppress(metadata.PackageNotFoundError):  # of another platform
            distribution = metadata.distribution(requirement.name)
            for top in {file.parts[0] for file in distribution.files or () if ".." not in file.parts} - {"__pycache__"}:
                if not (own / top).exists():
                    (own / top).symlink_to(distribution.locate_file(top))
            waiting += [(line, requirement.extras) for line in distribution.requires or ()]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return folder / "bin" / "python"


@pytest.mark.slow
def test_the_wheel_without_fairseq(release, tmp_path):
    """It has what it requires and no more; it trains, and its commands read and write files and models of transformers."""
    python = without_fairseq(tmp_path / "venv", release[1], ["hf", "plots", "glue", "compare"])

    def run(*words, status=0):
        ran = subprocess.run([*map(str, words)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == status, ran.stderr
        return ran.stdout + ran.stderr

    for name in ("fairseq", "hydra", "omegaconf", "deepspeed"):
        assert f"No module named '{name}'" in run(python, "-c", f"import {name}", status=1)
    blocks = (block.text for block in readme.blocks_of("docs/pytorch.md") if block.language == "python")
    run(python, "-c", "".join(blocks))
    run(python, ROOT / "tests" / "huggingface" / "masked_lm_without_fairseq.py")
    command = python.parent / "fairseq-posenc"
    assert "Wennberg" in run(command, "schemes", "folder/")
    assert "no" not in {line.split("  ")[-1].strip() for line in run(command, "check", "alibi").splitlines()}
    run(command, "pairs", "folder", "--data", "pairs.jsonl", "--out", "pairs")
    run(command, "prepare", "text.txt", "--document-per-line", "--vocabulary", "vocabulary", "--out", "data-bin")
    flags = "--batch-size 4 --tokens-per-sample 16 --optimizer adam --lr 1e-3 --max-update 2 --validate-interval-updates 1 --cpu"
    train = f"data-bin --task masked_lm --criterion masked_lm --arch roberta_tisa_tiny --save-dir trained {flags}"
    run(sys.executable, "-m", "fairseq_cli.train", *train.split())  # where fairseq is installed
    run(command, "import-hf", "folder", "--out", "imported/a.pt")
    for name in ("trained/checkpoint_last.pt", "imported/a.pt"):
        run(command, "export-hf", name, "--data", "data-bin", "--out", f"exported/{name}")
        run(command, "pairs", name, "--data", "pairs.jsonl", "--out", f"pairs_of/{name}")
        run(python, "-c", f"from fairseq_posenc import load_encoder; load_encoder('{name}')")
    for name in ("trained/checkpoint_last.pt", "exported/imported/a.pt"):
        run(command, "analyze", name, "--text", "text.txt", "--length", "16", "--out", f"analysis/{name}")
        assert (tmp_path / "analysis" / name / "report.html").exists()
    (said,) = run(command, "extrapolate", "imported/a.pt", "--data", "data-bin", "--out", "losses", status=2).splitlines()
    assert said.startswith("fairseq-posenc extrapolate: needs fairseq 0.12.2, which is not installed: ")


def test_the_citation_has_the_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == fairseq_posenc.__version__


def test_the_workflow_runs_the_scripts_with_every_python():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8"))["jobs"]
    steps = [step["run"].split() for job in jobs.values() for step in job["steps"] if "run" in step]
    assert {name for words in steps for name in words if "/" in name and not (ROOT / name).is_file()} == set()
    assert ["bash", ".ci/run"] in steps
    assert jobs["tests"]["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(10, 14)]


def test_the_pinned_versions_are_within_the_bounds(wheel):
    (extras,) = re.findall(r"\$source\[(.+?)\]", (ROOT / "scripts" / "install_pinned.sh").read_text("utf-8"))
    pinned = dict(line.split("==") for line in (ROOT / "scripts" / "pinned.txt").read_text("utf-8").splitlines())
    (own,) = (content for name, content in wheel.files.items() if name.endswith("dist-info/METADATA"))
    required = [*map(Requirement, message_from_string(own).get_all("Requires-Dist"))]
    installed = [r for r in required if not r.marker or any(r.marker.evaluate({"extra": extra}) for extra in extras.split(","))]
    assert {r.name for r in installed} >= {"torch", "transformers", "statsmodels"}
    assert [r for r in installed if not r.specifier.contains(pinned[r.name])] == []


@pytest.mark.slow
def test_the_pinned_versions_are_installed(tmp_path):
    """The script that the Dockerfile runs, which checks the installation itself."""
    assert "scripts/install_pinned.sh" in (ROOT / "Dockerfile").read_text("utf-8")
    venv.create(tmp_path / "pinned", with_pip=True)
    script = ["bash", str(ROOT / "scripts" / "install_pinned.sh")]
    environment = {**os.environ, "PYTHON": "pinned/bin/python"}
    ran = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert f"fairseq-posenc {fairseq_posenc.__version__}" in ran.stdout
    freeze = [tmp_path / "pinned/bin/python", "-m", "pip", "freeze"]
    frozen = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout.splitlines()
    pinned = (ROOT / "scripts" / "pinned.txt").read_text("utf-8").splitlines()
    assert {line.partition("+")[0] for line in frozen if not line.startswith("fairseq")} <= {*pinned}
