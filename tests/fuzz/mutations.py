"""Careless and hostile changes to flags and files, drawn from a seed."""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from tries import SENTINEL

from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

NUMBERS = ("0", "-1", "1", "nan", "inf", "-inf", "1e30", "1e-30", "1000000000000", "-5", "0.5", "1.5", "3", "0x10", "1_000")
TEXTS = ("", " ", "x", "true", "nothing/here", "..", ".", "/", "/dev/null", "a:b", "${env:HOME}", "é√", "none", "--", "[1", "{}")
SCALARS = (None, True, 0, -1, 1.5, float("nan"), float("inf"), 10**30, "", "x", "${env:HOME}", "\ud800", [], {}, [[]], {"a": 1})


class Payload:
    """Unpickled by a careless reader, it makes the sentinel."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {SENTINEL}",)


EVALUATED = {"_name": "wav2vec2", "conv_feature_layers": f"__import__('os').system('touch {SENTINEL}')"}
"""Options that fairseq evaluates where it builds the model that they name."""


def flags(argv: list[str], rng: random.Random) -> tuple[list[str], str]:
    """The command line with one thing about it changed, and what."""
    argv = list(argv)
    names = [i for i, word in enumerate(argv) if word.startswith("--")]
    values = [i + 1 for i in names if i + 1 < len(argv) and not argv[i + 1].startswith("--")]
    words = [i for i in range(1, len(argv)) if i not in names]
    choice = rng.random()
    if choice < 0.6 and (values or words):
        i = rng.choice(values or words)
        argv[i] = rng.choice(NUMBERS + TEXTS)
        return argv, f"{argv[i - 1]} {argv[i]!r}"
    if choice < 0.75 and names:
        i = rng.choice(names)
        removed = [argv.pop(i)]
        if i < len(argv) and not argv[i].startswith("--"):
            removed.append(argv.pop(i))
        return argv, f"without {' '.join(removed)}"
    if choice < 0.9 and len(values) > 1:
        i, j = rng.sample(values, 2)
        argv[i], argv[j] = argv[j], argv[i]
        return argv, f"the values of {argv[i - 1]} and {argv[j - 1]} exchanged"
    argv.insert(rng.randrange(1, len(argv) + 1), rng.choice(NUMBERS + TEXTS))
    return argv, "a word too many"


def file(path: Path, others: list[Path], rng: random.Random) -> str:
    """Damage a file, by what kind of file it is where that is known; says how."""
    kinds: list[Callable[[Path, random.Random], str]] = [_cut, _flip, _insert, _empty, _remove, _folder, _noise, _loop]
    structured = STRUCTURED.get(path.suffix)
    if structured is not None and rng.random() < 0.6:
        return f"{path.name}: {structured(path, rng)}"
    if rng.random() < 0.1 and others:
        other = rng.choice(others)
        path.write_bytes(other.read_bytes())
        return f"{path.name}: it is {other.name} now"
    return f"{path.name}: {rng.choice(kinds)(path, rng)}"


def _cut(path: Path, rng: random.Random) -> str:
    size = rng.randrange(path.stat().st_size + 1)
    os.truncate(path, size)
    return f"cut to {size} bytes"


def _flip(path: Path, rng: random.Random, within: int = 1 << 60) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        if content:
            content[rng.randrange(min(within, len(content)))] = rng.randrange(256)
    path.write_bytes(content)
    return "bytes flipped"


def _flip_head(path: Path, rng: random.Random) -> str:
    return _flip(path, rng, within=64) + " at its beginning"


def _insert(path: Path, rng: random.Random) -> str:
    content, at = path.read_bytes(), rng.randrange(path.stat().st_size + 1)
    path.write_bytes(content[:at] + rng.randbytes(rng.randint(1, 64)) + content[at:])
    return f"bytes inserted at {at}"


def _empty(path: Path, rng: random.Random) -> str:
    path.write_bytes(b"")
    return "emptied"


def _noise(path: Path, rng: random.Random) -> str:
    path.write_bytes(rng.randbytes(rng.randint(1, 4000)))
    return "noise"


def _remove(path: Path, rng: random.Random) -> str:
    path.unlink()
    return "removed"


def _folder(path: Path, rng: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return "a folder of its name"


def _loop(path: Path, rng: random.Random) -> str:
    path.unlink()
    path.symlink_to(path.name)
    return "a link to itself"


def _line(path: Path, rng: random.Random) -> str:
    lines = path.read_bytes().split(b"\n")
    i = rng.randrange(len(lines))
    odd = [lines[i] * 2, b"", b"\t\t\t", b"\xff\xfe", rng.choice(lines), b"a" * 5000, b"x 1 2 3", b"<mask> 1", b"-1"]
    lines[i] = rng.choice(odd)
    path.write_bytes(b"\n".join(lines))
    return f"line {i + 1} is {lines[i][:20]!r}"


def _json(path: Path, rng: random.Random) -> str:
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError:
        return _flip(path, rng)
    if rng.random() < 0.05:
        path.write_text("[" * 100_000, "utf-8")
        return "nested without end"
    content, where, value = _replace(content, rng, SCALARS)
    path.write_text(json.dumps(content), "utf-8")
    return f"{where} is {value!r}"


def _checkpoint(path: Path, rng: random.Random) -> str:
    try:
        content = load_checkpoint(str(path))
    except Exception:  # it was damaged before
        return _flip(path, rng)
    if rng.random() < 0.1 and isinstance(content, dict) and "cfg" in content:
        where, value = "model", EVALUATED
        cfg = content["cfg"]
        content["cfg"] = {**(OmegaConf.to_container(cfg, enum_to_str=True) if OmegaConf.is_config(cfg) else cfg), where: value}
    else:
        content, where, value = _replace(content, rng, (*SCALARS, *_objects(path)))
    with warnings.catch_warnings(action="ignore"):
        torch.save(content, path)
    return f"{where} is {str(value)[:60]!r} ({type(value).__name__})"


def _objects(path: Path) -> list[Any]:
    arrays = [np.array([None, 1], dtype=object), np.float64("nan"), np.array(["x"])]
    tensors = [torch.zeros(0), torch.full((2, 2), float("nan")), torch.zeros(3, dtype=torch.int8)]
    return [Payload(), EVALUATED, *arrays, *tensors, b"x", {1, 2}, path]


def _replace(content: Any, rng: random.Random, values: tuple[Any, ...]) -> tuple[Any, str, Any]:
    """``content`` with one node replaced, where, and by what; shallow nodes are as likely as deep ones."""
    value = rng.choice(values)
    path, node = [], content
    while _children(node) and (rng.random() < 0.75 or not path):
        parent, key = node, rng.choice(_children(node))
        path.append((parent, key))
        node = parent[key]
    if not path or rng.random() < 0.03:
        return value, "all of it", value
    parent, key = path[-1]
    try:
        parent[key] = value
    except Exception:  # a typed configuration refuses it; the next try draws another
        return content, "nothing", None
    return content, "/".join(str(key) for _, key in path), value


def _children(node: Any) -> list[Any]:
    if isinstance(node, (dict, DictConfig)):
        return list(node.keys())
    return list(range(len(node))) if isinstance(node, list) else []


STRUCTURED = {
    ".json": _json,
    ".pt": _checkpoint,
    ".safetensors": _flip_head,
    ".idx": _flip_head,
    ".txt": _line,
    ".tsv": _line,
}
"""What is done to files of these kinds beside what is done to any."""
