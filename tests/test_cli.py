"""The dispatcher: a table of commands, lazy imports, errors as a line."""

import subprocess
import sys

import pytest

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
    with pytest.raises(SystemExit) as exit:
        cli.main(["prepair"])
    assert exit.value.code == 2
    assert "prepare" in capsys.readouterr().err


def test_bad_input_is_one_line_unless_the_traceback_is_asked_for(capsys, tmp_path):
    command = ["prepare", str(tmp_path / "missing.txt"), "--out", str(tmp_path / "out")]
    assert cli.main(command) == 2
    assert capsys.readouterr().err == f"fairseq-posenc prepare: {tmp_path}/missing.txt: no such file\n"
    with pytest.raises(FileNotFoundError):
        cli.main(["--traceback", *command])


def test_help_imports_nothing_heavy():
    """Neither a command's module nor what it needs, so that the list is there at once."""
    code = (
        "import sys; from fairseq_posenc import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'fairseq', 'numpy', 'sentencepiece', 'matplotlib'} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_missing_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in [name for name in sys.modules if name.startswith("fairseq_posenc.huggingface")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(["import-hf", "--help"]) == 2
    assert "needs transformers, which is not installed: pip install -e '.[hf]'" in capsys.readouterr().err
