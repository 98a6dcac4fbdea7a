"""The modelling code that travels: one file out of the core's, and nothing that it does not need."""

import ast
import importlib
import sys

import pytest
from cases import SOME, thorough_but

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import base
from fairseq_posenc.huggingface import assemble


def imported(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, ast.unparse(node)
            yield node.module.split(".")[0]


@pytest.mark.parametrize(
    "expression", thorough_but(("absolute+tisa", "m4m", "deberta"), sorted(set(expressions().values())), SOME)
)
def test_needs_pytorch_and_transformers_only(expression):
    source = assemble.assemble(expression)
    assert set(imported(source)) - set(sys.stdlib_module_names) == {"torch", "transformers"}
    assert source == assemble.assemble(expression)
    defined = [node.name for node in ast.parse(source).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    assigned = [node for node in ast.parse(source).body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    targets = [node.targets[0] if isinstance(node, ast.Assign) else node.target for node in assigned]
    defined += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    assert [name for name in set(defined) if defined.count(name) > 1] == []


def test_what_an_option_adds_to_any_positions_travels():
    assert "class LogN(" in assemble.assemble("rope")
    assert "class KeyOffset(" not in assemble.assemble("rope")


@pytest.fixture
def two_files(tmp_path, monkeypatch):
    """A function that writes and imports a package of two modules with a scheme, by an import statement and an expression."""

    def write(statement, factor):
        package = tmp_path / "two_files"
        package.mkdir()
        (package / "__init__.py").write_text("from .mine import Mine\n")
        (package / "helpers.py").write_text('"""Helps."""\n\nimport math\n\nTWO = math.sqrt(4)\n')
        (package / "mine.py").write_text(
            f"from fairseq_posenc.core.schemes import Scheme, register\n{statement}\n\n"
            f"@register\nclass Mine(Scheme):\n    name = 'mine'\n    factor = {factor}\n"
        )
        importlib.import_module("two_files")

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    del base.REGISTRY["mine"]
    for name in ("two_files", "two_files.mine", "two_files.helpers"):
        del sys.modules[name]


@pytest.mark.parametrize(
    ("statement", "factor"),
    [
        ("import two_files.helpers", "two_files.helpers.TWO"),
        ("from two_files import helpers", "helpers.TWO"),
        ("from . import helpers", "helpers.TWO"),
        ("from .helpers import TWO as T", "T"),
        ("import fairseq_posenc.base.errors; from .helpers import TWO", "TWO"),
        ("if True:\n    from .helpers import TWO", "TWO"),
    ],
)
def test_imports_that_one_module_cannot_have_are_refused(statement, factor, two_files):
    two_files(statement, factor)
    with pytest.raises(InputError, match=r"mine\.py:[23]: .*import"):
        assemble.assemble("absolute+mine")


def test_a_scheme_from_elsewhere_travels_with_the_modules_of_its_package(two_files):
    two_files("from .helpers import TWO", "TWO")
    source = assemble.assemble("absolute+mine")
    assert set(imported(source)) - set(sys.stdlib_module_names) == {"torch", "transformers"}
    assert (
        source.index("class Scheme(") < source.index("TWO = ") < source.index("class Mine(") < source.index("class PosencModel(")
    )
