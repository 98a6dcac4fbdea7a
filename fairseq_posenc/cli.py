"""``fairseq-posenc COMMAND …``: everything except training, which is ``fairseq-train``'s job.

A command is a module, imported only when it is called, with ``Options``, the dataclass of its flags (:mod:`.commands`), and
``main(options)``. It imports nothing slow before ``main``, so that ``--help`` is immediate; flags that need such an import are
declared in ``add_scheme_arguments(parser)``, which ``--help`` leaves out. ``Options`` may have the field ``flags``, the values of
all flags. Results are printed by :func:`.commands.show` and are all that stdout gets. For input that it cannot use, ``main``
raises InputError or OSError with a message that names the flag, file or line at fault. The message is printed without a
traceback, and the exit status is 2.
"""

import argparse
import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from .base.commands import Parser, add_flags, only_results, read_flags
from .base.errors import InputError, lacking, sentence, suggestion
from .base.version import FAIRSEQ_VERSION, __version__

HELP = {"-h", "--help"}


OF_FAIRSEQ = {"fairseq", "fairseq_cli", "hydra", "omegaconf"}
EXTRA_OF = {  # package -> the extra that brings it
    **dict.fromkeys(OF_FAIRSEQ, "fairseq"),
    **dict.fromkeys(("transformers", "tokenizers", "safetensors", "accelerate"), "hf"),
    **dict.fromkeys(("pyarrow", "fsspec"), "formats"),
    "matplotlib": "plots",
    **dict.fromkeys(("sklearn", "scipy"), "glue"),
    "statsmodels": "compare",
    "deepspeed": "deepspeed",
}


class Command(NamedTuple):
    """A command: the name of its module in this package, and one line of help."""

    module: str
    help: str


COMMANDS = {
    "prepare": Command("text.data.prepare", "turn raw text into a data-bin for fairseq-train"),
    "schemes": Command("study.catalogue.schemes", "list every architecture: equation, source, properties, parameters"),
    "check": Command("study.catalogue.check", "check what a scheme claims, for whoever develops an encoding"),
    "bench": Command("study.bench.command", "time attention and training of each scheme against stock RoBERTa"),
    "tasks": Command("study.word_order.command", "train small models on tasks that need word order, with every scheme"),
    "glue": Command("study.finetune.glue", "fine-tune a checkpoint on GLUE and score it"),
    "squad": Command("study.finetune.squad", "fine-tune a checkpoint on SQuAD 1.1 or 2.0 and score it"),
    "compare": Command("study.compare.command", "train schemes under equal conditions, and report which is better"),
    "pairs": Command("study.pairs.command", "score pairs of sentences: does a model know grammar, and word order?"),
    "report": Command("study.finetune.grid_report", "results of several grids of fine-tuning side by side"),
    "export-hf": Command("huggingface.export_command", "turn a checkpoint into a Hugging Face model"),
    "import-hf": Command("huggingface.import_command", "turn a transformers or fairseq model into a checkpoint"),
    "init-tisa": Command("study.analyze.init_tisa", "fit TISA to a pretrained model's positions"),
    "consolidate": Command("plugin.zero.consolidate", "merge a sharded checkpoint into a plain one"),
    "plan": Command("plugin.zero.plan", "estimate the memory per GPU of a run"),
    "analyze": Command("study.analyze.analyze", "show what models learned about position, on one page"),
    "extrapolate": Command("study.measure.extrapolate", "measure the loss on sequences longer than those of training"),
    "grow": Command("study.analyze.grow", "make a checkpoint's table of learned positions longer"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        # Equations have √ and Δ, which not every terminal can show.
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    is_program, argv = argv is None, sys.argv[1:] if argv is None else argv
    options, args = argparse.Namespace(command="", traceback=False), argparse.Namespace()
    try:
        module, args = _prepare(argv, options)
        if is_program:
            from .plugin.processes.interrupts import end_with

            end_with(f"fairseq-posenc {options.command}", lambda: _kept(args))
        with only_results():
            module.main(read_flags(module.Options, argparse.Namespace(**vars(args), flags=args)))
    except BrokenPipeError:  # the reader of the results has stopped, as head does
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF or options.traceback:
            raise
        problem = lacking(EXTRA_OF[package]) or f"needs {package}, which is not installed: pip install {package}"
        if package in OF_FAIRSEQ:
            problem = (
                f"needs fairseq {FAIRSEQ_VERSION}, which is not installed: in a clone, run scripts/setup_venv.sh, "
                f"or pip install -e '.[fairseq]' and then pip install --no-deps fairseq=={FAIRSEQ_VERSION}"
            )
    except (InputError, OSError, UnicodeEncodeError) as error:
        if options.traceback:
            raise
        problem = sentence(error)
    except KeyboardInterrupt:
        print(f"\nfairseq-posenc {options.command}: interrupted. {_kept(args)}", file=sys.stderr)
        return 130
    else:
        return 0
    print(f"{f'fairseq-posenc {options.command}'.strip()}: {problem}", file=sys.stderr)
    return 2


def _kept(args: argparse.Namespace) -> str:
    """Return what an interrupted command has left, and how to go on."""
    out = getattr(args, "out", None)
    if out is None or not out.is_dir():
        return "Nothing was written; give the same command again."
    return f"What is complete is in {out}; the same command does the rest."


def parser_of(command: str) -> tuple[Any, Parser]:
    """Return the module of a command, and the parser of its flags."""
    module = import_module(f"{__package__}.{COMMANDS[command].module}")
    parser = Parser(
        prog=f"fairseq-posenc {command}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_flags(parser, module.Options)
    return module, parser


def _add_user_dir(parser: Parser) -> None:
    parser.add_argument("--user-dir", metavar="DIR", help="import this package of schemes first, as fairseq-train does")


def _prepare(argv: Sequence[str], options: argparse.Namespace) -> tuple[Any, argparse.Namespace]:
    """Parse a command line; ``options`` gets what is before the command's name, and ``--user-dir`` may also be after it."""
    early = Parser(add_help=False)
    _add_user_dir(early)
    given, rest = early.parse_known_args(argv)
    parser().parse_args(rest or ["--help"], options)
    command, arguments = options.command, options.arguments
    if command not in COMMANDS:
        raise InputError(f"there is no command {command}: {suggestion(command, COMMANDS)}--help lists all")
    module, flags = parser_of(command)
    if not HELP & {*arguments}:
        of_schemes = getattr(module, "add_scheme_arguments", None) if flags.unknown(arguments) else None
        if not of_schemes:  # before slow imports
            flags.parse_args(arguments)
        with only_results():
            if given.user_dir is not None:
                from fairseq_posenc.plugin.checkpoint.trust import import_user_dir

                import_user_dir(given.user_dir)
            if of_schemes:
                of_schemes(flags)
    return module, flags.parse_args(arguments)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line up to the command's name."""
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items())
    parser = Parser(
        prog="fairseq-posenc",
        description="Positional-encoding schemes for fairseq. Training itself is done by fairseq-train.",
        epilog=f"commands:\n{listing}\n\n'fairseq-posenc COMMAND --help' explains each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fairseq-posenc {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where in the code an error arose")
    _add_user_dir(parser)
    parser.add_argument("command", metavar="COMMAND", help="one of those below")
    parser.add_argument("arguments", metavar="…", nargs=argparse.REMAINDER, help="the command's own")
    return parser


if __name__ == "__main__":
    sys.exit(main())
