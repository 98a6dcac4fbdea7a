"""Which part of the package may import which, and how large all are together."""

import ast
import io
import re
import subprocess
import sys
import token
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import readme

import fairseq_posenc
from fairseq_posenc.core.attention import BACKENDS
from fairseq_posenc.core.schemes import REGISTRY

PACKAGE = Path(fairseq_posenc.__file__).parent
DESIGN = (readme.ROOT / "docs" / "design.md").read_text("utf-8")
FLOORS = {  # each imports only those above it; then the most lines of code that it may have
    "base": 698,
    "core": 4_751,
    "text": 1_790,
    "plugin": 5_377,
    "huggingface": 2_467,
    "study": 6_042,
    "entry points": 342,  # cli, train, and the package itself, which import what they start
}
MAX_CODE_LINES = 21_467
"""Lines of code of the package, without docstrings, comments and blank lines; what a change adds is taken from elsewhere."""
MAX_EDGES = {"between floors": 20, "within floors": 45}
"""Pairs of floors, or of units of one floor, of which one imports the other."""
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
NO_CODE = {token.COMMENT, token.NL, token.NEWLINE, token.INDENT, token.DEDENT, token.ENDMARKER}


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


def floor_of(module: str) -> str:
    name = [*module.split("."), ""][1]
    return name if name in FLOORS else "entry points"


def unit_of(module: str) -> str:
    """The package two levels down; a module of the core; or the floor, where it has neither."""
    parts = module.split(".")[1:3]
    if floor_of(module) == "entry points":
        return "entry points"
    return ".".join(parts if parts[0] == "core" or (PACKAGE / Path(*parts)).is_dir() else parts[:1])


EDGES = [(module, other) for module in MODULES for other in imports(module) & MODULES.keys()]


def graph(of: Callable[[str], str]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {of(module): set() for module in MODULES}
    for module, other in EDGES:
        if of(module) != of(other):
            edges[of(module)].add(of(other))
    return edges


def test_a_floor_imports_only_those_below_it():
    order = list(FLOORS)
    wrong = [
        f"{module} imports {other}"
        for module, other in EDGES
        if order.index(floor_of(other)) > order.index(floor_of(module)) and other != "fairseq_posenc.base.version"
    ]
    assert not wrong


@pytest.mark.parametrize("of", [unit_of, str], ids=["units", "modules"])
def test_there_is_no_cycle(of):
    TopologicalSorter(graph(of)).prepare()  # raises, and shows the cycle


def test_the_number_of_edges():
    units = graph(unit_of)
    within = [(unit, other) for unit in units for other in units[unit] if unit.split(".")[0] == other.split(".")[0]]
    assert len(within) <= MAX_EDGES["within floors"], within
    assert sum(map(len, graph(floor_of).values())) <= MAX_EDGES["between floors"]


def test_the_core_needs_pytorch_alone():
    found = {name.partition(".")[0] for module in MODULES if floor_of(module) == "core" for name in imports(module)}
    assert found - sys.stdlib_module_names <= {"fairseq_posenc", "torch", "triton", "torchdiffeq"}  # the last for floater
    inside = {floor_of(other) for module, other in EDGES if floor_of(module) == "core"} - {"core"}
    assert inside == {"base"}


def test_fairseq_deepspeed_and_transformers_are_imported_by_their_floors_alone():
    allowed = {
        "fairseq": {"plugin", "huggingface", "study"},
        "omegaconf": {"plugin", "huggingface", "study"},
        "hydra": {"plugin"},
        "deepspeed": {"plugin"},
        "transformers": {"huggingface", "study"},
    }
    for module in MODULES:
        for package in imports(module) & allowed.keys():
            assert floor_of(module) in {*allowed[package], "entry points"}, module


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
    lines = Counter()
    for module, path in MODULES.items():
        lines[floor_of(module)] += code_lines(path)
    assert lines.total() <= MAX_CODE_LINES, lines.total()
    assert {floor: count for floor, count in lines.items() if count > FLOORS[floor]} == {}


def test_the_table_of_floors_in_the_document_agrees():
    rows = re.findall(r"^\| \[`(\w+)/`\]\(\.\./fairseq_posenc/(\w+)\)", DESIGN, re.MULTILINE)
    assert rows == [(name, name) for name in FLOORS if name != "entry points"]


WORD = {ast.Name: "id", ast.Attribute: "attr", ast.Constant: "value"}


def test_attention_names_no_scheme_and_schemes_no_backend():
    for folder, names in (("attention", REGISTRY.keys() - {"none"}), ("schemes", BACKENDS.keys())):
        for path in sorted((PACKAGE / "core" / folder).rglob("*.py")):
            words = {getattr(node, WORD.get(type(node), ""), None) for node in ast.walk(ast.parse(path.read_text("utf-8")))}
            assert not words & set(names), path


@pytest.mark.parametrize(
    ("packages", "without"),
    [
        ("core.transformer, fairseq_posenc.core.families, fairseq_posenc.core.modules", {"fairseq"}),
        ("text.vocabulary, fairseq_posenc.text.data.prepare", {"torch", "fairseq", "tokenizers"}),
        *((name, set()) for name in ("plugin.checkpoint.checkpoint", "huggingface.export", "huggingface.importing")),  # and first
        (
            "huggingface.auto, fairseq_posenc.huggingface.encoders, fairseq_posenc.huggingface.source_models, "
            "fairseq_posenc.huggingface.export, fairseq_posenc.huggingface.importing, fairseq_posenc.study.catalogue.checks, "
            "fairseq_posenc.study.pairs.models, fairseq_posenc.study.analyze.examine",
            {"fairseq", "fairseq_cli", "hydra", "omegaconf", "deepspeed"},
        ),
    ],
)
def test_what_packages_do_without(packages, without):
    code = f"import sys; sys.modules.update(dict.fromkeys({without})); import fairseq_posenc.{packages}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_is_light():
    code = "import sys, fairseq_posenc; assert not {'torch', 'fairseq', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
