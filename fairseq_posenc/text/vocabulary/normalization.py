"""sentencepiece's normalisation as steps of the tokenizers library.

sentencepiece replaces the longest of a map's keys at each place of a text. The library's ``Precompiled`` looks up each grapheme,
takes the shortest of the keys with which it begins, and drops the rest. So separators are put around every key of the text and
before all other characters that may belong to a grapheme, and around the parts of keys, which ``Precompiled`` then maps one by
one, and ``NFC`` composes the parts of each key.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ...base.errors import InputError

if TYPE_CHECKING:
    from tokenizers import normalizers

BETWEEN, WITHIN, JOINT = "\U000e0fff", "\U000e0ffe", "\U000e0ffd"
"""Characters of no text: unassigned, each a grapheme of its own, and no normalisation changes them."""
FIRST_MARK = 0xE0200
"""The first of further ones, each of which stands for a form."""
FOLLOWERS = r"\p{M}\n\x{e33}\x{eb3}\x{200c}\x{200d}\x{1160}-\x{11ff}\x{d7b0}-\x{d7ff}\x{ff9e}\x{ff9f}"
FOLLOWERS += r"\x{1f3fb}-\x{1f3ff}\x{e0020}-\x{e007f}"
"""Characters that belong to the grapheme of the one before them."""


def keys_of(charsmap: bytes) -> dict[str, str]:
    """Return the map that a sentencepiece model has: text -> its normalised form.

    It is stored as the length of a double array of darts-clone, the array, and the normalised forms, each with a NUL at its end.
    """
    size = int.from_bytes(charsmap[:4], "little")
    units, forms = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.int64), charsmap[4 + size :]
    labels, bytes_ = units & 0x800000FF, np.arange(1, 256)

    @cache  # keys have ends in common
    def ends(node: int) -> list[tuple[bytes, bytes]]:
        unit = int(units[node])
        base = node ^ (unit >> 10) << ((unit & 0x200) >> 6)
        places = base ^ bytes_
        found = np.flatnonzero(labels[np.minimum(places, len(labels) - 1)] == bytes_)
        pairs = [(bytes([i + 1]) + key, form) for i in found.tolist() for key, form in ends(int(places[i]))]
        if unit & 0x100:
            start = int(units[base]) & 0x7FFFFFFF
            pairs.append((b"", forms[start : forms.index(b"\0", start)]))
        return pairs

    return {key.decode("utf-8"): form.decode("utf-8") for key, form in ends(0)}


def characters(among: Iterable[str]) -> str:
    """Return the inside of a regular expression's class of these characters."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, among)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)


def longest_of(words: Iterable[str]) -> str:
    """Return a regular expression of the longest of these words at a place; in an atomic group it matches no other."""
    tails: dict[str, list[str]] = {}
    for word in words:
        tails.setdefault(word[0], []).append(word[1:])
    alike: dict[tuple[str, ...], list[str]] = {}
    for first, rest in tails.items():
        alike.setdefault(tuple(sorted(rest)), []).append(first)
    branches = []
    for ends, firsts in sorted(alike.items(), key=lambda item: min(item[1])):  # the usual ones are tried first
        longer = longest_of(filter(None, ends)) if any(ends) else ""
        branches.append(f"[{characters(firsts)}]{longer}{'?' if longer and '' in ends else ''}")
    return f"(?:{'|'.join(branches)})"


def _composed(key: str, keys: Mapping[str, str]) -> str:
    return unicodedata.normalize("NFC", "".join(keys.get(part, part) for part in key))


@cache
def steps(charsmap: bytes) -> list[normalizers.Normalizer]:
    """Return steps of the library that normalise as sentencepiece does with this map.

    Raises:
        InputError: the map has rules that these steps do not follow.
    """
    from tokenizers import Regex, normalizers

    keys = keys_of(charsmap)
    several = sorted((key for key in keys if len(key) > 1), key=len, reverse=True)
    unit = f"(?>{longest_of(several)}|(?m:.))" if several else "(?m:.)"
    after = FOLLOWERS + characters({character for key in several for character in key[1:]})
    # Hundreds of thousands of keys are Hangul syllables, which every Unicode composes alike.
    checked = [key for key, form in keys.items() if not ("가" <= form <= "힣") or _composed(key, keys) != form]

    def sequence(others: dict[str, list[str]]) -> list[normalizers.Normalizer]:
        marks = {chr(FIRST_MARK + number): form for number, form in enumerate(others)}
        return [
            # A key begins where a match ended, or is the first of its characters that follows no other.
            normalizers.Replace(Regex(rf"(?:\G|(?=[^{after}]))(?=(?m:.)[{after}]){unit}\K(?=[{after}])"), BETWEEN),
            *(normalizers.Replace(Regex(longest_of(others[form])), mark) for mark, form in marks.items()),
            normalizers.NFC(),
            normalizers.Replace(Regex(rf"(?<=[^{BETWEEN}])(?=[{after}])"), WITHIN),
            normalizers.Precompiled(charsmap),
            normalizers.Replace(WITHIN, ""),
            normalizers.NFC(),
            *(normalizers.Replace(mark, form) for mark, form in marks.items()),
            normalizers.Replace(BETWEEN, ""),
        ]

    def failing(made: list[normalizers.Normalizer]) -> list[str]:
        normal = normalizers.Sequence(made).normalize_str(JOINT.join(checked)).split(JOINT)
        return [key for key, found in zip(checked, normal, strict=True) if found != keys[key]]

    others: dict[str, list[str]] = {}  # of a later Unicode than the library's, and of a model's own
    for key in sorted(failing(sequence({})), key=len, reverse=True):
        others.setdefault(keys[key], []).append(key)
    made = sequence(others)
    if wrong := failing(made):
        raise InputError(f"its rule {wrong[0]!r} -> {keys[wrong[0]]!r} has no equivalent in the tokenizers library")
    return made
