"""The scheme of README.md in a few lines, as a package of somebody's own, goes through every command."""

import subprocess
import sys
from argparse import Namespace
from importlib.util import find_spec

import pytest
import readme
import torch
import yaml
from glue_files import write_task
from squad_files import write_squad

from fairseq_posenc import cli

SIZES = "--encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2"
TRAINING = f"""--task masked_lm --criterion masked_lm --tokens-per-sample 32 --cpu --optimizer adam --lr 1e-3 --max-update 2
    --batch-size 4 --num-workers 0 --no-epoch-checkpoints --arch roberta_posenc_tiny --positions absolute+slope {SIZES}"""
PLAN = {
    "schemes": {"none": None, "slope": None},
    "budget": {"updates": 2},
    "learning_rates": [1e-3],
    "seeds": 1,
    "reference": "none",
    "tokens_per_sample": 16,
    "batch_size": 4,
    "valid_tokens": 1024,
    "train": f"{SIZES} --num-workers 0",
    "benchmarks": {"glue": "--data GLUE --tasks RTE --lrs 1e-3 --seeds 1 --epochs 1"},
}
COMMANDS = {
    "prepare": "text.txt --document-per-line --out prepared --workers 1",
    "schemes": "slope",
    "check": "slope",
    "bench": "--schemes slope --layers 1 --size tiny --tokens 16 --repeats 1",
    "tasks": "--out tasks --tasks copy --schemes absolute+slope --updates 1",
    "glue": "--data glue --checkpoint run --tasks RTE,SST-2 --lrs 1e-3 --seeds 1 --epochs 1 --jobs 2 --out tuned",
    "squad": "--data squad --version 1.1 --checkpoint run --lrs 1e-3 --epochs 1 --max-question-length 8 --out spans",
    "compare": "plan.yaml --data BIN --out compared",
    "pairs": "run --data pairs.csv --out paired",
    "report": "tuned",
    "export-hf": "run --out exported",
    "import-hf": "exported --positions slope --out imported/model.pt",
    "init-tisa": "run --kernels 1 --out fitted/model.pt",
    "consolidate": "sharded --out consolidated.pt",
    "plan": "slope --model encoder_layers=2 encoder_embed_dim=32 encoder_attention_heads=2 --tokens-per-sample 16",
    "analyze": "run --out analysis --length 16",
    "extrapolate": "run --lengths 16,32 --out longer",
    "grow": "run --max-positions 64 --out grown.pt",
}
REFUSED = {"init-tisa": "TISA is fitted to learned absolute positions"}
SLOW = {"compare"}
EXTRAS = {"compare": "statsmodels", "consolidate": "deepspeed", "export-hf": "transformers", "import-hf": "transformers"}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_schemes").mkdir()
    (folder / "my_schemes" / "__init__.py").write_text(readme.blocks("### A scheme in a few lines", "python")[0])
    return folder / "my_schemes"


@pytest.fixture(scope="module")
def folder(package, world, run):
    """Where the package is, with what the commands read."""
    folder = package.parent
    (folder / "text.txt").write_text((world.text / "train.txt").read_text())
    (folder / "pairs.csv").write_text("sentence_good,sentence_bad\nred box,box red\n")
    for task in ("RTE", "SST-2"):
        write_task(folder / "glue", task, rows=8)
    write_squad(folder / "squad", "1.1", paragraphs=3)
    (folder / "plan.yaml").write_text(yaml.safe_dump(PLAN).replace("GLUE", str(folder / "glue")))
    training = [world.english, "--user-dir", "my_schemes", *TRAINING.split()]
    run("fairseq-train", *training, "--save-dir", "run", cwd=folder)
    return folder


def made_before(name, folder, world, run):
    """What other commands make for this one, if they have not been tested before it."""
    before = {"report": "glue", "import-hf": "export-hf"}.get(name)
    if before and not (folder / COMMANDS[before].split()[-1]).exists():
        run("fairseq-posenc", "--user-dir", "my_schemes", before, *words(before, world), cwd=folder)
    if name == "consolidate":
        sharded = [*TRAINING.split(), "--deepspeed-config", "zero1", "--save-dir", "sharded", "--user-dir", "my_schemes"]
        run("python", "-m", "fairseq_posenc.train", world.english, *sharded, cwd=folder)


def words(name, world):
    return [str(world.english) if word == "BIN" else word for word in COMMANDS[name].split()]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in cli.COMMANDS])
def test_every_command(name, folder, world, run):
    if (extra := EXTRAS.get(name)) and not find_spec(extra):
        pytest.skip(f"{extra} is not installed")
    made_before(name, folder, world, run)
    ran = run("fairseq-posenc", "--user-dir", "my_schemes", name, *words(name, world), cwd=folder, check=name not in REFUSED)
    assert REFUSED.get(name, "") in ran.stdout
    assert "failed" not in ran.stdout
    assert "Traceback" not in ran.stdout


@pytest.mark.parametrize("name", ["my_schemes/__init__.py", "json", "my.schemes"])
def test_what_is_no_package_of_its_own_is_refused(name, folder, run):
    if not (folder / name).exists():
        (folder / name).mkdir()
    ran = run("fairseq-posenc", "--user-dir", name, "schemes", cwd=folder, check=False)
    assert ran.returncode == 2
    assert f"--user-dir {name}: " in ran.stdout.splitlines()[-1]


def test_after_the_name_of_the_command(folder, run):
    assert "λ_h |j-i|" in run("fairseq-posenc", "schemes", "slope", "--user-dir", "my_schemes", cwd=folder).stdout


WITHOUT_FAIRSEQ = """
import sys
sys.modules.update(dict.fromkeys(("fairseq", "fairseq_cli", "hydra", "omegaconf")))
from fairseq_posenc import cli
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("name", "said"), [("my_schemes", ""), ("other", "--user-dir other: there is no such folder")])
def test_without_fairseq(name, said, folder):
    arguments = ["--user-dir", name, "pairs", "run", "--data", "pairs.csv", "--out", "without"]
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_FAIRSEQ, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2 * bool(said), ran.stderr
    assert said in ran.stderr


@pytest.mark.parametrize(
    "content", [{"args": Namespace(arch="roberta_base")}, {"cfg": {"model": {"_name": "roberta_base"}, "task": {}}}]
)
def test_what_needs_fairseq_says_so(content, tmp_path):
    torch.save({"model": {"w": torch.zeros(1)}, **content}, tmp_path / "old.pt")
    arguments = [sys.executable, "-c", WITHOUT_FAIRSEQ, "export-hf", tmp_path / "old.pt", "--out", tmp_path / "out"]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "needs fairseq" in ran.stderr


@pytest.mark.parametrize("name", ["export-hf", "extrapolate", "grow", "squad"])
def test_a_checkpoint_names_the_package_that_is_missing(name, folder, world, run):
    ran = run("fairseq-posenc", name, *words(name, world)[:-1], "unwritten.pt", cwd=folder, check=False)
    assert ran.returncode == 2
    message = ran.stdout.splitlines()[-1]
    assert "--user-dir my_schemes was given when run/checkpoint_best.pt was trained, and is missing now: " in message
    assert "unknown positional encoding 'slope'" in message


def test_a_program_of_fairseq_names_the_flag(folder, world, run):
    ran = run("fairseq-train", world.english, *TRAINING.split(), "--save-dir", "other", cwd=folder, check=False)
    assert ran.returncode == 2
    assert "your own after --user-dir" in ran.stdout.splitlines()[-1]
