"""The flags and configurations of fairseq's programs, and ``--user-dir``, ``common.user_dir`` of Hydra's configurations."""

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairseq import optim, options, utils
from fairseq.dataclass import initialize
from fairseq.dataclass import utils as dataclass_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import get_args
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import filter_overrides
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from ...base.errors import KINDS, InputError, first_line, flag_fault, flag_of, suggestion
from ...base.patching import wrap
from ..checkpoint.trust import import_user_dir
from ..options.architectures import require_architecture, update_configs
from ..options.help import add_groups
from ..processes.exits import refuse
from ..run import checks, no_decay, program_run


def generate_through_call_main() -> None:
    """Start fairseq-generate through ``call_main``, as fairseq starts its other programs.

    Can be removed when fairseq_cli.generate uses ``call_main``.
    """

    @wrap(options, "get_generation_parser")
    def get_parser_and_divert(get_parser: Any, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        program = sys._getframe(2).f_globals  # fairseq_cli.generate, which is called __main__ where it is run
        main = program.get("main")

        def start(namespace: argparse.Namespace) -> None:
            program["main"] = main
            distributed_utils.call_main(dataclass_utils.convert_namespace_to_omegaconf(namespace), main)

        if getattr(program.get("__spec__"), "name", None) == "fairseq_cli.generate":
            program["main"] = start
        return get_parser(*args, **kwargs)


def user_modules_with_flags() -> None:
    """Give the schemes of ``--user-dir`` flags, and report a folder that does not exist.

    Can be removed when fairseq asks models for their flags when it parses them.
    """

    @wrap(utils, "import_user_module")
    def import_user_module(imports, args):
        try:
            imports(args)
        except FileNotFoundError as error:
            if error.strerror:  # a file that the package opens
                raise
            raise InputError(f"--user-dir {error}: there is no such folder") from error
        if getattr(args, "user_dir", None) is not None:
            update_configs()


def user_dir_imported_first() -> None:
    """Let a configuration have the options of what ``common.user_dir`` imports, such as those of a scheme.

    fairseq imports it once the configuration is complete, and by then has rejected them. Here it is imported before Hydra
    composes if the command line names it, and before fairseq adds the defaults if a file does. Can be removed when fairseq's
    Hydra entry point imports it first.
    """

    @wrap(initialize, "hydra_init")
    def import_and_init(hydra_init: Any, *args: Any) -> None:
        for override in get_args().overrides:
            if "common.user_dir" in override:
                value = OverridesParser.create().parse_override(override).value()
                import_user_dir(None if value is None else str(value))
        hydra_init(*args)

    @wrap(initialize, "add_defaults")
    def import_and_add(add_defaults: Any, cfg: DictConfig) -> None:
        import_user_dir(cfg.common.user_dir)
        if cfg.common.user_dir is not None and isinstance(model := cfg.get("model"), DictConfig):
            cfg.model = OmegaConf.create(OmegaConf.to_container(model))  # its class is that before the import
        add_defaults(cfg)


def jobs_checked_first() -> None:
    """Check all jobs of a multirun before the first starts. Can be removed when Hydra composes all before it runs one."""

    @wrap(Sweeper, "validate_batch_is_legal")
    def check_jobs(validate: Any, sweeper: Any, batch: Any) -> None:
        validate(sweeper, batch)
        for overrides in batch:
            cfg = sweeper.hydra_context.config_loader.load_sweep_config(sweeper.config, [*overrides])
            initialize.add_defaults(cfg)
            try:
                checks.check_number_ranges(cfg)
                checks.complete_model(cfg)
            except InputError as error:
                refuse(f"{' '.join(filter_overrides(overrides))}: {error}")


def report_what_is_missing() -> None:
    """Report a missing ``--user-dir`` or a wrong option in one sentence, where fairseq raises errors of Hydra or OmegaConf.

    Can be removed when fairseq reports them.
    """
    dataclass_utils.logger.disabled = True  # it prints all overrides after the sentence, and nothing else
    places = ((options, "get_parser"), (dataclass_utils, "convert_namespace_to_omegaconf"), (initialize, "add_defaults"))
    for module, name in (*places, (initialize, "hydra_init"), (ConfigLoaderImpl, "load_configuration")):

        @wrap(module, name)
        def call_or_refuse(function: Any, *args: Any, **kwargs: Any) -> Any:
            with _refusing():
                return function(*args, **kwargs)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        refuse(str(error))
    except HydraException as error:
        refuse(_fault(error))
    except MissingMandatoryValue as error:
        refuse(f"{error.key} is missing: name a configuration that has it (--config-dir, --config-name), or a value")
    except OmegaConfBaseException as error:
        refuse(first_line(error))


def _fault(error: Exception) -> str:
    """Return what is wrong with a configuration or an override, in words of this package."""
    cause, group = error.__cause__, re.search(r"Could not override '(\S+)'.\s*No match in the defaults list", str(error))
    if group:
        return f"{group[1]}: the configuration has no choice of it; give its options, such as {group[1]}._name=…"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        section, _, name = error.missing_cfg_file.rpartition("/")
        return f"{section or 'configuration'}: there is no {name}: {suggestion(name, error.options or ())}".rstrip()
    if isinstance(cause, (ConfigAttributeError, ConfigKeyError)) and cause.parent_node is not None:
        known = suggestion(str(cause.key), map(str, cause.parent_node))
        return f"there is no option {cause.full_key}: {known or f'where it is missing, add it with +{cause.full_key}='}".strip()
    if value := re.match(r"Value '(.*)' of type .* could not be converted to (Integer|Float|Boolean)", str(cause)):
        wanted, _ = KINDS[{"Integer": int, "Float": float, "Boolean": bool}[value[2]]]
        return f"{getattr(cause, 'full_key', '')} must be {wanted}, got {value[1]!r}"
    if isinstance(cause, OmegaConfBaseException):
        sentence = first_line(cause)
        if sentence.endswith(" is not Optional"):
            return f"{flag_of(str(cause.key))} is missing ({cause.full_key})"
        return f"{cause.full_key}: {sentence}"
    return f"{first_line(error)}: give it a value"


def faults_of_flags_in_one_line() -> None:
    """Report a flag that does not exist, or lacks a value, in one line, where argparse prints all flags of fairseq as well."""

    @wrap(options, "get_parser")
    def get_parser(get_parser: Any, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        parser = get_parser(*args, **kwargs)
        parser.error = lambda message: refuse(flag_fault(message, parser._option_string_actions))
        return parser


def flags_of_models_in_help() -> None:
    """Check ``--arch`` when it is parsed, and with ``--help`` add the models' flags. Can be removed when fairseq does both."""

    def architecture(name):
        with _refusing():
            require_architecture(name)
        return name

    @wrap(options, "add_model_args")
    def add_model_args(add, parser):
        group = add(parser)
        arch = next(action for action in group._group_actions if action.dest == "arch")
        arch.type, arch.required = architecture, True  # without it, fairseq raises a RuntimeError that has no message
        if {"-h", "--help"} & set(sys.argv[1:]):
            add_groups(parser)
        return group


def programs_in_the_pipeline() -> None:
    """Run all programs of fairseq within the pipeline of :mod:`..run`. Can be removed when the last of its steps can."""
    wrap(distributed_utils, "call_main")(program_run.call_main)


def groups_of_parameters() -> None:
    """Let optimizers treat parameters differently, by their places in the model. Can be removed when fairseq tells them names."""
    wrap(Trainer, "__init__")(program_run.mark_parameters)
    wrap(optim, "build_optimizer")(no_decay.build_optimizer)
    wrap(optim.FP16Optimizer, "build_fp32_params")(no_decay.build_fp32_params)
