"""MkDocs hook: collects the documents of the repository, and makes the pages that are generated.

A document has the path that it has in the repository, so that a relative link works both there and on the site. What a document
links to becomes part of the site: another document, a picture, a page with the text of a file, or one that lists a folder.
"""

import argparse
import ast
import inspect
import posixpath
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import write_tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from tabulate import tabulate

import fairseq_posenc
from fairseq_posenc import cli, train
from fairseq_posenc.core import attention
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import REGISTRY
from fairseq_posenc.plugin import patches
from fairseq_posenc.plugin.options.help import add_groups
from fairseq_posenc.study.catalogue import PROPERTIES, listing, pictures

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
ROLE = re.compile(r":\w+:<code>\.?")
"""The role of a name in a docstring, such as :meth:`.Positions.terms`."""
LISTED = re.compile(r"^(\| roberta_\w+ +\| )(\w+)(?= +\|)", re.MULTILINE)
"""A row in the table of docs/schemes.md, up to the name of its scheme."""
ASSETS = {".png", ".svg", ".css"}
CODE = {".py": "python", ".yaml": "yaml", ".sh": "bash", ".sbatch": "bash", ".json": "json"}
UNSEARCHED = "---\nsearch: {exclude: true}\n---\n\n"
FIDELITY = "fairseq_posenc/core/schemes/FIDELITY.md"
HEADS = 4
"""In the picture of a scheme."""
GENERATED: dict[str, Any] = {}
"""Path -> Markdown or picture, of the pages that this script makes; files and folders are added once a document links to them."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the site's files: those of the navigation, what they link to, and the theme's."""
    GENERATED.update(generated())
    config.nav = [{title: [*_expanded(names)]} for entry in config.nav or () for title, names in entry.items()]
    waiting = ["docs/site.css", *(_path(name) for entry in config.nav for names in entry.values() for name in names)]
    site: dict[str, File] = {}
    for name in waiting:  # which grows
        if name not in site:
            content = GENERATED.get(name)
            source = {"abs_src_path": str(ROOT / name)} if content is None else {"content": content}
            site[name] = File.generated(config, name, **source)
            if name.endswith(".md"):
                text = (ROOT / name).read_text("utf-8") if content is None else content
                waiting += filter(None, (target(name, link) for link in LINK.findall(text)))
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*site.values(), *of_theme])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files and folders of the repository to their pages, and the table of schemes to theirs."""
    name = page.file.src_uri

    def renamed(match: re.Match) -> str:
        path = target(name, match[1])
        return match[1] if path is None else posixpath.relpath(path, posixpath.dirname(name) or ".")

    if name == "docs/schemes.md":
        markdown = LISTED.sub(r"\1[\2](schemes/\2.md)", markdown)
    return LINK.sub(renamed, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove the roles of names in docstrings."""
    return ROLE.sub("<code>", html)


def _path(entry: str | dict[str, str]) -> str:
    """Return the path of an entry of the navigation, which may have a title."""
    return entry if isinstance(entry, str) else next(iter(entry.values()))


def _expanded(names: list[Any]) -> Iterator[Any]:
    for name in names:
        if _path(name).endswith("/*"):
            yield from (page for page in GENERATED if page.endswith(".md") and posixpath.dirname(page) == posixpath.dirname(name))
        else:
            yield name


def target(name: str, link: str) -> str | None:
    """Return the path of the page or picture that a link in a document leads to, or None if there is no such file."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
    file = ROOT / path
    if path in GENERATED or (file.is_file() and file.suffix in {".md", *ASSETS}):
        return path
    if (file / "README.md").is_file():
        return f"{path}/README.md"
    if not file.exists():
        return None
    page = f"{path}/index.md" if file.is_dir() else f"{path}.md"
    GENERATED[page] = UNSEARCHED + (folder_page(file) if file.is_dir() else file_page(file))
    return page


def folder_page(folder: Path) -> str:
    """Return the page of a folder, with the first line of each module's docstring."""
    lines = []
    for path in sorted(folder.iterdir()):
        module = path / "__init__.py" if path.is_dir() else path
        if module.suffix == ".py" and module.is_file():
            doc = (ast.get_docstring(ast.parse(module.read_text("utf-8"))) or "").partition("\n")[0]
            lines.append((f"[{path.name}]({path.name})", doc))
        elif not path.name.startswith(("_", ".")):
            lines.append((f"`{path.name}`", ""))
    return f"# {folder.relative_to(ROOT)}\n\n{_table(lines, ('file', 'contents'))}\n"


