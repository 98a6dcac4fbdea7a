"""Records of what a folder was made from: JSON, written atomically and compared. Files of settings, in YAML."""

import json
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from importlib import metadata, util
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import from_json

from .errors import KINDS, InputError, suggestion
from .files import atomic_write, read, read_text, sha256
from .version import __version__

MAX_NODES = 10**4
"""Entries of a file of settings."""
FINISHED, DIVERGED, FAILED = "finished", "diverged", "failed"
"""How a run ended."""
RESULT = "result.json"
"""The record of a run."""
FORMAT = 1
"""Of the records of runs, and of reports of them."""
PLAIN = {"str": str, "bool": bool, "int": int, "float": float}
WANTED = {
    "missing": "is missing",
    "string": "must be a string",
    **{name: f"must be {KINDS[kind][0]}" for name, kind in PLAIN.items()},
    **dict.fromkeys(("dict", "model", "mapping"), "must have names with values"),
    "list": "must be a list",
    "too_short": "must not be empty",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
}
"""The message for each kind of pydantic's errors, by the beginning of its name."""


def write_json(path: Path, content: Any, *, indent: int = 1) -> None:
    """Write JSON atomically.

    Raises:
        ValueError: a number is infinite or NaN, for which JSON has no form.
    """
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=indent, ensure_ascii=False, allow_nan=False)
        stream.write("\n")


class Strict(BaseModel):
    """A part of a file of settings, in which unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, str_max_length=10**4)

    @field_validator("*", mode="before")
    @classmethod
    def _not_boolean(cls, value: Any) -> Any:
        """YAML's ``yes`` is no 1: no field is true or false, and pydantic would convert it."""
        if any(isinstance(entry, bool) for entry in (value if isinstance(value, list) else [value])):
            raise ValueError("is no place for true or false, as which YAML also reads yes, no, on and off")
        return value


class Recorded(BaseModel):
    """Fields of a record, whose types and limits are checked when it is read; other fields are left unchecked."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


def require_fields(content: Any, fields: type[BaseModel], name: str | Path) -> None:
    """Raise InputError, which begins with ``name``, unless a record has these fields."""
    try:
        fields.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{name} was edited or damaged: {faults(error)}. Remove it to have that part done again.") from None


def faults(error: ValidationError) -> str:
    """Describe what is wrong with the first entries of a file that are wrong, in this package's words."""
    places: dict[str, str] = {}
    for fault in error.errors(include_input=False)[:5]:
        *above, last = fault["loc"] or ("",)
        alternative = str(last).removeprefix("constrained-") in PLAIN and bool(above)  # one for each type of a value
        place = ".".join(map(str, above if alternative else fault["loc"]))
        wanted = next((words for kind, words in WANTED.items() if fault["type"].startswith(kind)), None)
        wanted = "must be a string, a number, true or false" if alternative else wanted
        message = fault["msg"].removeprefix("Value error, ") if wanted is None else wanted.format(**fault.get("ctx", {}))
        if fault["type"] == "extra_forbidden":
            kinds = [kind for base in Strict.__subclasses__() for kind in (base, *base.__subclasses__())]
            known = {field for kind in kinds for field in kind.model_fields}
            message = f"there is no such field: {suggestion(str(last), sorted(known)) or 'leave it out'}".rstrip()
        places.setdefault(place, message)
    return "; ".join(f"{place}: {message}" if place else message for place, message in places.items())


