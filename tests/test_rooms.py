"""Which module may import which; a room is a package or module directly below fairseq_posenc."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import readme

import fairseq_posenc
from fairseq_posenc.attention import BACKENDS
from fairseq_posenc.schemes import REGISTRY

PACKAGE = Path(fairseq_posenc.__file__).parent
README = (readme.ROOT / "README.md").read_text("utf-8")
COMMON = {"errors", "files", "output", "ownership", "version"}
CORE = {"terms", "bounds", "schemes", "attention", "transformer"}
MAY_IMPORT = {  # besides its own room; only rooms listed above it, so that there are no cycles
    "errors": set(),
    "version": set(),
    "output": set(),
    "files": set(),
    "mmap_index": set(),
    "ownership": {"errors", "files"},
    "runs": {"errors", "files", "version"},
    "bounds": {"errors"},
    "terms": set(),
    "schemes": {"terms", "bounds", "errors"},
    "attention": {"terms", "errors"},
    "families": {"schemes"},
    "transformer": {"terms", "bounds", "errors", "schemes", "attention"},
    "compat": {"errors", "files", "mmap_index"},
    "vocabulary": {"errors", "files"},
    "data": COMMON | {"mmap_index", "vocabulary", "runs"},
    "models": COMMON | CORE | {"families", "compat", "vocabulary"},
    "tasks": {"errors", "vocabulary", "models"},
    "step": {"errors", "compat"},
    "deepspeed": COMMON | {"families", "compat", "models"},
    "train": {"errors", "compat", "deepspeed"},
    "catalogue": COMMON | CORE | {"families", "models"},
    "finetuning": COMMON | {"runs", "data", "vocabulary", "models"},
    "huggingface": COMMON | CORE | {"families", "compat", "vocabulary", "models"},
    "analysis": COMMON | CORE | {"runs", "vocabulary", "models", "huggingface"},
    "bench": COMMON | CORE | {"families", "runs", "vocabulary", "data", "models", "deepspeed", "analysis", "huggingface"},
    "export_hf": {"huggingface"},
    "import_hf": {"models", "huggingface"},
    "initialisation": COMMON | CORE | {"models", "huggingface", "analysis"},
    "length": COMMON | {"runs", "schemes", "transformer", "models", "vocabulary", "analysis"},
    "cli": COMMON | {"compat"},  # it knows its commands by name
    "quickstart": COMMON | {"families", "runs", "vocabulary", "data", "models", "analysis", "cli"},
    "__init__": {"version", "compat", "models", "tasks", "step", "analysis"},
}
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
PACKAGES = {"fairseq", "deepspeed", "transformers"}
MAY_KNOW = {"vocabulary": {"fairseq"}}  # which of these packages; importing the room imports none


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


def room(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def test_every_room_has_its_imports_and_they_point_one_way():
    assert {room(module) for module in MODULES} <= MAY_IMPORT.keys()
    above = set()
    for name, arrows in MAY_IMPORT.items():
        assert arrows <= above, name
        above.add(name)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_arrows_point_down(module):
    found = imports(module)
    assert {room(other) for other in found & MODULES.keys()} - {room(module)} <= MAY_IMPORT[room(module)]
    if room(module) in CORE | {"errors", "vocabulary"}:
        assert not found & PACKAGES - MAY_KNOW.get(room(module), set())


def test_no_circle_of_files():
    graph = {module: (imports(module) & MODULES.keys()) - {module} for module in MODULES}
    TopologicalSorter(graph).prepare()  # raises, and shows the circle


def test_the_readmes_picture_agrees():
    rows = [re.findall(r"\]\(fairseq_posenc/(\w+)", line) for line in README.splitlines() if line.startswith("| [`")]
    place = {room: i for i, row in enumerate(rows) for room in row}
    assert len(place) > 10
    for name in place:
        assert all(place[other] >= place[name] for other in MAY_IMPORT[name] & place.keys()), name


def test_attention_names_no_scheme_and_schemes_no_backend():
    for folder, names in (("attention", REGISTRY.keys() - {"none"}), ("schemes", BACKENDS.keys())):
        for path in sorted((PACKAGE / folder).glob("*.py")):
            words = {n.id for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Name)}
            assert not words & set(names), path


@pytest.mark.parametrize(
    ("rooms", "without"),
    [("transformer, families", {"fairseq"}), ("vocabulary", {"torch", "fairseq", "tokenizers"})],
)
def test_what_the_rooms_do_without(rooms, without):
    code = f"import sys; sys.modules.update(dict.fromkeys({without})); from fairseq_posenc import {rooms}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_is_light():
    code = "import sys, fairseq_posenc; assert not {'torch', 'fairseq', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
