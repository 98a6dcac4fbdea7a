"""Tables 1, 2 and 3 of Shaw et al. 2018 on your data-bin: train, translate, score, and compare with the paper's scores.

    python examples/translation/ablations.py data-bin --text text --out ablations --size _tiny --seeds 1 2 -- --max-update 8000

A killed run continues from its last checkpoint, and a finished one is not repeated, so the same command again completes
the tables. Two commands at once need different runs: --only, --seeds. What follows -- is for fairseq-train, after the paper's
optimizer and loss; the results of other flags need another --out. Scores are sacreBLEU's, of the text against
TEXT/SPLIT.LANGUAGE.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from fairseq.data.data_utils import infer_language_pair, load_indexed_dataset
from sacrebleu.metrics import BLEU

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.files import sole_writer
from fairseq_posenc.base.ownership import claim
from fairseq_posenc.base.record import FINISHED, digests
from fairseq_posenc.study.engine.grid import DIVERGENCE, Cell, Diverged, Progress, finished
from fairseq_posenc.study.engine.statistics import spread
from fairseq_posenc.study.engine.study import Study


def shaw(clip: int, terms: str = "both") -> list[str]:
    """Return the scheme and flags of tables of each layer and head, as in the paper's base model."""
    return ["shaw", "--max-relative-position", str(clip), "--shaw-terms", terms, "--position-share-heads", "false"]


RUNS = {  # name -> scheme and its flags
    **{f"k{clip}": shaw(clip) for clip in (0, 1, 2, 4, 16, 64, 256)},
    "keys": shaw(16, "keys"),
    "values": shaw(16, "values"),
    "none": ["none"],
    "sinusoidal": ["sinusoidal"],
    "t5": ["t5"],
    "tisa": ["tisa"],
    "rope": ["rope"],
}
TABLES: dict[
    str, list[tuple[str, str, float | None]]
] = {  # title -> what varies, the run, BLEU in the paper (WMT'14 En-De, base)
    "Table 1: positions (the paper's on newstest2014)": [
        ("absolute (sinusoidal)", "sinusoidal", 26.5),
        ("relative (shaw, k = 16)", "k16", 26.8),
        ("none", "none", None),
        ("t5", "t5", None),
        ("tisa", "tisa", None),
        ("rope", "rope", None),
    ],
    "Table 2: the clipping distance k (the paper's on newstest2013)": [
        (str(clip), f"k{clip}", bleu)
        for clip, bleu in {0: 12.5, 1: 25.5, 2: 25.8, 4: 25.9, 16: 25.8, 64: 25.9, 256: 25.8}.items()
    ],
    "Table 3: a^V and a^K (the paper's on newstest2013)": [
        ("both", "k16", 25.8),
        ("a^K alone", "keys", 25.8),
        ("a^V alone", "values", 25.3),
        ("neither", "none", 12.5),
    ],
}
TRAINING = [
    *[
        "--task",
        "translation",
        "--share-all-embeddings",
        "--criterion",
        "label_smoothed_cross_entropy",
        "--label-smoothing",
        "0.1",
    ],
    *["--optimizer", "adam", "--adam-betas", "(0.9,0.98)", "--adam-eps", "1e-9", "--lr-scheduler", "inverse_sqrt"],
    *["--lr", "7e-4", "--warmup-updates", "4000", "--max-tokens", "4096", "--no-epoch-checkpoints"],
]
SEARCH = ["--beam", "4", "--lenpen", "0.6", "--remove-bpe", "sentencepiece"]


