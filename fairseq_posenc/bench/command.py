"""Measure the cost of each scheme relative to a baseline in the same run.

    fairseq-posenc bench                                                   a training step of every scheme
    fairseq-posenc bench --schemes tisa,shaw --tokens 128,512,2048 --out bench --plot
    fairseq-posenc bench --train --schemes tisa,shaw                       fairseq-train itself

For each scheme, backend and length: the attention of one layer alone (÷ plain: to PyTorch's without positions), and a whole
step of masked language modelling: forward, backward, Adam. Runs of a model and of the baseline alternate, so that other load
on the machine meets both; the table has medians, and the range of the ratios in brackets. Memory is the peak of a step on a GPU,
and elsewhere what the forward pass keeps for the backward pass. Layers have the width of the base size; a ratio hardly depends
on their number.

Nothing of this package is timed unless z and all gradients agree with the reference, eager in float64 on the CPU, up to three
times the error of eager in the same precision and four times the precision's epsilon; on at most 1,024 tokens.

TFLOP/s count the model's own matrix products, the same for all schemes. MFU is their share of the device's peak, known for
A100, H100, H200 and L4 in half precision, or given by --peak-tflops.

--train runs fairseq-train in processes of its own, which alternate likewise; on a CPU, memory is then the whole process's.
With --out, a bench that was killed goes on when the same command is given again.
"""

from __future__ import annotations

import argparse
import math
import shlex
from pathlib import Path

from ..errors import InputError, flag_of
from ..families import ROBERTA
from . import INSTALLED, SIZES, STOCK

MAX_NUMBER, MAX_LENGTH = 10**9, 10**6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    add = parser.add_argument
    add("--schemes", type=_names, metavar="A,B", help=f"names without {ROBERTA.name}_ (default: all that can be built here)")
    add("--peers", type=_names, default=[], metavar="A,B", help="also models of other packages: bert, deberta, deberta-v2, "
        f"roformer, modernbert, x-transformers, or '{INSTALLED}': those whose packages are there")  # fmt: skip
    add("--baseline", default=STOCK, metavar="SCHEME", help="what ratios are to: a scheme, such as absolute, or fairseq's own "
        "roberta_base (default: %(default)s)")  # fmt: skip
    add("--size", choices=SIZES, default="base", help="width and heads (default: %(default)s)")
    add("--layers", type=int, default=2, metavar="L", help="default: %(default)s")
    add("--vocab-size", type=int, default=1000, metavar="N", help="default: %(default)s")
    add("--tokens", type=_numbers, default=[512], metavar="n[,n…]", help="length of a sequence (default: 512)")
    add("--batch-size", type=int, default=2, metavar="B", help="sequences per step (default: %(default)s); of several "
        "lengths, those of the shortest")  # fmt: skip
    add("--repeats", type=int, default=5, metavar="N", help="pairs to time (default: %(default)s)")
    add("--attention-backend", type=_names, default=["auto"], metavar="NAME[,NAME…]", help="default: auto")
    add("--device", help="default: cuda if there is a GPU, else cpu")
    add("--bf16", action="store_true", help="parameters and activations in bfloat16; with --train, fairseq's --bf16")
    add("--peak-tflops", type=float, metavar="X", help="what the device could do at most, for the MFU")
    add("--train", action="store_true", help="time fairseq-train, on generated data or on --data")
    add("--data", type=Path, metavar="DATA-BIN", help="with --train: what to train on")
    add("--updates", type=int, default=40, metavar="N", help="with --train: per run, of which the first ten are not timed "
        "(default: %(default)s)")  # fmt: skip
    add("--train-flags", default="", metavar="FLAGS", help="with --train: more flags for this package's architectures, in one "
        "string, such as --train-flags=--compile")  # fmt: skip
    add("--out", type=Path, metavar="DIR", help="keep what is done in DIR, and write results.json and results.md")
    add("--plot", action="store_true", help="with --out: also results.png, time and memory against n (needs matplotlib)")
    add("--markdown", action="store_true", help="as a table for a Markdown file")


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        InputError, OSError: an unknown name, a flag out of range or that does not apply, an --out with something else in it, or
            a model that does not agree with the reference.
    """
    _check(args)
    from .run import bench

    bench(args)


def _check(args: argparse.Namespace) -> None:
    """Checks flags before PyTorch is imported."""
    for name, least in {"layers": 1, "vocab_size": 16, "batch_size": 1, "repeats": 1, "updates": 1}.items():
        if not least <= getattr(args, name) <= MAX_NUMBER:
            raise InputError(f"{flag_of(name)} {getattr(args, name)}: a number from {least} to {MAX_NUMBER:,} is needed")
    try:
        args.train_flags = shlex.split(args.train_flags)
    except ValueError as error:
        raise InputError(f"--train-flags {args.train_flags}: {error}") from error
    problems = {
        f"--peak-tflops {args.peak_tflops}: a positive number is needed": not 0 < (args.peak_tflops or 1) < math.inf,
        "--data and --train-flags are for fairseq-train: add --train": not args.train and (args.data or args.train_flags),
        "--peers are not timed with --train: leave one of them out": args.train and args.peers,
        f"--data {args.data} has no dict.txt: name a data-bin of 'fairseq-posenc prepare'": args.data
        and not (args.data / "dict.txt").is_file(),
        "--plot draws into --out, which is missing": args.plot and args.out is None,
    }
    for problem in [problem for problem, found in problems.items() if found]:
        raise InputError(problem)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _numbers(text: str) -> list[int]:
    try:
        numbers = sorted({int(number) for number in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 128,512") from None
    if not 1 <= numbers[0] <= numbers[-1] <= MAX_LENGTH:
        raise argparse.ArgumentTypeError(f"lengths must be positive, and at most {MAX_LENGTH:,}: {text}")
    return numbers
