"""Exports in one table: sentence similarity after contrastive training, tagging of words, and minimal pairs.

    python examples/evaluate.py absolute=exports/absolute tisa=exports/tisa --glue glue_data --blimp blimp/data --out evaluated
    python examples/evaluate.py … --tagged ewt/train.conllu ewt/dev.conllu

Every folder is one of transformers, by its name or a path. The first is what the others are compared with. Of every model, seed s
sees the same examples in the same order.

- similarity: the model is trained by sentence-transformers to find QNLI's answers among those of a batch (InfoNCE); then the
  correlation (Spearman) of the cosine of two sentences with STS-B's scores of the dev set, times 100. The mean over tokens is the
  vector of a sentence.
- tags: the share of words of the second file that get their tag, in per cent, after training on the first. Files are CoNLL-U, of
  which the column UPOS is taken, or lines of a word and, after the last blank, its tag.
- pairs, word order: of `fairseq-posenc pairs`, which trains nothing.

Scores after training are means with 95% intervals over seeds, as in `fairseq-posenc compare`. OUT gets report.html, results.md,
results.csv and results.json. The same command again does only what is not done yet. Needs `pip install -e '.[hf,compare]'
sentence-transformers datasets`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from torch.utils.data import DataLoader
from transformers import (
    AutoConfig,
    AutoModelForTokenClassification,
    AutoTokenizer,
    TrainerCallback,
    get_linear_schedule_with_warmup,
)

from fairseq_posenc import cli
from fairseq_posenc.base.commands import show, split_label
from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.files import read_text, sha256
from fairseq_posenc.base.record import FINISHED, FORMAT, read_object
from fairseq_posenc.study.compare.results import level
from fairseq_posenc.study.compare.statistics import against
from fairseq_posenc.study.engine.grid import Cell, Progress
from fairseq_posenc.study.engine.report import Report, Table, number, with_interval
from fairseq_posenc.study.engine.statistics import by
from fairseq_posenc.study.engine.study import Study
from fairseq_posenc.study.finetune import glue_data
from fairseq_posenc.study.measure.work import default_device

Sentence = list[tuple[str, str]]
"""Words with their tags."""
IGNORED = -100
"""The label of tokens without a tag: all but the first of each word."""
SIMILARITY, TAGS = "similarity", "tags"
TRUSTED: dict[str, Any] = {"trust_remote_code": True}
"""Exports that are not of transformers' own classes have their code with them."""


def read_tagged(path: Path) -> list[Sentence]:
    """Read sentences, which blank lines separate, of words with their tags.

    Raises:
        InputError: a line has no tag; the message names it.
    """
    sentences: list[Sentence] = [[]]
    lines = read_text(path).split("\n")
    conllu = any(line.count("\t") == 9 for line in lines)
    for place, line in enumerate(lines, 1):
        if not line.strip():
            sentences.append([])
        elif not (conllu and line.startswith("#")):
            fields = line.split("\t") if "\t" in line else line.rsplit(maxsplit=1)
            if len(fields) < 2:
                raise InputError(f"{path}, line {place}: a word and its tag are needed")
            if len(fields) < 10:
                sentences[-1].append((fields[0], fields[-1]))
            elif fields[0].isdigit():  # CoNLL-U: others are parts of words, and words that are not written
                sentences[-1].append((fields[1], fields[3]))
    if not any(sentences):
        raise InputError(f"{path} has no words")
    return [*filter(None, sentences)]


