"""fairseq's programs that read and compare texts: fairseq-preprocess and fairseq-score."""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NoReturn

from fairseq_posenc.compat.sentences import fault_of_text, in_sentences, name_of
from fairseq_posenc.compat.using import diverting
from fairseq_posenc.compat.view import View
from fairseq_posenc.errors import InputError

SCORE = "fairseq_cli.score"


def preprocess_in_sentences() -> None:
    """Let fairseq-preprocess end in sentences, and check its texts before it writes anything.

    Can go when fairseq-preprocess reports what is wrong.
    """
    from fairseq import options

    options.get_preprocessing_parser = diverting(options.get_preprocessing_parser, _preprocess)


def _preprocess(main: Callable, args: argparse.Namespace) -> None:
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    flags = ["trainpref"] if args.dict_only else ["trainpref", "validpref", "testpref"]
    texts = {
        f"{prefix}.{language}" if language else prefix: f"--{flag} {prefix}"
        for flag in flags
        for prefix in (getattr(args, flag) or "").split(",")
        for language in languages
        if prefix
    }
    with in_sentences(main.__globals__):
        if args.workers < 1:
            raise InputError(f"--workers {args.workers}: at least 1 is needed")
        for text, given in texts.items():  # now, as fairseq leaves half a data-bin behind, or reads without end
            if not os.path.exists(text):
                raise InputError(f"{given}: there is no file {text}")
            if fault := fault_of_text(text):
                raise InputError(fault)
        try:
            main(args)
        except FileExistsError as error:
            if error.strerror:
                raise
            raise InputError(
                f"{error} is there already: remove it, name another --destdir, or use it, with --srcdict or --tgtdict"
            ) from error


def score_in_sentences() -> None:
    """Let fairseq-score end in sentences, also where its texts differ in length, of which it scores the lines that both have.

    It has no ``main`` and asks fairseq for no parser. Where it is the program, it imports fairseq before it defines its
    functions, and so what it calls first can be ours: the class of its parser. Can go when fairseq-score reports what is wrong.
    """
    for module in filter(None, map(sys.modules.get, (SCORE, "__main__"))):
        program = vars(module)
        if name_of(program) == SCORE:
            program["argparse"] = View(argparse, ArgumentParser=functools.partial(_score, program))


def _score(program: dict[str, Any], **_: Any) -> NoReturn:
    """All of fairseq-score, called when it makes its parser. With --sentence-bleu, it knows an earlier BLEU only."""
    from fairseq.scoring import bleu

    program["argparse"] = argparse
    args = program["get_parser"]().parse_args()
    with in_sentences(program, [args.sys, args.ref]):
        system, references = Lines.of(args.sys), Lines.of(args.ref)
        if len(system) != len(references) or not references:
            found = f"--sys {args.sys} has {len(system)} lines, and --ref {args.ref} has {len(references)}"
            raise InputError(f"{found}: each line needs its reference")
        program["open"] = lambda path, *_: system if path == args.sys else references
        program["sys"] = View(sys, stdin=system)
        program["bleu"] = View(bleu, Scorer=lambda cfg, *rest: bleu.Scorer(bleu.BleuConfig(cfg, *rest) if rest else cfg))
        program["cli_main"]()
    sys.exit()


class Lines(list):
    """A text's lines in place of the open file, which sacreBLEU 2 does not take any more."""

    @classmethod
    def of(cls, path: str) -> "Lines":
        """Those of a file, or for ``-`` of the standard input."""
        with nullcontext(sys.stdin) if path == "-" else open(path, encoding="utf-8") as file:
            return cls(file)

    def readlines(self) -> "Lines":
        return self

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass


PATCHES = (preprocess_in_sentences, score_in_sentences)
