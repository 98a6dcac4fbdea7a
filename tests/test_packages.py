"""Which package may import which, and how large all are together; a module right below fairseq_posenc counts as a package."""

import ast
import io
import re
import subprocess
import sys
import token
import tokenize
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import readme

import fairseq_posenc
from fairseq_posenc.core.attention import BACKENDS
from fairseq_posenc.core.schemes import REGISTRY

PACKAGE = Path(fairseq_posenc.__file__).parent
DESIGN = (readme.ROOT / "docs" / "design.md").read_text("utf-8")
COMMON = {"commands", "errors", "files", "ownership", "version"}
CORE = {"terms", "schemes", "attention", "transformer"}
MAY_IMPORT = {  # besides itself; only what is listed above it, so that there are no cycles
    "errors": set(),
    "version": set(),
    "commands": {"errors"},
    "files": set(),
    "ownership": {"errors", "files"},
    "plotting": {"files"},
    "runs": {"errors", "files", "ownership", "version"},
    "terms": set(),
    "schemes": {"terms", "errors"},
    "attention": {"terms", "errors"},
    "families": {"schemes"},
    "transformer": {"terms", "errors", "schemes", "attention"},
    "modules": {"terms", "errors", "schemes", "attention", "transformer"},
    "compat": {"errors", "files"},
    "vocabulary": {"errors", "files"},
    "data": COMMON | {"vocabulary", "runs"},
    "models": COMMON | CORE | {"families", "compat", "vocabulary"},
    "tasks": {"errors", "terms", "vocabulary", "models"},
    "optim": {"errors", "compat"},
    "async_step": {"errors", "compat", "optim"},
    "deepspeed": COMMON | {"schemes", "families", "compat", "models"},
    "train": {"errors", "compat", "deepspeed"},
    "finetuning": COMMON | {"runs", "vocabulary", "models"},
    "huggingface": COMMON | CORE | {"families", "compat", "vocabulary", "data", "models", "runs", "finetuning"},
    "analysis": COMMON | CORE | {"plotting", "runs", "vocabulary", "models", "huggingface"},
    "catalogue": COMMON | CORE | {"families", "models", "plotting", "analysis"},
    "bench": COMMON | CORE | {"families", "runs", "models"},
    "compare": COMMON | CORE | {"families", "runs", "vocabulary", "models", "plotting", "analysis", "bench"},
    "pipeline": {"errors", "files", "compat", "models", "optim", "async_step"},
    "cli": COMMON | {"compat"},  # it imports commands by name
    "__init__": {"version", "compat", "models", "tasks", "pipeline"},
}
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
NO_CODE = {token.COMMENT, token.NL, token.NEWLINE, token.INDENT, token.DEDENT, token.ENDMARKER}
PACKAGES = {"fairseq", "deepspeed", "transformers"}
MAY_KNOW = {"vocabulary": {"fairseq"}}  # which of these; importing the package imports none


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every import that runs, those inside functions included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from statements(child)


def imports(module: str) -> set[str]:
    """The package's modules that one imports, and the names of other packages."""
    path, found = MODULES[module], set()
    parents = module.split(".")
    for statement in statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        else:
            base = parents[: len(parents) - statement.level + (path.name == "__init__.py")] if statement.level else []
            origin = ".".join([*base, *filter(None, [statement.module])])
            names = [full if (full := f"{origin}.{alias.name}") in MODULES else origin for alias in statement.names]
        found |= {name if name in MODULES else name.partition(".")[0] for name in names}
    return found


def package_of(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def test_every_package_has_its_imports_and_there_is_no_cycle_of_packages():
    assert {package_of(module) for module in MODULES} <= MAY_IMPORT.keys()
    above = set()
    for name, imported in MAY_IMPORT.items():
        assert imported <= above, name
        above.add(name)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_what_its_package_may(module):
    found = imports(module)
    assert {package_of(other) for other in found & MODULES.keys()} - {package_of(module)} <= MAY_IMPORT[package_of(module)]
    if package_of(module) in CORE | {"errors", "modules", "vocabulary"}:
        assert not found & PACKAGES - MAY_KNOW.get(package_of(module), set())


MAX_CODE_LINES = 20_636
"""Lines of code of the package, without docstrings, comments and blank lines; what a change adds is taken from elsewhere."""
MAX_EDGES = 149
"""Pairs of packages or modules of which one imports the other."""


def code_lines(path: Path) -> int:
    """Count the lines of a module that hold code."""
    text = path.read_text("utf-8")
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {n for t in tokens if t.type not in NO_CODE for n in range(t.start[0], t.end[0] + 1)}
    return len(lines - docstrings)


def test_the_package_does_not_grow():
    assert sum(code_lines(path) for path in MODULES.values()) <= MAX_CODE_LINES


def test_the_number_of_packages_and_of_edges():
    edges = {(package_of(module), package_of(other)) for module in MODULES for other in imports(module) & MODULES.keys()}
    assert len({name for name in MAY_IMPORT if name != "__init__"}) <= 30
    assert len([1 for importer, imported in edges if importer != imported]) <= MAX_EDGES


def test_no_cycle_of_modules():
    graph = {module: (imports(module) & MODULES.keys()) - {module} for module in MODULES}
    TopologicalSorter(graph).prepare()  # raises, and shows the cycle


def test_the_table_of_packages_agrees():
    rows = [re.findall(r"\]\(\.\./fairseq_posenc/(\w+)", line) for line in DESIGN.splitlines() if line.startswith("| [`")]
    place = {name: i for i, row in enumerate(rows) for name in row}
    assert len(place) > 10
    for name in place:
        assert all(place[other] >= place[name] for other in MAY_IMPORT[name] & place.keys()), name


WORD = {ast.Name: "id", ast.Attribute: "attr", ast.Constant: "value"}


def test_attention_names_no_scheme_and_schemes_no_backend():
    for folder, names in (("attention", REGISTRY.keys() - {"none"}), ("schemes", BACKENDS.keys())):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            words = {getattr(node, WORD.get(type(node), ""), None) for node in ast.walk(ast.parse(path.read_text("utf-8")))}
            assert not words & set(names), path


@pytest.mark.parametrize(
    ("packages", "without"),
    [("transformer, families, modules", {"fairseq"}), ("vocabulary", {"torch", "fairseq", "tokenizers"})],
)
def test_what_packages_do_without(packages, without):
    code = f"import sys; sys.modules.update(dict.fromkeys({without})); from fairseq_posenc import {packages}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_is_light():
    code = "import sys, fairseq_posenc; assert not {'torch', 'fairseq', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
