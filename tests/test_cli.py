"""The dispatcher: a table of commands, lazy imports, errors as a line."""

import shlex
import subprocess
import sys

import pytest
from commands import environment

from fairseq_posenc import __version__, cli


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["--help"])
    assert exit.value.code == 0
    listed = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert f"  {name} " in listed
        assert command.help in listed


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(capsys, name):
    with pytest.raises(SystemExit) as exit:
        cli.main([name, "--help"])
    assert exit.value.code == 0
    assert f"usage: fairseq-posenc {name}" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(["--version"])
    assert exit.value.code == 0
    assert __version__ in capsys.readouterr().out


def test_unknown_command_names_the_known_ones(capsys):
    assert cli.main(["prepair"]) == 2
    assert (
        capsys.readouterr().err
        == "fairseq-posenc prepair: there is no command prepair: did you mean prepare or pairs or report? --help lists all\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan t5 --gpu 3", "there is no flag --gpu: did you mean --gpus or --gpu-memory? --help lists all"),
        ("bench --shemes tisa", "there is no flag --shemes: did you mean --schemes or --peers? --help lists all"),
        (
            "grow run --max-positons 9 --out a.pt",
            "there is no flag --max-positons: did you mean --max-positions? --help lists all",
        ),
        ("grow run --max-positions", "--max-positions: expected one argument"),
        ("grow run --max-positions 9", "the following arguments are required: --out"),
        ("extrapolate nowhere.pt --out a", "CHECKPOINT: there is no file or folder nowhere.pt"),
        ("glue --checkpoint run --data nowhere --out a", "--data: there is no file or folder nowhere"),
        ("squad --checkpoint nowhere --data . --version 1.1 --out a", "--checkpoint: there is no file or folder nowhere"),
        (
            "export-hf . --out a",
            "CHECKPOINT: the folder . has no checkpoint, such as checkpoint_best.pt, and no such checkpoints/",
        ),
        ("compare nowhere.yaml --data . --out a", "PLAN: there is no file or folder nowhere.yaml"),
    ],
)
def test_what_is_wrong_with_flags_is_one_line_before_anything_slow(words, said, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint_best.pt").touch()
    code = (
        f"import sys; from fairseq_posenc import cli; status = cli.main({words.split()})\n"
        f"assert not {HEAVY} & {{*sys.modules}}; sys.exit(status)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"fairseq-posenc {words.split()[0]}: {said}\n")


def test_a_misspelt_option_of_a_scheme(capsys, tmp_path):
    (tmp_path / "checkpoint_best.pt").touch()
    assert cli.main(["extrapolate", str(tmp_path), "--rope-typ", "yarn", "--out", str(tmp_path / "out")]) == 2
    assert "there is no flag --rope-typ: did you mean --rope-type? --help" in capsys.readouterr().err


def test_bad_input_is_one_line_unless_the_traceback_is_asked_for(capsys, tmp_path):
    command = ["prepare", str(tmp_path / "missing.txt"), "--out", str(tmp_path / "out")]
    assert cli.main(command) == 2
    assert capsys.readouterr().err == f"fairseq-posenc prepare: {tmp_path}/missing.txt: no such file\n"
    with pytest.raises(FileNotFoundError):
        cli.main(["--traceback", *command])


HEAVY = {"torch", "fairseq", "transformers", "deepspeed", "datasets", "tokenizers", "matplotlib", "sklearn", "scipy"}


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in cli.COMMANDS)], ids=lambda words: words[0])
def test_help_imports_nothing_heavy(arguments):
    """So that it is there at once."""
    code = (
        f"import sys; from fairseq_posenc import cli\n"
        f"try: cli.main({arguments})\n"
        f"except SystemExit: pass\n"
        f"print(sorted({HEAVY} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("usage: fairseq-posenc")
    assert ran.stdout.splitlines()[-1] == "[]"


COMMAND = """
import dataclasses, logging, os, subprocess, sys, types
from fairseq_posenc import cli
from fairseq_posenc.base import commands

def main(options):
{body}
Options = dataclasses.make_dataclass("Options", ())
sys.modules["fairseq_posenc.made_up"] = types.SimpleNamespace(Options=Options, main=main, __doc__="")
cli.COMMANDS["bench"] = cli.Command("made_up", "")
status = cli.main(["bench"])
{afterwards}
sys.exit(status)
"""
NOISE = """
    print("a print")
    logging.StreamHandler(sys.stdout).emit(logging.makeLogRecord({"msg": "a log"}))
    os.write(1, b"a library in C\\n")
    subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
    commands.show("the résumé")
    print("another print")
"""


def test_stdout_gets_results_and_nothing_else():
    """Whatever libraries print there, in this process or a child, is on stderr; afterwards all is as it was."""
    code = COMMAND.format(body=NOISE, afterwards='print("afterwards")')
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert ran.stdout == "the résumé\nafterwards\n"
    assert sorted(ran.stderr.splitlines()) == ["a child", "a library in C", "a log", "a print", "another print"]


@pytest.mark.parametrize(("arguments", "escape"), [(["schemes", "tisa"], rb"\u221a"), (["prepare", "--help"], rb"\u2026")])
def test_a_terminal_of_few_characters_gets_escapes(arguments, escape):
    command = [sys.executable, "-m", "fairseq_posenc.cli", *arguments]
    ran = subprocess.run(command, env=environment(PYTHONIOENCODING="ascii"), capture_output=True, check=True)
    assert escape in ran.stdout
    assert ran.stdout.isascii()


def test_results_that_nobody_reads_any_more_are_no_error():
    code = COMMAND.format(body="    while True: commands.show('a result')", afterwards="")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "a result\n"
        running.stdout.close()
        assert running.stderr.read() == ""


WITHOUT_FAIRSEQ = """
import sys
sys.modules.update(dict.fromkeys(("fairseq", "fairseq_cli", "hydra", "omegaconf")))
from fairseq_posenc import cli
for command in ("bench", "plan bin", "extrapolate model.pt --data bin --out losses"):
    assert cli.main(command.split()) == 2, command
"""


def test_a_command_that_lacks_fairseq_says_so_in_one_sentence(tmp_path):
    (tmp_path / "model.pt").touch()
    (tmp_path / "bin").mkdir()
    ran = subprocess.run([sys.executable, "-c", WITHOUT_FAIRSEQ], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = ran.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"fairseq-posenc {name}" for name in ("bench", "plan", "extrapolate")]
    for line in lines:
        assert "needs fairseq 0.12.2, which is not installed: in a clone, run scripts/setup_venv.sh, or pip install" in line


EXTRAS = {"transformers", "tokenizers", "safetensors", "accelerate", "matplotlib", "sklearn", "scipy", "statsmodels"}


@pytest.mark.parametrize(
    ("command", "packages"),
    [
        ("compare plan.yaml --data bin --out out", "matplotlib 'scipy>=1.15' statsmodels"),
        ("tasks --out out", "matplotlib 'scipy>=1.15' statsmodels"),
        ("glue --data glue --checkpoint model.pt --out out", "scikit-learn 'scipy>=1.15'"),
        ("analyze model.pt --text text.txt --out out", "matplotlib scikit-learn 'scipy>=1.15'"),
        (
            "init-tisa roberta --kernels 5 --out model.pt",
            "'transformers<6,>=4.57' safetensors accelerate scikit-learn 'scipy>=1.15'",
        ),
        ("export-hf model.pt --out out", "'transformers<6,>=4.57' safetensors accelerate"),
        ("import-hf roberta --out model.pt", "'transformers<6,>=4.57' safetensors accelerate"),
        ("schemes tisa --plot picture.png", "matplotlib"),
    ],
)
def test_all_missing_packages_are_named_at_once(command, packages, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("plan.yaml", "bin", "glue", "model.pt", "text.txt"):
        (tmp_path / name).touch()
    for name in EXTRAS:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("fairseq_posenc.huggingface")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(command.split()) == 2
    said, _, given = capsys.readouterr().err.strip().rpartition(" not installed: pip install ")
    assert said.endswith((", which is", ", which are"))
    assert sorted(shlex.split(given)) == sorted(shlex.split(packages))
