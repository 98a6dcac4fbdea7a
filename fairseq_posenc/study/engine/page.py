"""HTML reports: one page that needs no other file, for narrow and wide screens."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...base.files import atomic_write

CSS = """
body { margin: 0 auto; padding: 1rem 1.25rem 4rem; max-width: 76rem; font: 16px/1.55 system-ui, sans-serif; }
h1, h2, p, li, figcaption { overflow-wrap: break-word; }
h2 { margin-top: 3rem; border-top: 1px solid gray; }
p, figcaption, li { max-width: 46rem; }
nav a { margin-right: 1rem; white-space: nowrap; }
figure { margin: 1.5rem 0 2.5rem; }
.row { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0 3rem; }
.row > div { flex: 1 1 24rem; }
.row figure { flex: 0 1 40rem; max-width: 100%; margin-top: 0; }
.scroll { overflow-x: auto; }
.scroll img { display: block; height: auto; max-width: 100%; }
.scroll pre { margin: 0; font-size: .85rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .3rem .38rem; border-bottom: 1px solid gray; vertical-align: top; text-align: left; }
td.right { text-align: right; white-space: nowrap; }
footer { opacity: .75; font-size: .9rem; }
@media (max-width: 48rem) {
  .scroll .wide { max-width: 44rem; }
  thead { display: none; }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid gray; }
  td, td.right { border: 0; padding: 0 .9rem 0 0; text-align: left; white-space: normal; }
  tr > td { display: inline-block; }
  td:empty { display: none; }
  td::before { content: attr(data-column) " "; opacity: .65; font-size: .8rem; }
}
"""
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<h1>{title}</h1>
{opening}
<nav>{links}</nav>
{sections}
<footer><p>Made by fairseq-posenc. All numbers are in results.json; the pictures are beside it or below, also as PDF.</p></footer>
</body>
</html>
"""


def write(path: Path, title: str, opening: str, sections: Mapping[str, str]) -> None:
    """Write a page.

    Args:
        title: of the page and of the browser's window.
        opening: HTML before the list of sections.
        sections: the HTML of each section, by its name.
    """
    links, content = "", ""
    for name, text in sections.items():
        anchor = name.lower().replace(" ", "-")
        links += f'<a href="#{anchor}">{html.escape(name)}</a> '
        content += f'<h2 id="{anchor}">{html.escape(name)}</h2>\n{text}\n'
    with atomic_write(path) as stream:
        stream.write(TEMPLATE.format(css=CSS, title=html.escape(title), opening=opening, links=links, sections=content))


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{html.escape(text)}</p>\n"


def folded(title: str, text: str) -> str:
    """Return lines of plain text that are shown when their title is clicked."""
    pre = _scroll(f"<pre>{html.escape(text)}</pre>")
    return f"<details><summary>{html.escape(title)}</summary>{pre}</details>\n"


def row(content: str, picture: str) -> str:
    """Return HTML with a picture beside it, or below it on a narrow screen."""
    return f'<div class="row"><div>{content}</div>{picture}</div>\n'


def _scroll(content: str) -> str:
    """Return a box around HTML that may be wider than the screen."""
    return f'<div class="scroll">{content}</div>\n'


def table(head: Sequence[str], lines: Iterable[Sequence[str]], alignment: Sequence[str]) -> str:
    """Return a table of plain text; on a narrow screen, a row is a paragraph in which each cell follows its column's name.

    Args:
        head: the names of the columns.
        lines: the rows.
        alignment: of each column, ``left`` or ``right``.
    """
    unbroken = str.maketrans({"±": "\xa0±\xa0", "–": "\u2060–\u2060"})  # no line ends within an interval
    names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    rows = ""
    for line in lines:
        columns = zip(map(html.escape, head), alignment, line, strict=True)
        texts = ((name, side, html.escape(cell.replace(" ± ", "±")).translate(unbroken)) for name, side, cell in columns)
        cells = "".join(f'<td class="{side}" data-column="{name}">{text}</td>' for name, side, text in texts)
        rows += f"<tr>{cells}</tr>\n"
    return _scroll(f"<table><thead><tr>{names}</tr></thead>\n<tbody>{rows}</tbody></table>")


def figure(caption: str, file: Path, wide: bool = True) -> str:
    """Return a PNG picture, with the first sentence of its caption as its description.

    Args:
        caption: plain text.
        file: the picture.
        wide: whether a narrow screen shows it larger than itself, in a box that scrolls.
    """
    alt, kind = html.escape(caption.partition(". ")[0]), ' class="wide"' if wide else ""
    data = base64.b64encode(file.read_bytes()).decode("ascii")
    image = f'<img{kind} alt="{alt}" src="data:image/png;base64,{data}">'
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{_scroll(image)}</figure>\n"
