"""Small checkpoints that are as they should be, for tests to break."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq  # noqa: F401 - registers the plugin
import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from glue_files import write_task
from untrained import plain

from fairseq_posenc.cli import main
from fairseq_posenc.plugin.checkpoint.checkpoint_file import untrained, write

SIZES = {"encoder-layers": 2, "encoder-embed-dim": 8, "encoder-ffn-embed-dim": 8, "encoder-attention-heads": 2}


@pytest.fixture(scope="session")
def data_bin(world) -> Path:
    """dict.txt, sentencepiece.model and a little text."""
    return world.english


@pytest.fixture(scope="session")
def contents(data_bin, world) -> Callable[[str], dict[str, Any]]:
    """``contents(arch)``: what a checkpoint of that architecture holds, as fairseq's trainer writes it."""
    made: dict[str, dict[str, Any]] = {}

    def contents(arch: str) -> dict[str, Any]:
        if arch not in made:
            sizes = [f"--{name}={value}" for name, value in SIZES.items()]
            flags = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "16", "--arch", arch, *sizes]
            parser = options.get_training_parser()
            cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(data_bin), *flags]))
            checkpoint = untrained(plain(cfg), tasks.setup_task(cfg.task).build_model(cfg.model))
            path = world.made(f"hostile-{arch}", lambda folder: write(folder / "model.pt", checkpoint)) / "model.pt"
            made[arch] = torch.load(path, weights_only=False)
        return copy.deepcopy(made[arch])

    return contents


@pytest.fixture(scope="session")
def rte(tmp_path_factory) -> Path:
    """GLUE's folder with one task."""
    folder = tmp_path_factory.mktemp("glue")
    write_task(folder, "RTE", 4)
    return folder


@pytest.fixture
def commands(data_bin, rte, tmp_path) -> dict[str, Callable[[Path], list[str]]]:
    """By name, what follows a command that reads the given checkpoint."""
    out = str(tmp_path / "out")
    finetuning = ["--data-bin", str(data_bin), "--out", out, "--checkpoint"]

    for name in ("train", "dev"):
        (tmp_path / f"{name}-v1.1.json").touch()
    squad = ["--data", str(tmp_path), "--version", "1.1", "--max-question-length", "4"]

    def released(path: Path) -> list[str]:
        """A folder as fairseq releases its models."""
        folder = tmp_path / "released"
        folder.mkdir()
        (folder / "model.pt").symlink_to(path)
        (folder / "dict.txt").symlink_to(data_bin / "dict.txt")
        return [str(folder), "--out", f"{out}/model.pt"]

    return {
        "glue": lambda path: ["--data", str(rte), "--tasks", "RTE", *finetuning, str(path)],
        "squad": lambda path: [*squad, *finetuning, str(path)],
        "export-hf": lambda path: [str(path), "--data", str(data_bin), "--out", out],
        "analyze": lambda path: [str(path), "--out", out],
        "consolidate": lambda path: [str(path), "--out", f"{out}.pt"],
        "import-hf": released,
    }


@pytest.fixture
def refusal(capsys, tmp_path) -> Callable[..., str]:
    """``refusal(command, *arguments)``: the sentence with which the command refuses; that nothing is made is seen to."""

    def refusal(command: str, *arguments: str | Path) -> str:
        status = main([command, *map(str, arguments)])
        said = capsys.readouterr().err
        message = said.splitlines()[-1]
        assert status == 2, said
        assert message.startswith(f"fairseq-posenc {command}: "), said
        assert "Traceback" not in said
        written = {path.name for path in [*tmp_path.glob("out*/*"), *tmp_path.glob("out.*")]}
        assert {name for name in written if not name.startswith(".lock")} <= {
            "manifest.json",
            "fairseq_posenc.json",
        }  # what prepare begins with
        return message

    return refusal
