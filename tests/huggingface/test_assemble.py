"""The modelling code that travels: one file out of the core's, and nothing that it does not need."""

import ast
import sys

import pytest

from fairseq_posenc.architectures import EXPRESSIONS
from fairseq_posenc.huggingface import assemble


def imported(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, ast.unparse(node)
            yield node.module.split(".")[0]


@pytest.mark.parametrize("expression", sorted(set(EXPRESSIONS.values())))
def test_needs_pytorch_and_transformers_only(expression):
    source = assemble.assemble(expression)
    extra = {"torchdiffeq"} if expression == "floater" else set()
    assert set(imported(source)) - set(sys.stdlib_module_names) == {"torch", "transformers"} | extra
    assert source == assemble.assemble(expression)


def write_package(root, **modules):
    for name, source in modules.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""A module."""\n\n{source}\n')


@pytest.mark.parametrize(
    ("core", "face", "reason"),
    [
        ("class A: ...\nclass B: ...", "from ..core import A\nclass B: ...", "core and huggingface.modeling both define B"),
        ("from math import pi as a\nA = a", "from ..core import A\nfrom math import e as a", "a means"),
        ("class A: ...", "from ..core import A as B", "renames what it imports"),
    ],
)
def test_what_one_name_space_cannot_hold_is_refused(core, face, reason, tmp_path, monkeypatch):
    write_package(tmp_path, core=core, huggingface__modeling=face)
    monkeypatch.setattr(assemble, "ROOT", tmp_path)
    with pytest.raises(RuntimeError, match=reason):
        assemble.assemble("tisa")


def test_order_and_comments(tmp_path, monkeypatch):
    write_package(tmp_path, core="import math\n\nA = math.pi  # why", huggingface__modeling="from ..core import A\n\nB = A + 1")
    monkeypatch.setattr(assemble, "ROOT", tmp_path)
    code = assemble.assemble("tisa").partition("from __future__ import annotations\n")[2]
    assert code.strip() == (
        "import math\n\n\n# fairseq_posenc.core: A module.\n\nA = math.pi  # why\n\n\n"
        "# fairseq_posenc.huggingface.modeling: A module.\n\nB = A + 1"
    )
