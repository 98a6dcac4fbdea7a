"""A scheme of somebody's own, by --user-dir: its flags, its configuration, its help."""

from pathlib import Path

import fairseq
import pytest
from cases import thorough_but
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass import initialize
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from fairseq_posenc.cli import main
from fairseq_posenc.core.schemes import REGISTRY


class Task:
    source_dictionary = Dictionary()
    cfg = OmegaConf.create({"tokens_per_sample": 24})


def power(config) -> float:
    """The scheme's option in a model of that configuration."""
    return build_model(config, Task()).encoder.sentence_encoder.positions.decay.options.power


def test_flags(my_schemes):
    command = ["data", "--user-dir", str(my_schemes), "--task", "masked_lm", "--arch", "roberta_posenc_tiny"]
    flags = ["--positions", "absolute+decay", "--decay-power", "0.5"]
    args = options.parse_args_and_arch(options.get_training_parser("masked_lm"), [*command, *flags])
    assert power(convert_namespace_to_omegaconf(args).model) == 0.5
    args.arch = "roberta_posenc"
    assert power(convert_namespace_to_omegaconf(args).model) == 0.5


def test_help(my_schemes, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fairseq-train", "--user-dir", str(my_schemes), "--help"])
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(options.get_training_parser())
    assert "power p of the distance (default: 1.0)" in " ".join(capsys.readouterr().out.split())


def test_hydra_on_the_command_line(my_schemes, monkeypatch):
    overrides = [f"common.user_dir='{my_schemes}'", "model=roberta_posenc_tiny", "model.positions=decay", "model.decay_power=0.5"]
    monkeypatch.setattr("sys.argv", ["fairseq-hydra-train", *overrides])
    initialize.hydra_init("config")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(Path(fairseq.__file__).parent / "config"), version_base="1.3"):
        config = compose("config", overrides=overrides)
    assert power(config.model) == 0.5


@pytest.mark.parametrize("arch", thorough_but(["roberta_posenc_tiny"], ["roberta_posenc_tiny", "roberta_posenc"]))
def test_hydra_in_a_file(my_schemes, arch, capsys):
    def config(**option):
        model = {"_name": arch, "positions": "decay", **option}
        return OmegaConf.create({"common": {"user_dir": str(my_schemes)}, "model": model})

    initialize.add_defaults(complete := config(decay_power=0.5))
    assert power(complete.model) == 0.5
    with pytest.raises(SystemExit):
        initialize.add_defaults(config(decay_pover=0.5))
    assert "Key 'decay_pover' not in" in capsys.readouterr().err


def test_our_own_commands(my_schemes, capsys):
    assert "decay" not in REGISTRY
    assert main(["--user-dir", str(my_schemes), "schemes", "decay"]) == 0
    card = capsys.readouterr().out
    assert "no architecture of its own: --positions decay" in card
    assert "--decay-power" in card
    assert main(["--user-dir", str(my_schemes / "nowhere"), "schemes"]) == 2
    assert f"{my_schemes / 'nowhere'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("power: list = option('p', None)", "the option decay_power must be one of int, float, str"),
        ("power: float = 1.0", "the option decay_power has no help"),
    ],
)
def test_an_option_that_cannot_be_a_flag(my_schemes, field, message, capsys):
    file = my_schemes / "__init__.py"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(f"        {field}" if line.startswith("        power:") else line for line in lines))
    assert main(["--user-dir", str(my_schemes), "schemes", "decay"]) == 2
    assert message in capsys.readouterr().err
    assert "decay" not in REGISTRY


def test_a_scheme_without_options(my_schemes, capsys):
    code = (my_schemes / "__init__.py").read_text()
    options = code[code.index("    class Options") : code.index("    def __init__")]
    (my_schemes / "__init__.py").write_text(code.replace(options, "").replace("self.options.power", "2"))
    assert main(["--user-dir", str(my_schemes), "schemes", "decay"]) == 0
    said = capsys.readouterr().out
    assert "--positions decay" in said
    assert "--decay-power" not in said
