"""The modelling code that travels: one file out of the core's, and nothing that it does not need."""

import ast
import importlib
import sys

import pytest

from fairseq_posenc.families import expressions
from fairseq_posenc.huggingface import assemble
from fairseq_posenc.schemes import base


def imported(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, ast.unparse(node)
            yield node.module.split(".")[0]


@pytest.mark.parametrize("expression", sorted(set(expressions().values())))
def test_needs_pytorch_and_transformers_only(expression):
    source = assemble.assemble(expression)
    assert set(imported(source)) - set(sys.stdlib_module_names) == {"torch", "transformers"}
    assert source == assemble.assemble(expression)


def write_package(root, **modules):
    for name, source in modules.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""A module."""\n\n{source}\n')


@pytest.mark.parametrize(
    ("core", "face", "reason"),
    [
        (
            "class A: ...\nclass B: ...",
            "from ..core import A\nclass B: ...",
            "core and fairseq_posenc.huggingface.modeling both define B",
        ),
        ("from math import pi as a\nA = a", "from ..core import A\nfrom math import e as a", "a means"),
        ("class A: ...", "from ..core import A as B", "'from ..core import A as B' cannot be followed"),
        ("class A: ...", "def f():\n    from ..core import A", "'from ..core import A' cannot be followed"),
        ("class A: ...", "import fairseq_posenc.core", "'import fairseq_posenc.core' cannot be followed"),
        ("class A: ...", "from .. import core", "modeling imports core, which is not a class, function or variable"),
    ],
)
def test_what_one_name_space_cannot_hold_is_refused(core, face, reason, tmp_path, monkeypatch):
    write_package(tmp_path, core=core, huggingface__modeling=face)
    monkeypatch.setattr(assemble, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=reason):
        assemble.assemble("tisa")


def test_order_and_comments(tmp_path, monkeypatch):
    write_package(tmp_path, core="import math\n\nA = math.pi  # why", huggingface__modeling="from ..core import A\n\nB = A + 1")
    monkeypatch.setattr(assemble, "ROOT", tmp_path)
    code = assemble.assemble("tisa").partition("from __future__ import annotations\n")[2]
    assert code.strip() == (
        "import math\n\n\n# fairseq_posenc.core: A module.\n\nA = math.pi  # why\n\n\n"
        "# fairseq_posenc.huggingface.modeling: A module.\n\nB = A + 1"
    )


def test_a_scheme_from_elsewhere_travels_with_the_modules_of_its_package(tmp_path, monkeypatch):
    package = tmp_path / "two_files"
    package.mkdir()
    (package / "__init__.py").write_text("from .mine import Mine\n")
    (package / "helpers.py").write_text('"""Helps."""\n\nimport math\n\nTWO = math.sqrt(4)\n')
    (package / "mine.py").write_text(
        "from fairseq_posenc.schemes import Scheme, register\nfrom .helpers import TWO\n\n"
        "@register\nclass Mine(Scheme):\n    name = 'mine'\n    factor = TWO\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(base, "LISTENERS", [])
    importlib.import_module("two_files")
    try:
        source = assemble.assemble("absolute+mine")
    finally:
        del base.REGISTRY["mine"]
        for name in ("two_files", "two_files.mine", "two_files.helpers"):
            del sys.modules[name]
    assert set(imported(source)) - set(sys.stdlib_module_names) == {"torch", "transformers"}
    assert (
        source.index("class Scheme(") < source.index("TWO = ") < source.index("class Mine(") < source.index("class PosencModel(")
    )
