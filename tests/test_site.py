"""The documentation site builds without a warning, such as one about a dead link, and loads nothing from the network."""

import os
import re
import subprocess
import sys

import pytest
import readme

from fairseq_posenc import cli
from fairseq_posenc.core.schemes import REGISTRY


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("mkdocs", "material", "mkdocstrings_handlers.python", "scipy", "statsmodels", "transformers"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install -e '.[docs,compare,hf]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=readme.ROOT, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.thorough
def test_every_document_scheme_and_command_has_a_page(site):
    names = [*(f"docs/schemes/{name}.md" for name in REGISTRY), *(f"docs/commands/{name}.md" for name in cli.COMMANDS)]
    for name in [*readme.DOCUMENTS, *names]:
        path = site / re.sub(r"README$", "index", name.removesuffix(".md"))
        assert path.with_suffix(".html").is_file() or (path / "index.html").is_file(), name


@pytest.mark.thorough
def test_nothing_is_loaded_from_the_network(site):
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]*\bsrc="(?:https?:)?//|<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*//""")
    pages = [page for page in site.rglob("*.html") if page.is_file()]
    assert len(pages) > 100
    assert [page for page in pages if loaded.search(page.read_text("utf-8"))] == []
