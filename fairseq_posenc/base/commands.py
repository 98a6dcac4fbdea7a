"""What all commands share: flags that the fields of a dataclass declare, and results on stdout with everything else on stderr."""

import contextlib
import dataclasses
import math
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar, get_args, get_origin, get_type_hints

from .errors import KINDS, FieldError, InputError, check_value, flag_fault, flag_of, value_types

Options = TypeVar("Options")
CHECKPOINTS = "checkpoints"
"""fairseq's default --save-dir, which Hydra's runs have in their folders."""
SAVED = re.compile(r"checkpoint[\d_]*(_best|_last)?\.pt")
OURS = {"minimum", "maximum", "group", "names", "parse"}
"""Metadata of :func:`option` that ``add_argument`` does not take."""


def option(help: str, default: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """Return the field of a dataclass that :func:`add_flags` turns into a flag.

    The flag has the field's name. A ``bool`` needs no value, a ``tuple`` takes values separated by commas outside of
    parentheses, and the flag of a ``list`` may be repeated.

    Args:
        help: of the flag; the default is appended unless the text has it.
        default: without one, the flag is required.
        metadata: ``minimum`` and ``maximum`` of the value, or of each value of a tuple; ``group``, the title of the flag's group;
            ``names`` of the flag in place of the field's, of which one without dashes makes it positional; ``parse``, a function
            of the text in place of the field's type. Everything else goes to ``add_argument``.
    """
    return dataclasses.field(default=default, metadata={"help": help, **metadata})


def existing(text: str) -> Path:
    """Return the path of a file or folder that is read; ``parse`` of :func:`option`, so that it is missed before slow imports."""
    if not Path(text).exists():
        raise ArgumentTypeError(f"there is no file or folder {text}")
    return Path(text)


def checkpoint_file(text: str) -> Path:
    """Return the file of a checkpoint, named by itself or by the folder of its run; ``parse`` of :func:`option`."""
    path = best_checkpoint(existing(text))
    if not path.is_file():
        raise ArgumentTypeError(f"the folder {text} has no checkpoint, such as checkpoint_best.pt, and no such checkpoints/")
    return path


def best_checkpoint(path: Path) -> Path:
    """Return the best checkpoint of a run, or its last; of no run's folder, the path itself."""

    def order(file: Path) -> tuple[bool, bool, list[float]]:
        numbers = [*map(float, re.findall(r"\d+", file.stem)), math.inf]  # its epoch, and the updates, or the epoch's end
        return file.stem == "checkpoint_best", file.stem == "checkpoint_last", numbers

    return max(saved_checkpoints(path), key=order, default=path)


def saved_checkpoints(folder: Path) -> list[Path]:
    """Return what fairseq's trainer has saved in a run's folder: its --save-dir, or that with ``checkpoints`` in it."""
    for save_dir in (folder, folder / CHECKPOINTS):
        if files := sorted(path for path in save_dir.glob("checkpoint*.pt") if SAVED.fullmatch(path.name)):
            return files
    return []


def split_label(model: str) -> tuple[str, str]:
    """Return the label and the file, folder or name of ``LABEL=MODEL`` or ``MODEL``.

    Without a label, a model is named after its folder or, if it is no checkpoint of a run, after itself.
    """
    if "=" in model and not Path(model).exists():
        label, _, name = model.partition("=")
        return label, name
    path = Path(model).absolute()
    path = path.parent if path.name.startswith("checkpoint") and path.suffix == ".pt" else path
    path = path.parent if path.name == CHECKPOINTS else path
    return path.name.removesuffix(".pt"), model


class Parser(ArgumentParser):
    """Reports what it does not take in one line, as an InputError; flags cannot be abbreviated."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})

    def unknown(self, words: Sequence[str]) -> list[str]:
        """Return the flags among these words that are not declared."""
        flags = [word.partition("=")[0] for word in takewhile("--".__ne__, words) if word.startswith("--") and " " not in word]
        return [flag for flag in flags if flag not in self._option_string_actions]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as argparse does; of flags that are missing and flags that are misspelt, report the latter."""
        try:
            return super().parse_known_args(args, namespace)
        except InputError:
            for flag in self.unknown(args or ()):
                raise InputError(flag_fault(f"unrecognized arguments: {flag}", self._option_string_actions)) from None
            raise

    def error(self, message: str) -> NoReturn:
        raise InputError(flag_fault(message, self._option_string_actions))


def add_flags(parser: ArgumentParser, options: type, defaults: Any = None) -> None:
    """Declare a flag for each :func:`option` of a dataclass and of the dataclasses in its fields.

    Args:
        defaults: has the values that the help shows as the defaults; flags that are not given are then None. That of a dataclass
            in a field is the field's default.
    """
    groups: dict[str | None, Any] = {None: parser}
    for declared, kind, container in _declared(options):
        keywords = {name: value for name, value in declared.metadata.items() if name not in OURS}
        names = declared.metadata.get("names", (flag_of(declared.name),))
        if (group := declared.metadata.get("group")) not in groups:
            groups[group] = parser.add_argument_group(group)
        default = declared.default if defaults is None else getattr(defaults, declared.name)
        if names[0].startswith("-"):
            keywords |= {"dest": declared.name, "required": default is dataclasses.MISSING}
        shows_default = default not in (dataclasses.MISSING, None, "", ()) and kind is not bool
        if shows_default and "default:" not in keywords["help"]:
            shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
            keywords["help"] += f" (default: {shown})"
        keywords["help"] = keywords["help"].replace("%", "%%")
        if default is not dataclasses.MISSING:
            keywords["default"] = default if defaults is None else None
        if kind is bool:
            keywords["action"] = "store_true"
        else:
            parse = _list_of(kind) if container is tuple and "nargs" not in keywords else kind
            keywords["type"] = declared.metadata.get("parse", parse)
            if container is list and "nargs" not in keywords:
                keywords["action"] = "append"
        groups[group].add_argument(*names, **keywords)
    for nested, kind in _nested(options):
        add_flags(parser, kind, None if nested.default is dataclasses.MISSING else nested.default)


def read_flags(options: type[Options], args: Namespace) -> Options:
    """Return a dataclass of the flags' values, checked; its fields that are not flags are attributes of ``args``."""
    names = {declared.name for declared in dataclasses.fields(options)}  # type: ignore[arg-type]
    nested: dict[str, Any] = {declared.name: read_flags(kind, args) for declared, kind in _nested(options)}
    read = options(**{name: value for name, value in vars(args).items() if name in names}, **nested)
    check_options(read)
    return read


def check_options(options: Any) -> None:
    """Check the types and limits of a dataclass's values.

    Raises:
        InputError: a value does not fit; the message names its flag.
    """
    for declared, kind, container in _declared(type(options)):
        value = getattr(options, declared.name)
        if value is None or kind not in KINDS or "parse" in declared.metadata:
            continue
        if container and not isinstance(value, (list, tuple)):
            raise InputError(f"{flag_of(declared.name)} must be a list, got {value!r}")
        try:
            for part in value if container else [value]:
                check_value(declared.name, part, (kind,), declared.metadata)
        except FieldError as error:
            raise InputError(error.named(flag_of)) from None


def _declared(options: type) -> Iterator[tuple[dataclasses.Field, Any, type | None]]:
    """Yield each option, its type (``int`` of ``int | None`` and ``tuple[int, ...]``), and ``tuple`` or ``list`` if it is one."""
    types = value_types(options)
    for declared in dataclasses.fields(options):
        if "help" in declared.metadata:
            kind = types[declared.name][0]
            container = get_origin(kind)
            yield declared, get_args(kind)[0] if container else kind, container


def _nested(options: type) -> list[tuple[dataclasses.Field, type]]:
    """Return the fields whose types are dataclasses, and these."""
    hints = get_type_hints(options)
    return [(field, hints[field.name]) for field in dataclasses.fields(options) if dataclasses.is_dataclass(hints[field.name])]


def _list_of(kind: type) -> Callable[[str], tuple[Any, ...]]:
    def parse(text: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(part.strip()) for part in re.split(r",(?![^(]*\))", text))  # none of rope(window=4, base=9)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a list of numbers, separated by commas") from None

    return parse


_stdout: TextIO | None = None  # the stream of results while all other output to stdout is redirected to stderr


def show(text: object = "") -> None:
    """Print a result."""
    print(text, file=_stdout or sys.stdout, flush=True)


@contextlib.contextmanager
def only_results() -> Iterator[None]:
    """In this context, only :func:`show` writes to stdout; other output of libraries and child processes goes to stderr."""
    global _stdout
    original = sys.stdout
    with contextlib.redirect_stdout(sys.stderr), _descriptor_to_stderr(original) as _stdout:
        try:
            yield
        finally:
            _stdout = None


@contextlib.contextmanager
def _descriptor_to_stderr(stdout: TextIO) -> Iterator[TextIO]:
    """Redirect the file descriptor of ``stdout`` to stderr; yield a stream to the original target."""
    try:
        number, errors = stdout.fileno(), sys.stderr.fileno()
    except (OSError, AttributeError):  # no file, as in a notebook
        yield stdout
        return
    stdout.flush()
    kept = os.dup(number)
    os.dup2(errors, number)
    try:
        with open(kept, "w", encoding=stdout.encoding, errors=stdout.errors, closefd=False) as stream:
            yield stream
    finally:
        os.dup2(kept, number)
        os.close(kept)
