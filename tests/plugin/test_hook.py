"""The start-up hook: the plugin is there by itself, can be switched off, and never stands in Python's way."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import readme
from commands import environment

ROOT = Path(__file__).parents[2]
STARTUP = ROOT / "startup"
DISABLED = {"FAIRSEQ_POSENC_DISABLE": "1"}


def python(code, *flags, **variables):
    """Run ``code`` in the installed environment."""
    return subprocess.run(
        [sys.executable, *flags, "-c", code], env=environment(**variables), capture_output=True, text=True, timeout=300
    )


def output(code, *flags, **variables):
    """The last line that ``code`` prints; an optional dependency of fairseq may print others before."""
    completed = python(code, *flags, **variables)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()[-1]


FINDERS = "import sys; print(sum(type(finder).__module__ == '_fairseq_posenc_hook' for finder in sys.meta_path))"


def test_start_up_installs_one_finder_and_imports_nothing():
    assert output(FINDERS) == "1"
    heavy = "import sys; print([name for name in ('fairseq_posenc', 'fairseq', 'torch', 'hydra') if name in sys.modules])"
    assert output(heavy) == "[]"


def test_switched_off():
    assert output(FINDERS, **DISABLED) == "0"
    assert output(FINDERS, FAIRSEQ_POSENC_DISABLE="0") == "1"


def test_importing_the_package_is_light():
    code = "import sys, fairseq_posenc; print('fairseq' in sys.modules, 'torch' in sys.modules)"
    assert output(code) == "False False"


ROUND_FAIRSEQ = f"""
import argparse, dataclasses, importlib.util, json, pkgutil, sys
dataclass, walk = dataclasses.dataclass, pkgutil.walk_packages
import torch, numpy
load, names = torch.load, set(dir(numpy))
importlib.util.find_spec("fairseq")
import fairseq.models, fairseq.utils
known = fairseq.models.ARCH_MODEL_REGISTRY
found = {{
    "registered": "roberta_tisa" in known and "roberta_base" in known,
    "own loader": "exec_module" not in vars(fairseq.__spec__.loader),
    "dataclasses": dataclasses.dataclass is dataclass,
    "pkgutil": pkgutil.walk_packages is walk,
    "torch": torch.load is load,
    "numpy": set(dir(numpy)) == names,
}}
fairseq.utils.import_user_module(argparse.Namespace(user_dir={str(ROOT / "fairseq_posenc")!r}))
found["user dir"] = "roberta_tisa" in known
print(json.dumps(found))
"""


def test_importing_fairseq_registers_and_leaves_all_else_as_it_was():
    """Also after fairseq has been looked for, which does not use up the hook, and with --user-dir in addition."""
    found = json.loads(output(ROUND_FAIRSEQ))
    assert [name for name, as_it_should in found.items() if not as_it_should] == []


def test_fairseqs_modules_for_speech_are_imported():
    """By the program that docs/installation.md shows."""
    code = readme.blocks("## The start-up hook", "", file="docs/installation.md")[-1]
    assert output(code.split("<<'EOF'\n")[1].removesuffix("EOF\n")) == "18"


RELEASE = {"version.py": '__version__ = "0.12.2"\n'}


def isolated(tmp_path, code, **variables):
    """Run ``code`` with the hook, and only what lies in ``tmp_path``, as its site-packages."""
    for file in STARTUP.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    start = f"import site; site.addsitedir({str(tmp_path)!r})\n"
    return python(start + code, "-I", "-S", **variables)


def package(folder, name, content, **files):
    (folder / name).mkdir()
    for file, text in {"__init__.py": content, **files}.items():
        (folder / name / file).write_text(text)


def test_hook_left_behind_does_nothing(tmp_path):
    package(tmp_path, "fairseq", "loaded = True", **RELEASE)
    completed = isolated(tmp_path, "import fairseq; print(fairseq.loaded)")
    assert (completed.stdout.strip(), completed.stderr) == ("True", "")


def test_folder_left_behind_does_nothing(tmp_path):
    package(tmp_path, "fairseq", "loaded = True", **RELEASE)
    (tmp_path / "fairseq_posenc").mkdir()
    completed = isolated(tmp_path, "import fairseq; print(fairseq.loaded)")
    assert (completed.stdout.strip(), completed.stderr) == ("True", "")


def test_broken_package_fails_with_fairseq_and_not_before(tmp_path):
    package(tmp_path, "fairseq", "", **RELEASE)
    package(tmp_path, "fairseq_posenc", "import no_such_module")
    assert isolated(tmp_path, "print('started')").stdout.strip() == "started"
    completed = isolated(tmp_path, "import fairseq")
    assert completed.returncode != 0
    assert "No module named 'no_such_module'" in completed.stderr


@pytest.mark.parametrize("files", [RELEASE, {"version.txt": "0.12.2\n"}, {"version.txt": "0.12.2"}], ids=str)
def test_the_release_is_known_installed_and_checked_out(tmp_path, files):
    package(tmp_path, "fairseq", "print('fairseq')", **files)
    importing = "import contextlib\n@contextlib.contextmanager\ndef importing():\n    print('before'); yield; print('after')"
    package(tmp_path, "fairseq_posenc", importing)
    assert isolated(tmp_path, "import fairseq").stdout.split() == ["before", "fairseq", "after"]


@pytest.mark.parametrize(
    "files",
    [
        {"fairseq.py": ""},
        {"fairseq/__init__.py": ""},
        {"fairseq/__init__.py": "", "fairseq/version.txt": "0.12.20"},
        {"fairseq/__init__.py": "", "fairseq/version.py": "__version__ = '3'", "fairseq/version.txt": "0.12.2"},
        {"fairseq/__init__.py": "", "fairseq/version.py": "\udcff"},
        {"fairseq/__init__.py": "", "fairseq/version.txt/0.12.2": ""},
        {"fairseq/fairseq/__init__.py": "", "fairseq/version.txt": "0.12.2"},
    ],
    ids=str,
)
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_what_else_has_the_name_is_left_alone(tmp_path, files, packed):
    """Not even this package is imported, which would fail here."""
    package(tmp_path, "fairseq_posenc", "raise SystemError")
    place = tmp_path / "place"
    for file, text in files.items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_bytes(text.encode(errors="surrogateescape"))
    if packed:
        place = shutil.make_archive(place, "zip", place)
    code = f"import sys; sys.path.append({str(place)!r}); import fairseq; print(fairseq.__name__)"
    completed = isolated(tmp_path, code)
    assert (completed.stdout, completed.stderr) == ("fairseq\n", "")


@pytest.mark.parametrize(("version", "module"), [(None, "fairseq_posenc.core.transformer"), ("0.10.2", "fairseq_posenc")])
def test_importing_the_package_beside_another_fairseq(version, module):
    code = (
        "import sys, types; fairseq = sys.modules['fairseq'] = types.ModuleType('fairseq')\n"
        f"fairseq.__dict__.update({{'__version__': {version!r}}} if {version!r} else {{}})\n"
        f"import {module}"
    )
    completed = python(code)
    assert completed.returncode == 0, completed.stderr
    assert ("registers with fairseq 0.12.2, and 0.10.2 is imported" in completed.stderr) == (version == "0.10.2")


@pytest.mark.thorough
def test_failing_registration_is_an_error():
    code = "import sys; sys.modules['fairseq_posenc.plugin.models'] = None\nimport fairseq"
    completed = python(code)
    assert completed.returncode != 0
    assert "fairseq_posenc.plugin.models" in completed.stderr


def test_without_fairseq(tmp_path):
    completed = isolated(tmp_path, "import fairseq")
    assert completed.stderr.strip().endswith("ModuleNotFoundError: No module named 'fairseq'")


USER_DIR = f"""
import argparse, fairseq.models, fairseq.utils
fairseq.utils.import_user_module(argparse.Namespace(user_dir={str(ROOT / "fairseq_posenc")!r}))
print('roberta_tisa' in fairseq.models.ARCH_MODEL_REGISTRY)
"""


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="fairseq 0.12.2 does not import on Python 3.11 without the hook")
def test_user_dir_without_the_hook():
    assert output(USER_DIR, **DISABLED) == "True"