class Experiment:
    """The data and settings of the trainings."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args, self._models = args, dict(map(split_label, args.models))
        self.models = [*self._models]
        if len(self._models) < len(args.models):
            raise InputError("two models have one name: give each its own, as in small=FOLDER")
        qnli, stsb = glue_data.TASKS["QNLI"], glue_data.TASKS["STS-B"]
        files = glue_data.find((qnli, stsb), args.glue)
        answered = qnli.labels.index("entailment")
        pairs = [example.texts for example in glue_data.read(files["QNLI"]["train"], qnli) if example.target == answered]
        self._pairs = Dataset.from_dict(dict(zip(("question", "answer"), map(list, zip(*pairs, strict=True)), strict=True)))
        self._stsb = [*glue_data.read(files["STS-B"]["STS-B"], stsb)]
        self._tagged = [read_tagged(path) for path in args.tagged or ()]
        self._tags = sorted({tag for sentence in self._tagged[0] for _, tag in sentence}) if self._tagged else []
        read = {SIMILARITY: (files["QNLI"]["train"], files["STS-B"]["STS-B"]), TAGS: args.tagged or ()}
        self._data = {name: list(map(sha256, paths)) for name, paths in read.items()}

    def cells(self) -> list[Cell]:
        """Return a run per benchmark, model and seed."""
        args = self._args
        settings = {name: getattr(args, name) for name in ("updates", "batch_size", "lr", "max_length")}
        files = {
            model: {file.name: sha256(file) for file in sorted(Path(path).glob("*")) if file.is_file()} or path
            for model, path in self._models.items()
        }
        return [
            Cell({"benchmark": name, "model": model, "seed": seed}, {**settings, "model": files[model], "data": self._data[name]})
            for name in (SIMILARITY, *([TAGS] if self._tagged else []))
            for model, path in self._models.items()
            for seed in range(1, args.seeds + 1)
        ]

    def run(self, cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        """Train a model and return its ``score``."""
        torch.manual_seed(int(cell.key["seed"]))
        train = self._similarity if cell.key["benchmark"] == SIMILARITY else self._tagging
        return {"score": train(self._models[str(cell.key["model"])], int(cell.key["seed"]), folder, progress)}

    def _similarity(self, path: str, seed: int, folder: Path, progress: Progress) -> float:
        args = self._args
        model = SentenceTransformer(
            path, device=str(default_device()), **TRUSTED
        )  # with the mean over tokens, as folders of transformers have it
        model.max_seq_length = args.max_length
        training = SentenceTransformerTrainingArguments(
            str(folder / "trainer"), max_steps=args.updates, per_device_train_batch_size=args.batch_size, learning_rate=args.lr,
            warmup_steps=args.updates // 10, seed=seed, data_seed=seed, save_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=default_device().type == "cpu", logging_strategy="no", dataloader_drop_last=True,
        )  # fmt: skip
        loss = losses.MultipleNegativesRankingLoss(model)
        trainer = SentenceTransformerTrainer(model, training, train_dataset=self._pairs, loss=loss, callbacks=[_Shown(progress)])
        trainer.train()
        sides = [model.encode([example.texts[side] for example in self._stsb], normalize_embeddings=True) for side in (0, 1)]
        return 100 * float(spearmanr((sides[0] * sides[1]).sum(1), [example.target for example in self._stsb]).statistic)

    def _tagging(self, path: str, seed: int, folder: Path, progress: Progress) -> float:
        args = self._args
        tokenizer = AutoTokenizer.from_pretrained(path, **TRUSTED)
        config = AutoConfig.from_pretrained(path, num_labels=len(self._tags), **TRUSTED)
        model = AutoModelForTokenClassification.from_pretrained(path, config=config, **TRUSTED).to(default_device())

        def batch(sentences: Sequence[Sentence]) -> dict[str, torch.Tensor]:
            """Return the tokens, and the tag of each word at its first token."""
            # With a space before all words but the first, byte-level BPE cuts them as in running text.
            words = [[" " * (place > 0) + word for place, (word, _) in enumerate(sentence)] for sentence in sentences]
            found = tokenizer(
                words, is_split_into_words=True, truncation=True, max_length=args.max_length, padding=True, return_tensors="pt"
            )
            labels = torch.full_like(found["input_ids"], IGNORED)
            for row, sentence in enumerate(sentences):
                before = None
                for column, word in enumerate(found.word_ids(row)):
                    if word not in (None, before) and sentence[word][1] in self._tags:
                        labels[row, column] = self._tags.index(sentence[word][1])
                    before = word
            return {"labels": labels, **{name: found[name] for name in ("input_ids", "attention_mask")}}

        order = torch.Generator().manual_seed(seed)
        rows: Any = self._tagged[0]  # a list, which has a data set's methods
        loader: DataLoader = DataLoader(rows, args.batch_size, shuffle=True, generator=order, collate_fn=batch)
        optimizer = torch.optim.AdamW(model.parameters(), args.lr, weight_decay=0.01)
        schedule = get_linear_schedule_with_warmup(optimizer, args.updates // 10, args.updates)
        model.train()
        for update, inputs in zip(range(args.updates), _endless(loader), strict=False):
            model(**_moved(inputs)).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            progress(f"update {update + 1}", (update + 1) / args.updates)
        model.eval()
        right = 0
        with torch.no_grad():
            for start in range(0, len(self._tagged[1]), args.batch_size):
                inputs = batch(self._tagged[1][start : start + args.batch_size])
                labels = inputs.pop("labels")
                right += int((model(**_moved(inputs)).logits.argmax(-1).cpu() == labels).sum())
        return 100 * right / sum(map(len, self._tagged[1]))  # words that are cut off, or have an unknown tag, are wrong

    def pairs(self) -> dict[str, Any]:
        """Score the minimal pairs by ``fairseq-posenc pairs``; returns the results of each model, none without --blimp."""
        if self._args.blimp is None:
            return {}
        out = self._args.out / "pairs"
        models = [f"{name}={path}" for name, path in self._models.items()]
        limit = ["--limit", str(self._args.pairs_limit)] if self._args.pairs_limit else []
        if cli.main(["pairs", *models, "--data", str(self._args.blimp), "--out", str(out), "--skip-long", *limit]):
            raise InputError("the pairs could not be scored")
        found = read_object(out / "results.json", FORMAT) or {}
        return {row["model"]: row for row in found["models"]}


class _Shown(TrainerCallback):
    """Shows the progress of transformers' trainer."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._progress(f"update {state.global_step}", state.global_step / state.max_steps)


