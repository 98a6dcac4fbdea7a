"""The README's own text, for the tests that try it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def blocks(heading: str, *languages: str) -> list[str]:
    """The code blocks in these languages between a heading, such as ``### Add a scheme``, and the next."""
    found, inside, fence = [], False, None
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
            if inside and fence in languages:
                found.append("")
        elif fence is None and re.match("#+ ", line):
            inside = line.strip() == heading
        elif inside and fence in languages:
            found[-1] += line
    assert found, f"README.md has no block of {languages} under {heading!r}"
    return found
