"""Every command that a document shows is one: its flags and values exist, and the files of this repository that it names."""

import argparse
import ast
import itertools
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
import readme
from fairseq import options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from fairseq_posenc import cli, train
from fairseq_posenc.plugin.run import refusals
from fairseq_posenc.plugin.run.checks import complete_model
from fairseq_posenc.plugin.zero import zero_config

COMMANDS = [(file, command) for file in readme.DOCUMENTS for command in readme.commands_of(file)]
OURS = ("README.md", "docs/", "examples/", "fairseq_posenc/", "scripts/", "startup/", "tests/")


@pytest.fixture
def parsing(monkeypatch):
    """``parsing(whole)``: from now on, a parser's complaint fails the test; unless ``whole``, it misses nothing."""

    def parsing(whole: bool) -> None:
        parse = argparse.ArgumentParser.parse_known_args

        def parse_known_args(self, args=None, namespace=None):
            for action in self._actions:
                action.required = action.required and whole
            for group in self._mutually_exclusive_groups:
                group.required = group.required and whole
            return parse(self, args, namespace)

        monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_known_args)
        monkeypatch.setattr(argparse.ArgumentParser, "error", lambda self, message: pytest.fail(f"{self.prog}: {message}"))

    return parsing


def fairseq_posenc(words: list[str]) -> None:
    with mock.patch.multiple(Path, exists=lambda self: True, is_file=lambda self: True):  # what the reader has
        cli._prepare(words, argparse.Namespace())


def fairseq_train(words: list[str]) -> None:
    if "--arch" not in words:  # as in a command that is not whole
        words = [*words, "--task", "masked_lm", "--arch", "roberta_tisa"]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    cfg = convert_namespace_to_omegaconf(args)
    complete_model(cfg)
    if "--batch-size" in words:
        refusals.check(cfg)


def fairseq_hydra_train(words: list[str]) -> None:
    """Each of the runs that ``-m`` makes."""
    parser = argparse.ArgumentParser()
    for flag in ("--config-dir", "--config-name"):
        parser.add_argument(flag, required=True)
    parser.add_argument("-m", action="store_true", dest="many")
    parser.add_argument("overrides", nargs="*")
    given = parser.parse_intermixed_args(words)
    pairs = [override.partition("=") for override in given.overrides]
    choices = [[f"{key}={one}" for one in value.split(",")] for key, _, value in pairs]
    assert given.many or all(len(each) == 1 for each in choices)
    for overrides in itertools.product(*choices):
        GlobalHydra.instance().clear()
        ConfigStore.instance().store(given.config_name, FairseqConfig)  # as fairseq-hydra-train
        with initialize_config_dir(str(readme.ROOT / given.config_dir), version_base="1.3"):
            cfg = compose(given.config_name, overrides=list(overrides))
        OmegaConf.set_struct(cfg, False)
        add_defaults(cfg)
        complete_model(cfg)
        refusals.check(cfg)


def our_training(words: list[str]) -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    train.add_arguments(parser)
    given, rest = parser.parse_known_args(words)
    if given.deepspeed_config is not None:
        zero_config.read(given.deepspeed_config)
    if "--config-dir" in rest:
        fairseq_hydra_train(rest)
    elif rest and "-m" not in rest:  # which is Hydra's, with its configuration left to the reader
        fairseq_train(rest)


def python(words: list[str]) -> None:
    if "-m" in words[:1] and len(words) > 1:
        assert find_spec(words[1]), words[1]
        if words[1] == "fairseq_posenc.train":
            our_training(words[2:])


def torchrun(words: list[str]) -> None:
    python(words[words.index("-m") :] if "-m" in words else [])


def srun(words: list[str]) -> None:
    if "python" in words:
        python(words[words.index("python") + 1 :])


def bash(words: list[str]) -> None:
    if words[0].endswith("pdsh.sh"):
        our_training(words[2:])


def pip(words: list[str]) -> None:
    """Extras are those of setup.py."""
    tree = ast.parse((readme.ROOT / "setup.py").read_text("utf-8"))
    (extras,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "EXTRAS")
    for named in re.findall(r"\.\[([\w,]+)\]", " ".join(words)):
        assert set(named.split(",")) <= ast.literal_eval(extras).keys()


PARSERS = {
    "fairseq-posenc": fairseq_posenc,
    "fairseq-train": fairseq_train,
    "fairseq-hydra-train": fairseq_hydra_train,
    "python": python,
    "torchrun": torchrun,
    "srun": srun,
    "bash": bash,
    "pip": pip,
}


def _id(value: object) -> str:
    return " ".join(value.words)[:60] if isinstance(value, readme.Command) else str(value)


@pytest.mark.parametrize(("file", "command"), COMMANDS, ids=_id)
def test_a_command(file, command, parsing):
    for word in command.words:
        name = word.partition("=")[2] if word.startswith("-") else word
        if name.removeprefix("./").startswith(OURS):
            assert (readme.ROOT / name).exists(), name
    parsing(command.whole)
    PARSERS.get(command.words[0], lambda words: None)(command.words[1:])


def test_the_readme_is_short():
    assert len((readme.ROOT / "README.md").read_text("utf-8").splitlines()) <= 180


def test_they_are_many():
    """That is, found."""
    assert len(COMMANDS) > 40
    assert {command.words[0] for _, command in COMMANDS} >= {"fairseq-posenc", "fairseq-train", "fairseq-hydra-train", "torchrun"}


@pytest.mark.parametrize("file", readme.DOCUMENTS)
def test_links_lead_somewhere(file):
    folder = (readme.ROOT / file).parent
    text = (readme.ROOT / file).read_text("utf-8")
    links = re.findall(r"\]\(([^)#\s]+)\)", text)
    assert [link for link in links if "://" not in link and not (folder / link).exists()] == []


@pytest.mark.parametrize("file", readme.DOCUMENTS)
def test_files_of_this_repository_that_a_document_names_are_there(file):
    """Names in the text, between backticks; those of other folders begin otherwise, and a * stands for several files."""
    text = re.sub(r"^```.*?^```", "", (readme.ROOT / file).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = re.findall(rf"`((?:{'|'.join(OURS)})[\w./*-]*)(?:::\w+)?`", text)
    assert [name for name in named if not [*readme.ROOT.glob(name.rstrip("/"))]] == []


def test_every_promise_names_its_test():
    """docs/reliability.md: the files of tests are there, and the tests are in them."""
    text = (readme.ROOT / "docs" / "reliability.md").read_text("utf-8")
    file = Path()
    for name, test in re.findall(r"`((?:tests|…)[\w./]*)(?:::(\w+))?`", text):
        if name != "…":  # the same file again; …/ is its folder
            file = file.parent / name.removeprefix("…/") if name.startswith("…") else readme.ROOT / name
        assert file.exists(), name
        assert not test or f"def {test}(" in file.read_text("utf-8"), test


@pytest.mark.parametrize("script", ["compare", "gpu_compare"])
def test_a_script_without_arguments_shows_its_usage(script):
    done = subprocess.run(["bash", readme.ROOT / "scripts" / f"{script}.sh"], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"bash scripts/{script}.sh" in done.stderr
