"""Completes and checks a model's options, and builds the model."""

import logging
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig, OmegaConf, open_dict

from ...base.commands import Parser
from ...base.errors import InputError, first_line, flag_value
from ...core.families import ROBERTA
from ...core.schemes import Positions, option_fields
from ...core.transformer import EncoderConfig, Stack, build_positions
from ...core.transformer.heads import SpanHead
from ..checkpoint.checkpoint_file import config_errors_as_input_errors
from ..checkpoint.state_dict import SPANS, load_into
from ..checkpoint.trust import require_no_user_dir, require_ours, require_stock, user_dir
from ..options.architectures import require_agreement
from ..options.option_set import ENCODER_OPTIONS, UNLIMITED, OptionSet, field_errors_as_flags, sample_lengths

if TYPE_CHECKING:
    from ..checkpoint.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

ONE_SHAPE = "masked_lm_static"
"""The task whose batches all have one shape."""
GENERATING = {"translation": TranslationTask, "language_modeling": LanguageModelingTask}
"""Tasks that need a decoder, each for one kind of model."""


def parse(arguments: Sequence[str]) -> DictConfig:
    """Return the configuration of ``fairseq-train ARGUMENTS``, with the ``--user-dir`` of this process.

    Raises:
        InputError: fairseq-train rejects the arguments; names them.
    """
    parser = options.get_training_parser()
    parser.error = lambda message: Parser.error(parser, message)  # rather than print all of fairseq's flags and exit
    try:
        return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [*user_dir(), *arguments]))
    except ValueError as error:  # fairseq's own of flags that exclude each other
        raise InputError(first_line(error)) from None


def parse_flags_of(file: str | os.PathLike, arguments: Sequence[str]) -> DictConfig:
    """As :func:`parse`, of flags that a file names.

    Raises:
        InputError: in addition, with the flags fairseq would run code that the file names.
    """
    require_no_user_dir(arguments, file)
    cfg = parse(arguments)
    require_stock(cfg, file, trains=True)
    return cfg


class PosencModel(BaseFairseqModel):
    """The base class of the models of all families.

    Subclasses have ``option_set``, their options, and ``build_core(options, dictionary)``, which makes the part that has the
    positions.
    """

    option_set: OptionSet

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Declare the flags of all options without defaults, which the architecture has."""
        cls.option_set.add_to(parser)

    @classmethod
    def build_from_options(cls, args: DictConfig, task: FairseqTask) -> tuple[BaseFairseqModel, Stack]:
        """Build a model from complete options; returns it with its part whose positions are logged."""
        raise NotImplementedError

    @classmethod
    def build_model(cls, args: DictConfig | Namespace, task: FairseqTask) -> BaseFairseqModel:
        """Build a model from options of which those that are None, or missing, get their defaults.

        Raises:
            InputError: the options make no model, or the task is for another kind of model; the message names the flag.
        """
        require_task(next((name for name, kind in GENERATING.items() if isinstance(task, kind)), None), cls.option_set)
        cfg = getattr(task, "cfg", None)
        task_options = task.args if cfg is None else cfg  # some tasks of fairseq have args instead
        args = complete(args, task_options, cls.option_set)
        with open_dict(args), field_errors_as_flags(cls.option_set.names):
            OmegaConf.set_struct(args, False)  # fairseq's models add options that our config has no field for
            model, core = cls.build_from_options(args, task)
        record(args, core.positions)
        model.args = args
        logger.info(summary(model, core, getattr(task_options, "tokens_per_sample", None)))
        return model


def require_task(name: str | None, kind: OptionSet) -> None:
    """Raise InputError if the task of this name is for another kind of model."""
    if name in GENERATING and name != kind.task:
        raise InputError(f"--task {name} is for models of another kind than this one: add --task {kind.task}")


def complete(args: DictConfig | Namespace, task: Any, kind: OptionSet = ENCODER_OPTIONS) -> DictConfig:
    """Fill in a model's options that have no value, except those of schemes; see :func:`record`.

    Args:
        args: the options that were given; a DictConfig is changed in place.
        task: the task's options; a table of positions is as long as its samples.
    """
    if isinstance(args, Namespace):
        known = kind.fields()
        args = OmegaConf.structured(kind.config()(**{name: value for name, value in vars(args).items() if name in known}))
    assert isinstance(args, DictConfig)
    with open_dict(args):
        kind.complete(args, task)
    return args


def record(args: DictConfig, positions: Positions) -> None:
    """Write all options of a model's schemes into its options, so that a later change of a default does not change the model."""
    values = positions.complete_options
    with open_dict(args):
        for name in option_fields():
            value = values.get(name)
            setattr(args, name, flag_value(value) if isinstance(value, bool) else value)


