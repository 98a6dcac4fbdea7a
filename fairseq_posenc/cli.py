"""``fairseq-posenc COMMAND …``: everything beside training, which is ``fairseq-train``'s own.

A command is a module with ``add_arguments(parser)`` and ``main(args)``, imported only when it is called. Bad input
raises ValueError or OSError with a message that says what to do; it is printed without a traceback, and the exit status
is 2.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from fairseq_posenc.version import __version__


class Command(NamedTuple):
    module: str
    help: str
    extra: str | None = None  # of setup.py, without which the module cannot be imported


COMMANDS = {
    "prepare": Command("fairseq_posenc.data.prepare", "turn raw text into a data-bin for fairseq-train"),
    "quickstart": Command("fairseq_posenc.quickstart", "pretrain two tiny models and compare them; minutes on a CPU"),
    "schemes": Command("fairseq_posenc.catalogue.schemes", "list every architecture: equation, source, properties, parameters"),
    "parameters": Command("fairseq_posenc.catalogue.parameters", "the papers' parameter counts beside the live modules'"),
    "bench": Command("fairseq_posenc.catalogue.bench", "time a training step of each scheme against stock RoBERTa"),
    "glue": Command("fairseq_posenc.finetuning.glue.command", "fine-tune a checkpoint on GLUE and score it"),
    "squad": Command("fairseq_posenc.finetuning.squad.command", "fine-tune a checkpoint on SQuAD 1.1 or 2.0 and score it"),
    "export-hf": Command(
        "fairseq_posenc.huggingface.export", "turn a checkpoint into a Hugging Face model, checked to agree", "hf"
    ),
    "import-hf": Command(
        "fairseq_posenc.huggingface.importing", "turn RoBERTa or BERT into a checkpoint with any positions", "hf"
    ),
    "consolidate": Command("fairseq_posenc.deepspeed.consolidate", "put a sharded checkpoint together into a plain one"),
    "plan": Command("fairseq_posenc.deepspeed.plan", "estimate memory, communication and time of a run on many GPUs"),
    "preflight": Command("fairseq_posenc.deepspeed.preflight", "check every host before a run on several"),
    "plot": Command("fairseq_posenc.analysis.plot", "draw what the positional scheme of a checkpoint has learned"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(argv or ["--help"])
    command = COMMANDS[options.command]
    try:
        module = import_module(command.module)
    except ModuleNotFoundError as error:
        if command.extra is None or not error.name:
            raise
        package = error.name.partition(".")[0]
        print(
            f"fairseq-posenc {options.command}: needs {package}, which is not installed: pip install -e '.[{command.extra}]'",
            file=sys.stderr,
        )
        return 2
    parser = argparse.ArgumentParser(
        prog=f"fairseq-posenc {options.command}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    args = parser.parse_args(options.arguments)
    try:
        module.main(args)
    except (ValueError, OSError) as error:
        if options.traceback:
            raise
        print(f"fairseq-posenc {options.command}: {_message(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nfairseq-posenc {options.command}: interrupted. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="fairseq-posenc",
        description="Positional-encoding schemes for fairseq. Training itself is fairseq-train's.",
        epilog=f"commands:\n{listing}\n\n'fairseq-posenc COMMAND --help' says more about each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fairseq-posenc {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where in the code an error arose")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="one of those below")
    parser.add_argument("arguments", metavar="…", nargs=argparse.REMAINDER, help="the command's own")
    return parser


def _message(error: ValueError | OSError) -> str:
    """The error as a sentence: what the operating system reports comes as a number, a phrase and a file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