def _moved(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(default_device()) for name, tensor in inputs.items()}


def _endless(loader: DataLoader) -> Any:
    while True:
        yield from loader


def report(results: Sequence[dict[str, Any]], pairs: dict[str, Any], names: Sequence[str]) -> Report:
    """Return the table: a row per model, with intervals, and the difference from the first model."""
    done = [run for run in results if run["status"] == FINISHED]
    columns: dict[str, dict[str, str]] = {}
    for benchmark, group in by("benchmark", done).items():
        scores = {model: {run["seed"]: run["score"] for run in runs} for model, runs in by("model", group).items()}
        columns[benchmark] = {model: _mean(np.array([*of_seed.values()])) for model, of_seed in scores.items()}
        seeds = sorted(scores.get(names[0], {}))
        of_all = {model: of_seed for model, of_seed in scores.items() if sorted(of_seed) == seeds and len(seeds) > 1}
        complete = {model: np.array([of_seed[seed] for seed in seeds]) for model, of_seed in of_all.items()}
        if len(complete) > 1:
            columns[f"{benchmark} − {names[0]}"] = {
                model: f"{with_interval(found, '+.2f')} (p = {number(found['p_holm'], '.2g')})"
                for model, found in against(names[0], complete).items()
            }
    for name in ("all pairs", "word order"):
        if pairs:
            columns[name] = {model: _share(row[name]) for model, row in pairs.items()}
    rows = [{"model": model, **{name: column.get(model, "–") for name, column in columns.items()}} for model in names]
    text = "Scores after training are means over seeds with their 95% intervals, and differences are paired by seed (p by Holm's "
    text += "method). Of minimal pairs, the interval is over pairs."
    table = Table(["model", *columns], [[*row.values()] for row in rows])
    return Report("Evaluation of exports", [table, text], {"format": FORMAT, "runs": results, "pairs": pairs}, rows)


def _mean(values: np.ndarray) -> str:
    return with_interval(level(values, "mean"), ".2f")


def _share(value: dict[str, Any]) -> str:
    return f"{value['accuracy']:.1f} ({value['low']:.1f}–{value['high']:.1f})"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="[NAME=]FOLDER")
    parser.add_argument("--glue", type=Path, required=True, metavar="DIR", help="the folder with QNLI and STS-B")
    parser.add_argument("--tagged", type=Path, nargs=2, metavar=("TRAIN", "DEV"), help="words with their tags")
    parser.add_argument("--blimp", type=Path, metavar="DIR", help="minimal pairs, as of fairseq-posenc pairs --data")
    parser.add_argument("--pairs-limit", type=int, default=0, metavar="N", help="score the first N pairs of each paradigm")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--updates", type=int, default=500, metavar="N", help="of each training (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=1e-4, help="default: %(default)s")
    parser.add_argument("--max-length", type=int, default=128, metavar="N", help="tokens (default: %(default)s)")
    args = parser.parse_args()
    inputs = [("--glue", args.glue), *(("--tagged", path) for path in args.tagged or ())]
    with Study.open(args.out, "examples/evaluate.py", inputs) as study:
        experiment = Experiment(args)
        results = study.run(experiment.cells(), experiment.run)
        show(report(results, experiment.pairs(), experiment.models).write(study.out))


if __name__ == "__main__":
    try:
        main()
    except (InputError, OSError) as error:
        sys.exit(f"error: {error}")
