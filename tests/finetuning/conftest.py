"""A small vocabulary and checkpoints of small models, which the fine-tuning tests share."""

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path

import fairseq  # noqa: F401 - registers the plugin
import pytest
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_posenc.data import prepare
from fairseq_posenc.finetuning import fairseq_run

WORDS = (
    *("red", "green", "blue", "small", "large", "round", "flat", "wooden", "iron", "old", "new"),
    *("ball", "box", "cup", "door", "lamp", "chair", "stone", "tree", "bird", "fish"),
)


def sentences(count: int, seed: int, low: int = 3, high: int = 8) -> list[str]:
    """Sentences of words drawn at random."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(low, high))).capitalize() + "." for _ in range(count)]


def make_data_bin(folder: Path, vocab_size: int = 90, ending: str = "Über café “x” 1,250 €?") -> Path:
    """A vocabulary with a few lines of text, as ``fairseq-posenc prepare`` leaves them."""
    folder.mkdir(parents=True)
    (folder / "text.txt").write_text("\n".join(f"{line} {ending}\n" for line in sentences(150, seed=0)))
    flags = ["--out", str(folder / "data-bin"), "--vocab-size", str(vocab_size), "--valid-fraction", "0.1"]
    parser = argparse.ArgumentParser()
    prepare.add_arguments(parser)
    prepare.main(parser.parse_args([str(folder / "text.txt"), *flags, "--workers", "1"]))
    return folder / "data-bin"


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory) -> Path:
    """dict.txt, sentencepiece.model and a little text."""
    return make_data_bin(tmp_path_factory.mktemp("vocabulary") / "a")


@pytest.fixture(scope="session")
def gpt2_bin(tmp_path_factory) -> Path:
    """A byte-level vocabulary with the two merges that make ``red`` and `` ball`` partly one piece."""
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    folder = tmp_path_factory.mktemp("gpt2")
    pieces = [*bytes_to_unicode().values(), "re", "red"]
    (folder / "encoder.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\nr e\nre d\n", encoding="utf-8")
    dictionary = Dictionary()
    for number in range(len(pieces)):
        dictionary.add_symbol(str(number))
    dictionary.save(str(folder / "dict.txt"))
    return folder


@pytest.fixture(scope="session")
def wordpiece_bin(tmp_path_factory) -> Path:
    """BERT's cutting of words: letters, and letters inside a word, in lower case and without accents."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[hf]'")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["red", "ball", *letters, *(f"##{letter}" for letter in letters), *"“”,.€𝔘²"]
    model = tokenizers.models.WordPiece({piece: i for i, piece in enumerate(["[UNK]", *pieces])}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(4)
    folder = tmp_path_factory.mktemp("wordpiece")
    tokenizer.save(str(folder / "tokenizer.json"))
    dictionary = Dictionary()
    for piece in reversed(pieces):
        dictionary.add_symbol(piece)
    dictionary.save(str(folder / "dict.txt"))
    return folder


@pytest.fixture(scope="session")
def pretrain(data_bin, tmp_path_factory) -> Callable[..., Path]:
    """``pretrain(arch, *flags)``: a checkpoint of one update of fairseq's trainer on a two-layer model of width 32."""
    made: dict[tuple[str, ...], Path] = {}

    def pretrain(arch: str = "roberta_tisa_tiny", *flags: str) -> Path:
        if (arch, *flags) not in made:
            folder = tmp_path_factory.mktemp(arch)
            sizes = ["--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2"]
            optimization = ["--optimizer", "adam", "--lr", "1e-3", "--max-update", "1", "--batch-size", "4", "--num-workers", "0"]
            data = [str(data_bin), "--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "32", "--cpu"]
            saving = ["--save-dir", str(folder), "--no-epoch-checkpoints"]
            arguments = [*data, "--arch", arch, *sizes, *optimization, *saving, *flags]
            namespace = options.parse_args_and_arch(options.get_training_parser(), arguments)
            fairseq_run.train(convert_namespace_to_omegaconf(namespace), lambda text, share=None: None)
            made[(arch, *flags)] = folder / "checkpoint_last.pt"
        return made[(arch, *flags)]

    return pretrain


@pytest.fixture(scope="session")
def checkpoint(pretrain) -> Path:
    """A checkpoint of a TISA model."""
    return pretrain()
