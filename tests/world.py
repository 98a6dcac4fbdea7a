"""One small world for all tests: texts, data-bins and checkpoints, each made once in a run of the tests, by whoever asks first.

The workers of pytest-xdist share it. Tests only read it; a test that writes works on a copy.
"""

import fcntl
import hashlib
import io
import random
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from commands import status_of

WORDS = (
    *("red", "green", "blue", "small", "large", "round", "flat", "wooden", "iron", "old", "new"),
    *("ball", "box", "cup", "door", "lamp", "chair", "stone", "tree", "bird", "fish"),
)
SIZES = ("--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2")
TRAINING = (
    *("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "32", "--cpu", "--no-epoch-checkpoints"),
    *("--optimizer", "adam", "--lr", "1e-3", "--max-update", "1", "--batch-size", "4", "--num-workers", "0"),
)


class World:
    """What the tests share, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder of that name in the world, which ``make(folder)`` fills if no process has done so."""
        self.folder.mkdir(exist_ok=True)
        folder, done = self.folder / name, self.folder / f"{name}.done"
        if not done.exists():
            with (self.folder / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not done.exists():
                    shutil.rmtree(folder, ignore_errors=True)  # what a failure has left
                    folder.mkdir()
                    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # of a test that looks at its own
                        make(folder)
                    done.touch()
        return folder

    @property
    def text(self) -> Path:
        """train.txt (200 sentences) and valid.txt (40), in which each of 40 words is followed by one of three."""
        return self.made("text", _write_text)

    @property
    def data_bin(self) -> Path:
        """The text as a data-bin of whole words, by fairseq-preprocess."""
        return self.made("data-bin", lambda folder: _preprocess(self.text, folder))

    @property
    def prepared(self) -> Path:
        """The text as a data-bin with a sentencepiece model, by ``fairseq-posenc prepare``."""

        def make(folder: Path) -> None:
            texts = [self.text / "train.txt", "--valid", self.text / "valid.txt"]
            assert status_of("prepare", *texts, "--out", folder / "bin", "--vocab-size", 44, "--workers", 1) == 0

        return self.made("prepared", make) / "bin"

    @property
    def english(self) -> Path:
        """Sentences of ``WORDS`` and of rarer characters as a data-bin with a sentencepiece model, for fine-tuning."""
        return self.made("english", make_english) / "data-bin"

    def checkpoint(self, arch: str, *flags: str) -> Path:
        """The checkpoint of one update of fairseq's trainer on :attr:`english`, of a model of width 32."""
        from fairseq import options
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.distributed.utils import call_main
        from fairseq_cli.train import main

        def make(folder: Path) -> None:
            arguments = [str(self.english), *TRAINING, "--arch", arch, *SIZES, "--save-dir", str(folder), *flags]
            namespace = options.parse_args_and_arch(options.get_training_parser(), arguments)
            call_main(convert_namespace_to_omegaconf(namespace), main)

        digest = hashlib.sha256(repr(flags).encode()).hexdigest()[:8]
        return self.made(f"{arch}-{digest}", make) / "checkpoint_last.pt"


def sentences(count: int, seed: int, low: int = 3, high: int = 8) -> list[str]:
    """Sentences of words drawn at random."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(low, high))).capitalize() + "." for _ in range(count)]


def make_english(folder: Path, vocab_size: int = 90, ending: str = "Über café “x” 1,250 €?") -> Path:
    """A data-bin of English sentences with their tokenizer, as ``fairseq-posenc prepare`` writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    text, out = folder / "text.txt", folder / "data-bin"
    text.write_text("\n".join(f"{line} {ending}\n" for line in sentences(150, seed=0)))
    assert status_of("prepare", text, "--out", out, "--vocab-size", vocab_size, "--valid-fraction", 0.1, "--workers", 1) == 0
    return out


def _write_text(folder: Path) -> None:
    for name, count, seed in (("train", 200, 0), ("valid", 40, 1)):
        rng = random.Random(seed)
        with (folder / f"{name}.txt").open("w", encoding="utf-8") as file:
            for _ in range(count):
                word = rng.randrange(40)
                words = []
                for _ in range(rng.randint(4, 12)):
                    words.append(f"w{word}")
                    word = (2 * word + rng.randrange(3)) % 40
                print(*words, file=file)


def _preprocess(text: Path, folder: Path) -> None:
    from fairseq import options
    from fairseq_cli import preprocess

    texts = ["--trainpref", str(text / "train.txt"), "--validpref", str(text / "valid.txt")]
    preprocess.main(options.get_preprocessing_parser().parse_args(["--only-source", *texts, "--destdir", str(folder)]))
