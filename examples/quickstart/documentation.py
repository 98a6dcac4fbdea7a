"""A text of about 2 MB that every Python has: the topics of ``help()`` and the docstrings of the standard library."""

import ast
import itertools
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from fairseq_posenc.base.files import atomic_write

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def write_documentation(path: Path) -> Path:
    """Write the text, one paragraph per line and a blank line between documents."""
    library = Path(sysconfig.get_path("stdlib"))
    sources = sorted(source for source in library.rglob("*.py") if SKIPPED.isdisjoint(source.relative_to(library).parts))
    with atomic_write(path) as stream:
        for document in itertools.chain.from_iterable(map(documents, sources)):
            parts = itertools.groupby(document.splitlines(), key=lambda line: any(map(str.isalnum, line)))
            if paragraphs := [" ".join(line.strip() for line in lines) for has_words, lines in parts if has_words]:
                stream.write("\n".join(paragraphs) + "\n\n")
    return path


def documents(source: Path) -> Iterator[str]:
    """Yield the help topics, or the docstrings of one module, which is parsed and not run."""
    if source.parts[-2:] == ("pydoc_data", "topics.py"):
        yield from dict.fromkeys(topics.values())
        return
    try:
        with tokenize.open(source) as stream:
            tree = ast.parse(stream.read())
    except (SyntaxError, UnicodeDecodeError):  # a few files are broken on purpose
        return
    yield "\n\n".join(filter(None, (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, DOCUMENTED))))