def file_page(file: Path) -> str:
    """Return the page of a text file."""
    return f"# {file.relative_to(ROOT)}\n\n`````{CODE.get(file.suffix, 'text')}\n{file.read_text('utf-8')}\n`````\n"


def generated() -> Iterator[tuple[str, str | bytes]]:
    """Yield the path and the text of each generated page of the navigation."""
    results = [*write_tables.results_by_scheme()]
    for name in sorted(REGISTRY):
        known = {expression: arch for arch, expression in expressions().items() if name in _names(expression)}
        expression = name if name in known else next(iter(known))
        yield f"docs/schemes/{name}.png", picture(expression)
        yield f"docs/schemes/{name}.md", scheme_page(name, expression, known, results)
    pictured = "\n\n".join(f"## [{name}](schemes/{name}.md)\n\n![{name}](schemes/{name}.png)" for name in sorted(REGISTRY))
    yield "docs/gallery.md", f"# Gallery\n\n{_meaning()}\n\n{pictured}"
    yield "docs/commands.md", commands_page()
    for name in sorted(cli.COMMANDS):
        module, parser = cli.parser_of(name)
        yield f"docs/commands/{name}.md", f"# {name}\n\n{_prose(module.__doc__)}\n\n{_flags(parser)}"
    yield "docs/commands/fairseq-train.md", training_page()
    yield "docs/api.md", api_page()
    yield "docs/configuration.md", configuration_page()
    yield "docs/backends.md", _modules("Attention backends", attention)
    yield "docs/patches.md", _modules("Patches of fairseq", patches)


def picture(expression: str) -> bytes:
    """Return the picture of what an untrained scheme adds to the scores, as PNG."""
    with TemporaryDirectory() as folder, redirect_stdout(None):
        path = Path(folder) / "picture.png"
        pictures.write(path, {expression: pictures.untrained(expression, write_tables.TOKENS, HEADS)}, write_tables.TOKENS, ())
        return path.read_bytes()


def _meaning() -> str:
    return _prose(pictures.MEANING.format(n=write_tables.TOKENS, origin=pictures.UNTRAINED))


def scheme_page(name: str, expression: str, known: dict[str, str], results: list[tuple[str, str, dict[str, str]]]) -> str:
    """Return the page of a scheme.

    Args:
        name: of the scheme.
        expression: the scheme alone, or else a sum with it.
        known: the architecture of each expression with it.
        results: a title, an expression and a table's row of each result; rows of one title have the same columns.
    """
    row = listing.find([expression])[0]
    cls = REGISTRY[name]
    facts = [(fact, listing.text_of(row[fact])) for fact in ("source", *PROPERTIES, "backends", "parameters")]
    parts = [
        f"# {name}",
        f"    {row['equation']}",
        _prose(cls.__doc__ or ""),
        _table([(f"`--arch {listing.ROBERTA.architecture(arch)}`", f"`{expression}`") for expression, arch in known.items()],
               ("architecture", "positions")),
    ]  # fmt: skip
    parts += ["## What it adds to the scores", f"![Scores by query and key, and by the offset]({name}.png)", _meaning()]
    if trained := [path for path in write_tables.TRAINED.glob("*.png") if name in _names(path.stem)]:
        parts.append("After training, the same in each layer of models of the [comparison on English text](../compare.md):")
    for path in sorted(trained, key=lambda path: (path.stem != expression, path.stem)):
        parts += [f"`{path.stem}`", f"![{path.stem} after training](../../{path.relative_to(ROOT)})"]
    parts += [
        "## Properties",
        f"Of `{row['positions']}` at base size (12 layers, 12 heads, D = 768, n = 512).",
        _table(facts, ("property", "value")),
    ]
    if options := listing.options_of(row["positions"]):
        parts += ["## Options", _table([(f"`{flag}`", text) for flag, text in options.items()], ("flag", "meaning"))]
    if fidelity := fidelity_rows({name, cls.__module__.rpartition(".")[2]}):
        parts += ["## Paper, code and this package", "\n".join(fidelity), f"[All schemes](../../{FIDELITY})"]
    for title in dict.fromkeys(title for title, expression, _ in results if name in _names(expression)):
        rows = [cells for other, expression, cells in results if other == title and name in _names(expression)]
        parts += [f"## {title}", _table([list(cells.values()) for cells in rows], [*rows[0]])]
    return "\n\n".join(parts)