class Experiment:
    """One data-bin, its text, and the flags of training."""

    def __init__(self, args: argparse.Namespace) -> None:
        source, target = infer_language_pair(str(args.data))
        if target is None:
            raise InputError(f"{args.data} is no data-bin of two languages: make one with examples/translation/prepare.py")
        self._args = args
        prefixes = [f"{split}.{source}-{target}" for split in dict.fromkeys(("train", "valid", args.split))]
        names = [f"{prefix}.{side}.{kind}" for prefix in prefixes for side in (source, target) for kind in ("bin", "idx")]
        self._data = digests({name: args.data / name for name in (*names, f"dict.{source}.txt", f"dict.{target}.txt")})
        text = args.text / f"{args.split}.{target}"
        with text.open(encoding="utf-8", newline="\n") as lines:  # as prepare.py reads it, which does not end lines elsewhere
            self._references = [line.rstrip("\r\n") for line in lines]
        sentences = len(load_indexed_dataset(str(args.data / f"{prefixes[-1]}.{target}")))
        if sentences != len(self._references):
            raise InputError(
                f"{text} has {len(self._references)} lines, and {args.data} has {sentences} sentences of {args.split}: name the "
                "text that it was made of"
            )

    def cell(self, name: str, seed: int) -> Cell:
        args, (scheme, *flags) = self._args, RUNS[name]
        arch = f"transformer_{scheme}{args.size}"
        configuration = {"flags": ["--arch", arch, *flags, *TRAINING, *args.flags], "split": args.split, "data": self._data}
        return Cell({"name": name, "seed": seed}, configuration)

    def run(self, cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        """Train, translate, score.

        Raises:
            ChildProcessError, BlockingIOError: a command failed, or another process is at this run.
        """
        data, cpu = str(self._args.data), ["--cpu"] if "--cpu" in self._args.flags else []
        place = ["--save-dir", str(folder), "--seed", str(cell.key["seed"])]
        best = ["--path", str(folder / "checkpoint_best.pt"), "--gen-subset", self._args.split, "--max-tokens", "4096"]
        with sole_writer(folder) as lock:  # others of the grid may be run at the same time
            progress("training")
            execute("train", [data, *cell.configuration["flags"], *place], folder, lock)
            progress("translating")
            output = execute("generate", [data, *best, *SEARCH, *cpu], folder, lock)
        found = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", output, re.M))
        metric = BLEU()
        translations = [found[str(number)] for number in range(len(self._references))]
        bleu = metric.corpus_score(translations, [self._references]).score
        return {"bleu": round(bleu, 2), "signature": str(metric.get_signature())}


def execute(command: str, arguments: list[str], folder: Path, lock: int) -> str:
    """Run fairseq's command; its output goes to a log, and is returned.

    Args:
        lock: a file descriptor that it holds open, so that nothing else starts in the folder while it runs, even if this
            process is killed.

    Raises:
        Diverged: the gradients are no longer finite.
        ChildProcessError: it failed otherwise; names the log.
    """
    log = folder / f"{command}.log"
    with log.open("w", encoding="utf-8") as stream:
        program = [sys.executable, "-m", f"fairseq_cli.{command}"]
        done = subprocess.run([*program, *arguments], stdout=stream, stderr=subprocess.STDOUT, pass_fds=[lock])
    output = log.read_text("utf-8", errors="replace")
    if done.returncode and (reason := DIVERGENCE.search(output)):
        raise Diverged(f"{reason[0]}; see {log.name}")
    if done.returncode:
        raise ChildProcessError(
            f"fairseq's {command} ended with status {done.returncode}: {output.strip().splitlines()[-1:]}; see {log}"
        )
    return output


def report(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the tables in Markdown: mean and standard deviation over the seeds."""
    lines = []
    for title, rows in TABLES.items():
        lines += [f"{title}", "", "| | ours | the paper's |", "|---|---|---|"]
        for label, name, paper in rows:
            scores = [run["bleu"] for run in results[name] if run["status"] == FINISHED]
            ours = "not run" if not results[name] else "diverged"
            if scores:
                found = spread(scores)
                deviation = "" if found["std"] is None else f" ± {found['std']:.2f}"
                ours = f"{found['mean']:.2f}{deviation} ({len(scores)} of {len(results[name])} runs)"
            lines.append(f"| {label} | {ours} | {'–' if paper is None else paper} |")
        lines.append("")
    signatures = sorted({run["signature"] for runs in results.values() for run in runs if "signature" in run})
    return "\n".join([*lines, *(f"sacreBLEU: {signature}" for signature in signatures)])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA-BIN")
    parser.add_argument("--text", type=Path, required=True, help="the folder with the sentences that the data-bin was made of")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--size", default="", choices=["", "_big", "_iwslt", "_tiny"], help="of the models (default: base)")
    parser.add_argument("--split", default="valid", choices=["valid", "test"], help="what is translated (default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=RUNS, default=[*RUNS], help="some of the runs (default: all)")
    arguments, flags = sys.argv[1:], []
    if "--" in arguments:
        arguments, flags = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    args = parser.parse_args(arguments)
    args.flags = flags
    try:
        experiment = Experiment(args)
        claim(args.out, "ablations")
        study = Study(args.out)  # whose folder is not locked: each run has a lock of its own
        study.run([experiment.cell(name, seed) for seed in args.seeds for name in args.only], experiment.run)
        study.finish()
        cells = {name: [experiment.cell(name, seed) for seed in args.seeds] for name in RUNS}
        found = {name: [finished(cell, args.out) for cell in group] for name, group in cells.items()}
    except (InputError, OSError) as error:
        sys.exit(f"ablations.py: {error}")
    print(report({name: [run for run in runs if run is not None] for name, runs in found.items()}))


if __name__ == "__main__":
    main()
