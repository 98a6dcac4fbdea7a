"""Translation and language models under ZeRO: fairseq's curve, also from halfway on, and a plain checkpoint to use afterwards."""

import re

import pytest
from training_runs import OPTIONS, SCRIPTS, UPDATES, assert_same_curve, call, launcher, needs_deepspeed

pytestmark = [needs_deepspeed, pytest.mark.slow]
STAGES = [1, 2, 3]
COMMON = (*OPTIONS[: OPTIONS.index("--task")], *OPTIONS[OPTIONS.index("--dropout") :])
SIZE = {"layers": 2, "embed-dim": 32, "ffn-embed-dim": 64, "attention-heads": 2}
ENCODER, DECODER = ([f"--{side}-{name}={size}" for name, size in SIZE.items()] for side in ("encoder", "decoder"))
TRANSLATION = (
    *(*COMMON, "--task", "translation", "--arch", "transformer_shaw_tiny", "--max-relative-position", 4),
    *(*ENCODER, "--decoder-layers", 2, "--share-all-embeddings", "--max-tokens", 120),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1),
)
LANGUAGE_MODEL = (
    *(*COMMON, "--task", "language_modeling", "--arch", "transformer_lm_alibi_tiny", *DECODER),
    *("--tokens-per-sample", 32, "--batch-size", 4),
)


@pytest.fixture(scope="module")
def two_languages(english_data_bin, tmp_path_factory):
    """English, and the same with the words of each line in the opposite order."""
    folder = tmp_path_factory.mktemp("two-languages")
    for split in ("train", "valid"):
        lines = (english_data_bin.parent / f"{split}.txt").read_text("utf-8").splitlines()
        (folder / f"{split}.en").write_text("\n".join(lines), "utf-8")
        (folder / f"{split}.ne").write_text("\n".join(" ".join(reversed(line.split())) for line in lines), "utf-8")
    texts = ["--trainpref", folder / "train", "--validpref", folder / "valid", "--joined-dictionary", "--nwordssrc", 1000]
    done = call(SCRIPTS / "fairseq-preprocess", "-s", "en", "-t", "ne", *texts, "--destdir", folder / "two")
    assert done.returncode == 0, done.stdout
    return folder / "two"


@pytest.fixture(scope="module")
def translation(train, two_languages):
    return train("--no-save", options=TRANSLATION, data=two_languages)


@pytest.fixture(scope="module")
def language_model(train):
    return train("--no-save", options=LANGUAGE_MODEL)


@pytest.mark.parametrize("stage", STAGES)
def test_a_translation_model(stage, translation, train, two_languages, run):
    shared = {"launch": launcher(), "options": TRANSLATION, "data": two_languages}
    folder = as_fairseqs(translation, train, stage, shared)
    files = ["--path", folder / "consolidated.pt", "--gen-subset", "valid", "--max-tokens", "400"]
    generated = run("fairseq-generate", two_languages, *files, "--beam", "2", "--cpu")
    assert "Translated 40 sentences" in generated.stdout


@pytest.mark.parametrize("stage", STAGES)
def test_a_language_model(stage, language_model, train, english_data_bin, run):
    folder = as_fairseqs(language_model, train, stage, {"launch": launcher(), "options": LANGUAGE_MODEL})
    files = ["--path", folder / "consolidated.pt", "--gen-subset", "valid", "--tokens-per-sample", "64"]
    evaluated = run("fairseq-eval-lm", english_data_bin, *files, "--cpu")
    (loss,) = re.findall(r"Loss \(base 2\): ([\d.]+)", evaluated.stdout)
    assert float(loss) < 10  # of log2(1000)


def as_fairseqs(expected, train, stage, shared):
    """Train with a checkpoint halfway, and again from there; returns the folder of the whole run."""
    flags = ("--deepspeed-config", f"zero{stage}")
    whole = train(*flags, "--save-interval-updates", UPDATES // 2, **shared)
    assert_same_curve(whole, expected)
    (halfway,) = whole.save_dir.glob(f"checkpoint_*_{UPDATES // 2}.pt")
    assert_same_curve(train(*flags, "--restore-file", halfway, "--no-save", **shared), expected, start=UPDATES // 2)
    return whole.save_dir
