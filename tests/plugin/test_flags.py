"""Flags that the fields of a dataclass declare."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairseq_posenc.base.commands import add_flags, option, read_flags
from fairseq_posenc.base.errors import InputError


@dataclass(frozen=True)
class Speed:
    limit: int | None = option("a limit", None, minimum=1, group="others")


@dataclass(frozen=True)
class Adam:
    beta: float = option("decay", 0.9, maximum=1.0)
    eps: float = option("a small number", 1e-8)


DEFAULTS = Adam(beta=0.25)


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Path = option("what to read", names=("source",), metavar="SOURCE")
    data_bin: Path = option("the data", names=("--data", "--data-bin"))
    share: float = option("a share, in % of all", 0.5, minimum=0.0, maximum=1.0)
    rates: tuple[float, ...] = option("several", (1e-5, 2e-5), minimum=0.0)
    names: tuple[str, ...] = option("some", (), nargs="+")
    schemes: tuple[str, ...] = option("expressions", ())
    kind: str = option("of these", "a", choices=("a", "b"), group="others")
    quick: bool = option("or slow", False)
    also: list[int] | None = option("more", None, minimum=0)
    command: list[str]
    speed: Speed
    adam: Adam = DEFAULTS


def parsed(text):
    parser = argparse.ArgumentParser()
    add_flags(parser, Options)
    args = parser.parse_args(text.split())
    args.command = ["x"]
    return args


def test_values_and_defaults():
    options = read_flags(Options, parsed("in --data-bin d"))
    needed = dict(source=Path("in"), data_bin=Path("d"), command=["x"])
    assert options == Options(**needed, speed=Speed(), adam=Adam(None, None))
    options = read_flags(
        Options,
        parsed(
            "in --data d --rates 1,2 --names a b --limit 3 --quick --kind b --share 1 --also 4 --also 5 --eps 1 "
            "--schemes t5,rope(window=4,base=9)+m1"
        ),
    )
    given = dict(rates=(1.0, 2.0), names=["a", "b"], quick=True, kind="b", share=1.0, also=[4, 5])
    given["schemes"] = ("t5", "rope(window=4,base=9)+m1")
    assert options == Options(**needed, **given, speed=Speed(3), adam=Adam(None, 1.0))


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("--share 1.5", "--share"),
        ("--limit 0", "--limit"),
        ("--rates 1,nan", "--rates"),
        ("--beta 2", "--beta"),
        ("--also -1", "--also"),
    ],
)
def test_limits(flags, name):
    with pytest.raises(InputError, match=name):
        read_flags(Options, parsed(f"in --data d {flags}"))


@pytest.mark.parametrize("flags", ["--rates 1;2", "--kind c", "--share x", "--limit"])
def test_what_argparse_rejects(flags, capsys):
    with pytest.raises(SystemExit):
        parsed(f"in --data d {flags}")
    assert f"argument {flags.split()[0]}: " in capsys.readouterr().err


def test_help_has_defaults_and_groups(capsys):
    with pytest.raises(SystemExit):
        parsed("--help")
    text = capsys.readouterr().out
    assert "in % of all (default: 0.5)" in text
    assert "several (default: 1e-05,2e-05)" in text
    assert "\nothers:\n  --kind {a,b}" in text
    assert "decay (default: 0.25)" in text  # of the dataclass in a field
