"""The result of a study, described once, and rendered as Markdown, CSV, JSON and HTML."""

import csv
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ...base.files import atomic_write
from ...base.record import write_json
from . import page

PAGE, MARKDOWN, CSV, JSON = "report.html", "results.md", "results.csv", "results.json"
PICTURES = (".png", ".pdf")
NUMERIC = frozenset("0123456789.,+-−–e() ")
"""Characters of the columns that are aligned to the right."""


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        head: the titles of the columns.
        rows: the cells, as many in each row as there are columns.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table in Markdown, its columns aligned for the terminal, too."""
        alignment = self._alignment() if self.rows else None
        head, *rows = ([cell.replace("|", r"\|") for cell in row] for row in (self.head, *self.rows))  # of sums by layer
        return tabulate(rows, head, "pipe", disable_numparse=True, colalign=alignment)

    def html(self, folder: Path) -> str:
        """Return the table in HTML, in a box that scrolls; ``folder`` is not used."""
        return page.table(self.head, self.rows, self._alignment())

    def _alignment(self) -> list[str]:
        columns = zip(*self.rows, strict=True) if self.rows else [""] * len(self.head)
        return ["right" if set("".join(column)) <= NUMERIC else "left" for column in columns]


@dataclass(frozen=True)
class Figure:
    """A picture with a caption.

    Attributes:
        name: of its files, without the suffix, below the folder of the study.
        caption: plain text, whose first sentence describes the picture.
        drawing: what is drawn, a figure of matplotlib; None if the files exist, as those of a run that has finished.
        wide: whether a narrow screen shows it larger than itself, in a box that scrolls.
    """

    name: str
    caption: str
    drawing: Any = None
    wide: bool = True

    def markdown(self) -> str:
        """Return the link to the picture, with its caption, in Markdown."""
        return f"![{self.caption}]({self.name}.png)"

    def html(self, folder: Path) -> str:
        """Return the picture, which is in ``folder``, and its caption in HTML that needs no other file."""
        return page.figure(self.caption, self.path(folder), self.wide)

    def path(self, folder: Path, suffix: str = PICTURES[0]) -> Path:
        """Return the path of one of its files."""
        return folder / f"{self.name}{suffix}"

    def save(self, folder: Path) -> None:
        """Draw the picture, as PNG and PDF, into a folder that has a record of its files."""
        from ...base.plotting import save  # imports PyTorch

        if self.drawing is not None:
            for suffix in PICTURES:
                save(self.drawing, self.path(folder, suffix))
                self.drawing.set_layout_engine("none")  # it is fixed now; computing it again takes longer than drawing


@dataclass(frozen=True)
class Folded:
    """Lines of commands or settings, which the page shows when their title is clicked."""

    title: str
    text: str

    def markdown(self) -> str:
        """Return the title and the lines in Markdown."""
        return f"{self.title}:\n\n```\n{self.text.rstrip()}\n```"

    def html(self, folder: Path) -> str:
        """Return the lines folded away under their title; ``folder`` is not used."""
        return page.folded(self.title, self.text)


Part = str | Table | Figure | Folded
"""A part of a report; a string is a paragraph of plain text."""


@dataclass(frozen=True)
class Report:
    """What a study found.

    Attributes:
        title: of the page.
        summary: what the command also prints.
        data: everything, in JSON's types.
        rows: of the CSV file, by column; values in a mapping become columns of their own, and lists are left out.
        sections: the other parts, by the titles of their sections; without parts, a section is left out.
        picture: beside the paragraphs with which the summary begins; it is not printed.
    """

    title: str
    summary: Sequence[Part]
    data: Any
    rows: Sequence[Mapping[str, Any]]
    sections: Mapping[str, Sequence[Part]] = field(default_factory=dict)
    picture: Figure | None = None

    def write(self, folder: Path) -> str:
        """Write the files into a folder that has a record of its files; returns the summary in Markdown."""
        sections = {title: parts for title, parts in self.sections.items() if parts}
        for part in itertools.chain([self.picture], self.summary, *sections.values()):
            if isinstance(part, Figure):
                part.save(folder)
        write_json(folder / JSON, self.data)
        summary = _markdown(self.summary)
        with atomic_write(folder / MARKDOWN) as stream:
            others = [f"## {title}\n\n{_markdown(parts)}" for title, parts in sections.items()]
            stream.write("\n\n".join([summary, *others]) + "\n")
        flat = [dict(_flat(row)) for row in self.rows]
        with atomic_write(folder / CSV) as stream:
            writer = csv.DictWriter(stream, list(dict.fromkeys(itertools.chain(*flat))), lineterminator="\n")
            writer.writeheader()
            writer.writerows(flat)
        page.write(folder / PAGE, self.title, self._opening(folder), {name: _html(of, folder) for name, of in sections.items()})
        return summary

    def _opening(self, folder: Path) -> str:
        if self.picture is None:
            return _html(self.summary, folder)
        paragraphs = list(itertools.takewhile(lambda part: isinstance(part, str), self.summary))
        beside = page.row(_html(paragraphs, folder), self.picture.html(folder))
        return beside + _html(self.summary[len(paragraphs) :], folder)


def number(value: float | None, form: str = ".3f") -> str:
    """Return a number as text with a minus sign, or a dash for None."""
    return "–" if value is None else f"{value:{form}}".replace("-", "−")


def with_interval(value: Mapping[str, Any] | None, form: str = ".3f", name: str = "mean") -> str:
    """Return the value ``name`` ± half of the interval from ``low`` to ``high``, unless these are None; a dash for None."""
    if value is None:
        return number(None)
    half = "" if value["low"] is None else f" ± {number((value['high'] - value['low']) / 2, form.lstrip('+'))}"
    return number(value[name], form) + half


def with_ends(value: Mapping[str, Any] | None, name: str = "mean", form: str = ".2f", to: str = "–") -> str:
    """Return the value ``name`` with ``low`` and ``high`` in brackets, joined by ``to``, if there are any; a dash for None."""
    if value is None:
        return number(None)
    ends = "" if value["low"] is None else f" ({number(value['low'], form)}{to}{number(value['high'], form)})"
    return number(value[name], form) + ends


def _markdown(parts: Sequence[Part]) -> str:
    return "\n\n".join(part if isinstance(part, str) else part.markdown() for part in parts)


def _html(parts: Sequence[Part], folder: Path) -> str:
    return "".join(page.paragraph(part) if isinstance(part, str) else part.html(folder) for part in parts)


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}_")
        elif not isinstance(value, (list, tuple)):
            yield f"{prefix}{name}", value