def complete_new(args: DictConfig, arch: str, task: Any) -> None:
    """Complete and check the options of a new model of an architecture, in place.

    Raises:
        InputError: they make no model, contradict the architecture's name, do not apply, or the model cannot take the samples of
            the task, whose options are ``task``; the message names the flag.
    """
    model = ARCH_MODEL_REGISTRY[arch]
    require_task(getattr(task, "_name", None), model.option_set)
    with field_errors_as_flags(model.option_set.names):
        require_agreement(arch, args.positions)
        with open_dict(args):
            ARCH_CONFIG_REGISTRY[arch](args)
        complete(args, task, model.option_set)
        with torch.device("meta"):
            core = model.build_core(args, Dictionary())
    positions, steps = core.positions, core.config.mask_decoder_steps
    learner = f"--positions {args.positions}" if positions.max_length else f"--mask-decoder-steps {steps}"
    for flag, samples in sample_lengths(task).items():
        if (positions.max_length or steps) and samples > args.max_positions:
            raise InputError(
                f"{flag} {samples} is more than --max-positions {args.max_positions}, which is all that {learner} learns: raise "
                "--max-positions, or leave it out, which makes it as long as the samples"
            )
    record(args, positions)


def differences(first: Any, second: Any, kind: OptionSet = ENCODER_OPTIONS) -> dict[str, tuple[Any, Any]]:
    """Compare the complete options of two models.

    Returns:
        The options with which the same parameters compute different functions: name -> both values.
    """
    affecting = [
        name for name, (_, declared) in kind.fields().items() if declared.metadata["affects_output"] and name != "max_positions"
    ]
    differing = _unequal(*({name: _plain(getattr(args, name)) for name in affecting} for args in (first, second)))
    if not differing:  # the effective options of schemes are comparable only if the schemes are the same
        with torch.device("meta"), field_errors_as_flags(kind.names):
            both = [build_positions(encoder_config(args, Dictionary(), kind)) for args in (first, second)]
        differing = _unequal(*(positions.effective_options for positions in both))
        lengths = [positions.max_length for positions in both]
        if None not in lengths:  # positions of any length are the same for the lengths that the other model takes
            differing |= _unequal(*({"max_positions": length} for length in lengths))
    return differing


def encoder_config(args: Any, dictionary: Dictionary, kind: OptionSet = ENCODER_OPTIONS) -> EncoderConfig:
    """Return the core's config of an encoder with a model's complete options."""
    return EncoderConfig(**kind.core_values(args, dictionary))


def summary(model: BaseFairseqModel, core: Stack, tokens_per_sample: int | None = None) -> str:
    """Describe a model's positions, which are those of its part ``core``, and its size, in one line."""
    positions = core.positions
    options = ", ".join(f"{name}={value}" for name, value in positions.effective_options.items())
    samples = f"{tokens_per_sample} tokens per sample, " if tokens_per_sample else ""
    length = "any length" if positions.max_length is None else f"{positions.max_length} positions"
    positional = {p for part in model.modules() if isinstance(part, Stack) for p in part.positions.parameters()}
    counts = [sum(parameter.numel() for parameter in part) for part in (positional, model.parameters())]
    counted = f"{counts[0]:,} positional of {counts[1]:,} parameters"
    return f"positions {positions.expression} ({options}); {samples}{length}; {counted}"


class AnyLength:
    """An encoder or a decoder of fairseq that takes sequences of any length, as far as fairseq knows."""

    def max_positions(self) -> int:
        """Return the same for all schemes, so that too long a sequence is an error and is not skipped."""
        return UNLIMITED


def dictionary_of(symbols: int) -> Dictionary:
    """Return a dictionary with this many made-up symbols, including fairseq's own four."""
    dictionary = Dictionary()
    for number in range(len(dictionary), symbols):
        dictionary.add_symbol(f"madeupword{number:04d}")
    return dictionary


def build(arch: str, options: DictConfig | Namespace, dictionary: Dictionary, task: Any = None) -> BaseFairseqModel:
    """Build a freshly initialised model from a dictionary, without one of fairseq's tasks.

    Args:
        arch: any architecture that fairseq knows.
        options: the model's options, which are completed in place.
        task: the task's options, if they matter.
    """
    ARCH_CONFIG_REGISTRY[arch](options)
    dictionaries = dict.fromkeys(("source_dictionary", "target_dictionary"), dictionary)
    return ARCH_MODEL_REGISTRY[arch].build_model(options, SimpleNamespace(cfg=task, args=task, **dictionaries))


def restored(checkpoint: "Checkpoint", stock: bool = False) -> BaseFairseqModel:
    """Build fairseq's model of a checkpoint, in float32 and for evaluation: this package's class, or fairseq's own RoBERTa.

    Raises:
        InputError: the parameters do not fit the model that the checkpoint describes.
    """
    arch, options = ROBERTA.model if checkpoint.is_stock else checkpoint.arch, checkpoint.options
    if stock:
        require_ours(checkpoint.given, checkpoint.path)
        arch, options = checkpoint.arch, checkpoint.given
    options = Namespace(**{**vars(options), "load_checkpoint_heads": True})
    with config_errors_as_input_errors(checkpoint.path):
        model = build(arch, options, dictionary_of(checkpoint.config.vocab_size), checkpoint.task)
        if f"{SPANS}weight" in checkpoint.state:
            model.encoder.lm_head = SpanHead(checkpoint.config.dim)
        load_into(model, checkpoint.state, f"{checkpoint.path} does not fit the model that its own configuration describes")
    return model.float().eval()


def _plain(value: Any) -> Any:
    """Return the string of a choice, as files have it; other values are unchanged."""
    return value if isinstance(value, (bool, int, float)) else str(value)


def _unequal(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys((*first, *second))
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}
