"""What README.md and the other documents say, for the tests that try it."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Block(NamedTuple):
    """A code block: the heading above it, its language ("" where none is named), and its text."""

    heading: str
    language: str
    text: str


def blocks_of(file: str) -> list[Block]:
    """Every code block of a document, in its order: fenced, or indented by four spaces."""
    found, heading, fence, inside = [], "", None, False
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines(keepends=True):
        indented = fence is None and line.startswith("    ")
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
            if fence is not None:
                found.append(Block(heading, fence, ""))
        elif fence is not None or indented:
            if indented and not inside:
                found.append(Block(heading, "", ""))
            found[-1] = found[-1]._replace(text=found[-1].text + line.removeprefix("    " * indented))
        elif re.match("#+ ", line):
            heading = line.strip()
        inside = indented
    return found


def blocks(heading: str, *languages: str, file: str = "README.md") -> list[str]:
    """The code blocks in these languages between a heading, such as ``## Limits``, and the next."""
    found = [block.text for block in blocks_of(file) if block.heading == heading and block.language in languages]
    assert found, f"{file} has no block of {languages} under {heading!r}"
    return found


DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(str(path.relative_to(ROOT)) for folder in ("docs", "examples") for path in sorted((ROOT / folder).rglob("*.md"))),
]
TOOLS = ("fairseq-posenc", "fairseq-train", "fairseq-hydra-train", "torchrun", "python", "pip", "bash", "srun")
PLACEHOLDERS = {
    "COMMAND",
    "decay",
    "my_schemes",
}  # any command; and what the reader of "Add a scheme" writes, which other tests do


class Command(NamedTuple):
    """A command that a document shows, as the shell would hand it over; ``whole`` unless a part of it is left to the reader."""

    words: list[str]
    whole: bool


def commands_of(file: str) -> list[Command]:
    """Every command of a document: the lines of code blocks that begin with one of ``TOOLS``, and code within the text."""
    shown = [text for _, language, text in blocks_of(file) if language in ("", "bash", "sh")]
    text = re.sub(r"^```.*?^```", "", (ROOT / file).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    inline = re.findall(rf"`((?:{'|'.join(TOOLS)}) [^`]+)`", text)
    return [command for block in shown for command in _parse(block, whole=True)] + [
        command for line in inline for command in _parse(line.replace("\n", " "), whole=False)
    ]


def _parse(block: str, whole: bool) -> list[Command]:
    variables, found = {"PWD": "."}, []
    for line in block.replace("\\\n", " ").splitlines():
        line = re.sub(r"\$(\w+)", lambda match: variables.get(match[1], match[0]), line)
        if assigned := re.fullmatch(r'(\w+)="([^"]*)"', line):
            variables[assigned[1]] = assigned[2]
        elif line.removeprefix("OMP_NUM_THREADS=1 ").startswith(tuple(f"{tool} " for tool in TOOLS)):
            words = [word for word in shlex.split(line, comments=True) if word != "OMP_NUM_THREADS=1"]
            if PLACEHOLDERS.isdisjoint(words):
                left_out = {"…", "--help"}
                found.append(Command([word for word in words if word not in left_out], whole and left_out.isdisjoint(words)))
    return found
