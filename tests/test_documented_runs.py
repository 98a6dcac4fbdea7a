"""The documents' commands and code, run as they stand on toy data: only sizes and the number of updates are made small.

More of README.md runs in finetuning/test_hub.py, test_recipe.py and test_quickstart.py.
"""

import shlex
from pathlib import Path

import pytest
import readme

from fairseq_posenc.cli import main

SMALL = """
    --arch roberta_tisa_tiny --tokens-per-sample 32 --max-update 2 --total-num-update 2 --warmup-updates 1 --cpu --num-workers 0
""".split()  # noqa: SIM905
SMALL_HYDRA = """
    model._name=roberta_tisa_tiny common.cpu=true common.bf16=false dataset.num_workers=0 dataset.batch_size=4
    task.tokens_per_sample=32 optimization.max_update=2 optimization.update_freq=[1] common.tensorboard_logdir=null
""".split()  # noqa: SIM905


def shown(*beginning: str, file: str = "README.md") -> list[str]:
    """The words of the first whole command that begins so."""
    known = [command.words for command in readme.commands_of(file) if command.whole]
    return next(words for words in known if words[: len(beginning)] == list(beginning))


def our_command(words: list[str], **values: str) -> None:
    """Run one of ours in this process; ``out="elsewhere"`` replaces the value of a flag."""
    for name, value in values.items():
        words[words.index(f"--{name.replace('_', '-')}") + 1] = value
    assert words[0] == "fairseq-posenc"
    assert main(words[1:]) == 0, shlex.join(words)


@pytest.fixture(scope="module")
def folder(toy_text, tmp_path_factory, run) -> Path:
    """A folder in which README.md's "Pretraining on your own text" has been followed: data-bin and checkpoints."""
    folder = tmp_path_factory.mktemp("followed")
    (folder / "corpus").mkdir()
    sentences = (toy_text / "train.txt").read_text().splitlines()
    (folder / "corpus" / "text.txt").write_text("\n\n".join(sentences))  # a document each
    (folder / "examples").symlink_to(readme.ROOT / "examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        our_command(shown("fairseq-posenc", "prepare"))
    run(*shown("fairseq-train", "data-bin"), *SMALL, cwd=folder)
    return folder


def test_from_text_to_a_model(folder):
    assert (folder / "data-bin" / "sentencepiece.model").is_file()
    assert (folder / "checkpoints" / "checkpoint_best.pt").is_file()
    assert (folder / "tensorboard").is_dir()


def test_functions_of_the_offset(folder, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[plots]'")
    monkeypatch.chdir(folder)
    assert main(["analyze", "checkpoints", "--out", "functions"]) == 0
    assert (folder / "functions" / "report.html").stat().st_size > 1000


@pytest.mark.slow
def test_hydra(folder, run):
    run(
        *shown("fairseq-hydra-train", file="examples/pretraining/README.md"),
        *SMALL_HYDRA,
        "checkpoint.save_dir=by-hydra",
        cwd=folder,
    )
    assert (folder / "by-hydra" / "checkpoint_last.pt").is_file()


@pytest.mark.slow
def test_to_hugging_face_and_back(folder, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[hf]'")
    monkeypatch.chdir(folder)
    document = "examples/huggingface/README.md"
    our_command(shown("fairseq-posenc", "export-hf", file=document))
    names = {}
    for block in readme.blocks("## Export", "python", file=document):
        exec(block, names)  # noqa: S102 - the document's
    assert sum(parameter.numel() for parameter in names["model"].parameters()) > 0
    words = shown("fairseq-posenc", "import-hf", file=document)
    words[words.index("import-hf") + 1] = "my-model"  # in place of a download
    our_command(words)
    our_command(shown("fairseq-posenc", "prepare", "corpus/", "--vocabulary", file=document), out="data-bin-again")
    assert (folder / "data-bin-again" / "dict.txt").read_bytes() == (folder / "data-bin" / "dict.txt").read_bytes()
