"""Pretrain two tiny masked language models, with absolute positions and with TISA, and compare them: minutes on two cores.

    bash scripts/quickstart.sh [TEXT …] [--out DIR] [--updates N] [--vocab-size N] [--seed N]

The text is that of the given files, or else the documentation that comes with this Python, which needs no download. The steps are
the commands that are printed. The same command continues where it was interrupted.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
from documentation import write_documentation
from fairseq.data import Dictionary, data_utils

from fairseq_posenc.base.files import atomic_write
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.checkpoint_file import load
from fairseq_posenc.study.measure import losses

POSITIONS = ("absolute", "tisa")
TRAINING = """--task masked_lm --criterion masked_lm --dropout 0 --attention-dropout 0 --cpu
    --tokens-per-sample 32 --sample-break-mode none --batch-size 32 --batch-size-valid 64 --max-valid-steps 40
    --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1 --lr 2e-3
    --lr-scheduler polynomial_decay --validate-interval 1000000 --save-interval-updates 500 --keep-interval-updates 1
    --no-epoch-checkpoints --log-format simple --log-interval 100"""
HEADER = "| positions | validation loss (bits per token) | perplexity | word order, bits | positional parameters | tokens/s |"
CAVEAT = """
Lower is better. Word order is what the loss increases by if the visible words of each sample are permuted: 0 for a model that
has not begun to use it. Until then, positions make no difference, and absolute ones begin late. So in a run this short, the
difference is a start, and no quality."""
UNUSED = """
{} uses no word order yet (less than 0.1 bits); it needs more updates."""
TOKENS = 1 << 16
"""Of the validation text, for the word order."""


def main() -> None:
    """Prepare the data, train, analyze, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="*", metavar="TEXT", help="text to learn from (default: Python's documentation)")
    parser.add_argument("--out", type=Path, default=Path("quickstart"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--updates", type=int, default=2000, help="updates per model (default: %(default)s)")
    parser.add_argument("--vocab-size", type=int, default=1024, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="seed for data and training (default: %(default)s)")
    args = parser.parse_args()
    out, record, updates = args.out, args.out / "quickstart.json", args.updates
    settings = json.dumps({**vars(args), "out": None})
    if record.read_text() != settings if record.exists() else out.exists() and any(out.iterdir()):
        sys.exit(f"--out {out} holds something else, or the results of other settings: name another folder")
    out.mkdir(parents=True, exist_ok=True)
    record.write_text(settings)
    (out / ".gitignore").write_text("*\n")
    text = args.text or [write_documentation(out / "python_documentation.txt")]
    sizes = f"--vocab-size {args.vocab_size} --seed {args.seed} --valid-fraction 0.05 --sample-mb 8"
    run("fairseq-posenc", "prepare", *text, *sizes.split(), "--out", out / "data")
    schedule = f"--warmup-updates {updates // 10} --total-num-update {updates} --max-update {updates} --seed {args.seed}"
    for positions in POSITIONS:  # training continues from the last checkpoint
        folders = ("--save-dir", out / positions, "--tensorboard-logdir", out / "tensorboard" / positions)
        arch = ("--arch", f"roberta_{positions}_tiny")
        run("fairseq-train", out / "data", *arch, *TRAINING.split(), *schedule.split(), *folders)
    last, functions = out / "tisa" / "checkpoint_last.pt", out / "functions"
    run("fairseq-posenc", "analyze", f"tisa={last}", "--length", "32", "--out", functions)
    orders = {positions: word_order(out / positions / "checkpoint_last.pt", out / "data") for positions in POSITIONS}
    with atomic_write(out / "results.md") as stream:
        stream.write(table(out, orders))
    unused = "".join(UNUSED.format(positions) for positions, bits in orders.items() if bits < 0.1)
    print(
        f"\n{table(out, orders)}{CAVEAT}{unused}\n\nThis table: {out}/results.md. Curves: tensorboard --logdir {out}/tensorboard."
    )
    print(f"What TISA's heads learned: {functions}/report.html. Other schemes are other architectures: fairseq-posenc schemes")


def run(name: str, *arguments: str | Path) -> None:
    """Run one of this environment's commands; of a training's long log, only the progress is shown."""
    command = [name, *map(str, arguments)]
    print(f"\n$ {shlex.join(command)}", file=sys.stderr, flush=True)
    with subprocess.Popen(command, executable=Path(sys.executable).with_name(name), stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if name != "fairseq-train" or (line := "  ".join(re.findall(r" ((?:loss|num_updates)=[\d.]+)", line))):
                print(line.rstrip(), file=sys.stderr, flush=True)
    if process.returncode:
        sys.exit(f"{name} ended with status {process.returncode}. The same command continues from here.")


def word_order(path: Path, data: Path) -> float:
    """Return by how many bits the loss of a checkpoint increases if the visible words of each sample change places."""
    checkpoint = Checkpoint(path, data)
    n, model = checkpoint.length, checkpoint.build_model()
    text = losses.read(checkpoint, data, TOKENS, 2)
    permuted, ordered = (losses.predict(model, each, n).summary()["loss"] for each in (text.permuted(n), text))
    return permuted - ordered


def table(out: Path, orders: dict[str, float]) -> str:
    """Return one row per model, with the bits that it saves by word order, and one for the unigram."""
    unigram = unigram_loss(out / "data")
    lines = [HEADER, "|---|---|---|---|---|---|", f"| (unigram: no context) | {unigram:.3f} | {2**unigram:,.0f} | 0 | | |"]
    for positions in POSITIONS:
        saved = load(out / positions / "checkpoint_last.pt")
        loss = saved["extra_state"]["val_loss"]  # base 2
        meters = {name: meter for _, name, _, meter in saved["extra_state"]["metrics"]["default"]}
        parameters = sum(tensor.numel() for name, tensor in saved["model"].items() if ".positions." in name)
        speed = meters["wpb"]["sum"] / meters["train_wall"]["sum"]
        lines.append(f"| {positions} | {loss:.3f} | {2**loss:,.0f} | {orders[positions]:.2f} | {parameters:,} | {speed:,.0f} |")
    return "\n".join(lines) + "\n"


def unigram_loss(data: Path) -> float:
    """Return the bits per token of each symbol's share of the training tokens, plus one: the best guess without context.

    The tokens are those that the loss of validation draws its targets from: all but the ``<s>`` at the beginning of a sample.
    """
    dictionary = Dictionary.load(str(data / "dict.txt"))

    def counts(split: str) -> np.ndarray:
        ids = np.concatenate([line.numpy() for line in data_utils.load_indexed_dataset(str(data / split), dictionary)])
        return np.bincount(ids, minlength=len(dictionary))

    train, valid = counts("train") + 1, counts("valid")
    return float(valid @ -np.log2(train / train.sum()) / valid.sum())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: the same command continues from here")