def read_object(path: Path, version: int, fields: type[BaseModel] = Recorded) -> dict[str, Any] | None:
    """Return a record of this package, a JSON object whose ``format`` is ``version``; None if the file does not exist.

    Raises:
        InputError, OSError: the file is something else, or lacks the ``fields``.
    """
    try:
        content = json.loads(read(path))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("format") != version:
        raise InputError(f"{path} is damaged, or another release wrote it. Remove it to have that part done again.")
    require_fields(content, fields, path)
    return content


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the JSON object of each line that is not empty.

    Raises:
        InputError, OSError: the file is something else; the message names the line.
    """
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                row = from_json(line)
            except ValueError as error:
                row = error
            if not isinstance(row, dict):
                raise InputError(f"{path}:{number} is not a JSON object: {row!s:.80}")
            yield number, row


class _Loader(yaml.SafeLoader):
    """Reads numbers as YAML 1.2 does: 1e-5 is one, where PyYAML requires a point and a sign; 010 is not 8, and 1:30 is not 90.

    A name that occurs twice in a mapping, of which PyYAML keeps the last, is an error. Aliases, by which a few lines can describe
    more than any memory holds, count with what they repeat.
    """

    _nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        before, is_alias = self._nodes, self.check_event(yaml.AliasEvent)
        node: Any = super().compose_node(parent, index)
        if is_alias:
            self._nodes += getattr(node, "size", MAX_NODES)  # without a size, it contains itself
        else:
            self._nodes += 1
            node.size = self._nodes - before
        if isinstance(node.value, str):
            node.value.encode("utf-8")  # raises ValueError for half of a surrogate pair
        if isinstance(node, yaml.MappingNode):
            names = Counter(key.value for key, _ in node.value if isinstance(key.value, str))
            if twice := [name for name, times in names.items() if times > 1]:
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a mapping has {twice[0]} more than once")
        if self._nodes > MAX_NODES:
            raise yaml.YAMLError(f"it has more than {MAX_NODES:,} entries, counting what aliases repeat")
        return node


_NUMBERS = {"int": r"[-+]?(0|[1-9]\d*)$", "float": r"[-+]?((\d+(\.\d*)?|\.\d+)[eE][-+]?\d+|\d+\.\d*|\.\d+|\.inf|\.nan)$"}
_Loader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if rule[0].rpartition(":")[2] not in _NUMBERS]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), list("-+.0123456789"))


def read_yaml(path: Path, name: str = "") -> Any:
    """Return the content of a YAML file.

    Args:
        path: the file.
        name: its name in the message; by default, its path.

    Raises:
        InputError, OSError: it is not YAML, or too large.
    """
    try:
        return yaml.load(read(path).decode("utf-8"), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{name or path} is not YAML: {' '.join(str(error).split())}") from None


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of files, by their names in the record."""
    return {name: sha256(path) for name, path in files.items()}


def versions() -> dict[str, str]:
    """Return the versions of this package and of those on which results depend."""
    others = {name: metadata.version(name) if util.find_spec(name) else "none" for name in ("fairseq", "torch", "numpy")}
    return {"fairseq_posenc": __version__, **others, "python": platform.python_version()}


def processor() -> str:
    """Return the name of the CPU."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text("utf-8"), re.MULTILINE) if info.exists() else None
    return match[1] if match else platform.processor() or platform.machine()


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Describe each value that differs, in JSON's types: by its name in mappings; in lists of words, with the word before it."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return [text for key in keys for text in differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)]
    if isinstance(before, list) and isinstance(now, list) and all(isinstance(word, str) for word in before + now):
        spans = [code[1:] for code in SequenceMatcher(None, before, now, autojunk=False).get_opcodes() if code[0] != "equal"]
        pairs = [(" ".join(before[max(0, a - 1) : b]), " ".join(now[max(0, c - 1) : d])) for a, b, c, d in spans]
        return [f"{name} was {old!r}, now {new!r}" for old, new in pairs]
    return [] if before == now else [f"{name} was {before!r}, now {now!r}"]


def require_same(before: Any, now: Any, problem: str, advice: str) -> None:
    """Check that a folder was made with the configuration that it would be made with now.

    Args:
        before: the configuration in its record, in JSON's types.
        now: the current configuration; it may have tuples, which are lists in JSON.
        problem, advice: the parts of the message before and after the differences.

    Raises:
        InputError: it was not; the message names the differences.
    """
    if changed := differences(before, json.loads(json.dumps(now))):
        raise InputError(f"{problem}: {'; '.join(changed)}. {advice}")