def fidelity_rows(names: set[str]) -> list[str]:
    """Return the rows of FIDELITY.md's first table about any of these schemes, below its head; none, if there are none."""
    lines = [line for line in (ROOT / FIDELITY).read_text("utf-8").splitlines() if line.startswith("| ")]
    own = [
        line for line in lines[1:] if names & {*re.findall(r"\w+", line.split("|")[1])} and line.count("|") == lines[0].count("|")
    ]
    return [lines[0], "|---" * 5 + "|", *own] if own else []


def commands_page() -> str:
    """Return the page with one line for each command."""
    rows = [(f"[{name}](commands/{name}.md)", command.help) for name, command in cli.COMMANDS.items()]
    rows.append(("[fairseq-train](commands/fairseq-train.md)", "the flags that this package adds to fairseq's own commands"))
    table, flags = _table(rows, ("command", "what it does")), _flags(cli.parser())
    results = "Results go to stdout and everything else to stderr. All commands take these flags before the command's name."
    return f"# Commands\n\n{table}\n\n{results}\n\n{flags}"


def training_page() -> str:
    """Return the page of the flags of models, and of those of ``python -m fairseq_posenc.train``."""
    parser = argparse.ArgumentParser(add_help=False)
    add_groups(parser)
    train.add_arguments(parser)
    return f"# fairseq-train\n\nFlags that this package adds to fairseq's.\n\n{_flags(parser)}"


def api_page() -> str:
    """Return the page of what ``fairseq_posenc`` exports, and of what schemes and backends are made of."""
    groups: dict[str, list[str]] = {"In PyTorch": [], "With fairseq": []}
    for name, module in fairseq_posenc.EXPORTS.items():
        exported = getattr(fairseq_posenc, name)
        groups["With fairseq" if module.startswith("models") else "In PyTorch"].append(f"{exported.__module__}.{name}")
    groups["For new schemes"] = [
        "fairseq_posenc.core.terms",
        "fairseq_posenc.core.schemes.base",
    ]  # the backends have a page of their own
    parts = ["# Python"]
    for title, names in groups.items():
        parts += [f"## {title}", *(f"::: {name}\n    options: {{heading_level: 3}}" for name in names)]
    return "\n\n".join(parts)


def configuration_page() -> str:
    """Return the page that lists the configuration files, with the beginning of each file's comment."""
    rows = []
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        name, text = path.relative_to(ROOT), path.read_text("utf-8")
        comment = "".join(re.findall(r"\A(?:# (?! ).*\n)*", text)).replace("# ", "").replace("\n", " ").strip()
        rows.append((f"[{name.relative_to('examples')}](../{name})", comment))
    table = _table(rows, ("file", "contents"))
    return f"# Configuration files\n\nThe files of `examples/`, with the beginning of their comments.\n\n{table}"


def _modules(title: str, package: Any) -> str:
    """Return a page with the docstrings of a package and its modules."""
    folder = Path(package.__file__).parent
    names = [path.stem for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    names += [path.parent.name for path in sorted(folder.glob("*/__init__.py"))]
    own = f"::: {package.__name__}\n    options: {{show_root_heading: false, members: false}}"
    return "\n\n".join([f"# {title}", own, *(f"::: {package.__name__}.{name}" for name in names)])


def _flags(parser: argparse.ArgumentParser) -> str:
    """Return a table of each group of a parser's flags."""
    formatter, parts = parser._get_formatter(), []
    for group in parser._action_groups:
        rows = [
            (
                f"`{', '.join(action.option_strings) or action.dest}`",
                _value(action),
                _prose(formatter._expand_help(action)) if action.help else "",
            )
            for action in group._group_actions
            if action.help != argparse.SUPPRESS and "--help" not in action.option_strings
        ]
        if rows:
            parts += [f"## {(group.title or 'flags').capitalize()}", _table(rows, ("flag", "value", "meaning"))]
    return "\n\n".join(parts)


def _value(action: argparse.Action) -> str:
    """Return what a flag takes."""
    if action.nargs == 0:
        return ""
    if action.choices:
        return " ".join(f"`{choice}`" for choice in action.choices) if len([*action.choices]) < 9 else f"`{action.metavar}`"
    return f"`{action.metavar}`" if action.metavar else ""


def _prose(text: str) -> str:
    """Return a text of a docstring or a help in Markdown: brackets are no links."""
    return re.sub(r"^    .*|(`+).*?\1|\[", lambda part: "\\[" if part[0] == "[" else part[0], inspect.cleandoc(text), flags=re.M)


def _names(expression: str) -> list[str]:
    return re.findall(r"\w+", expression)


def _table(rows: Any, head: Any) -> str:
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return tabulate(cells, head, "github", disable_numparse=True)
