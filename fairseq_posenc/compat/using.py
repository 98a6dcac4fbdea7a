"""fairseq's programs that use a trained model, and what they and training are started with."""

import argparse
import ast
import functools
import math
import re
import sys
from collections.abc import Callable
from typing import Any

from omegaconf.errors import MissingMandatoryValue

from fairseq_posenc.compat.exits import refuse
from fairseq_posenc.compat.sentences import in_sentences, name_of
from fairseq_posenc.errors import InputError, flag_of

NEED_A_MODEL = {f"fairseq_cli.{name}" for name in ("generate", "interactive", "eval_lm", "validate")}


def use(main: Callable, cfg: Any, **kwargs: Any) -> None:
    """``main`` of a program that uses a trained model."""
    program = getattr(main, "__globals__", {})
    with in_sentences(program, [cfg.interactive.input], cfg.distributed_training.device_id):
        if name_of(program) in NEED_A_MODEL:
            _check(cfg)
        main(cfg, **kwargs)


def _check(cfg: Any) -> None:
    """What a program that uses a trained model does not check.

    Raises:
        InputError: a flag is missing, or its value means nothing.
    """
    if cfg.common_eval.path is None:
        raise InputError("--path is missing: name a checkpoint, as fairseq-train makes them")
    try:
        fits = isinstance(ast.literal_eval(cfg.common_eval.model_overrides), dict)
    except (ValueError, SyntaxError):
        fits = False
    if not fits:
        raise InputError(f"--model-overrides {cfg.common_eval.model_overrides}: a dictionary is needed, as Python writes it")
    longest = getattr(cfg.task, "tokens_per_sample", math.inf)
    if cfg.eval_lm.context_window >= longest:
        raise InputError(
            f"--context-window {cfg.eval_lm.context_window}: less than --tokens-per-sample {longest} is needed, in which it lies"
        )


def generate_through_call_main() -> None:
    """Start fairseq-generate through ``call_main``, where the other programs that use a model are checked.

    It alone calls its ``main`` itself. Can go when fairseq_cli.generate uses ``call_main``.
    """
    from fairseq import options

    options.get_generation_parser = diverting(options.get_generation_parser, _generate)


def diverting(get_parser: Callable, start: Callable[[Callable, argparse.Namespace], None]) -> Callable:
    """``get_parser``, which lets ``start`` call the ``main`` of a program that asks for it and would then call it itself."""

    @functools.wraps(get_parser)
    def get_parser_and_divert(*args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        program = sys._getframe(1).f_globals  # fairseq_cli.generate, for one, which may be called __main__
        main, parser = program.get("main"), get_parser(*args, **kwargs)
        if "cli_main" in program and getattr(main, "__globals__", None) is program:
            program["main"] = functools.partial(_start_once, program, main, start)
        return parser

    return get_parser_and_divert


def _start_once(program: dict[str, Any], main: Callable, start: Callable, args: argparse.Namespace) -> None:
    program["main"] = main
    start(main, args)


def _generate(main: Callable, args: argparse.Namespace) -> None:
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.distributed import utils

    utils.call_main(convert_namespace_to_omegaconf(args), main)


def flags_that_are_missing() -> None:
    """Name what is missing, where fairseq fails in Hydra's merging of its None, or with ``KeyError: None`` of the task.

    Can go when fairseq declares what is required.
    """
    from fairseq import options
    from fairseq.dataclass import initialize, utils
    from hydra.errors import ConfigCompositionException

    get_parser, convert = options.get_validation_parser, utils.convert_namespace_to_omegaconf
    add_defaults = initialize.add_defaults

    @functools.wraps(get_parser)
    def get_parser_that_asks(*args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        parser = get_parser(*args, **kwargs)
        for action in parser._actions:
            action.required |= action.dest == "task" and action.default is None
        return parser

    @functools.wraps(convert)
    def convert_or_refuse(args: argparse.Namespace) -> Any:
        try:
            return convert(args)
        except ConfigCompositionException as error:
            missing = re.fullmatch(r"Error merging override (\w+)\.(\w+)=null", str(error))
            if missing is None:
                raise
            refuse(f"{flag_of(missing[2])} ({missing[1]}.{missing[2]}) is missing")

    @functools.wraps(add_defaults)
    def add_defaults_or_refuse(cfg: Any) -> None:
        try:
            add_defaults(cfg)
        except MissingMandatoryValue as error:
            refuse(f"{error.key} is missing: name a configuration that has it (--config-dir, --config-name), or a value")

    options.get_validation_parser, utils.convert_namespace_to_omegaconf = get_parser_that_asks, convert_or_refuse
    initialize.add_defaults = add_defaults_or_refuse


PATCHES = (generate_through_call_main, flags_that_are_missing)
