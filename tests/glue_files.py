"""Writes GLUE's nine tasks in the layouts of the benchmark's own files, with rows made up at random."""

import random
from pathlib import Path

from world import sentences

from fairseq_posenc.study.finetune.glue_data import TASKS, GlueTask

HEADERS = {
    "SST-2": "sentence\tlabel",
    "MRPC": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "MNLI": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2\tlabel1\tgold_label",
    "QNLI": "index\tquestion\tsentence\tlabel",
    "RTE": "index\tsentence1\tsentence2\tlabel",
    "WNLI": "index\tsentence1\tsentence2\tlabel",
}


def label(task: GlueTask, rng: random.Random) -> str:
    """A label as the files write it."""
    return f"{rng.uniform(0, 5):.3f}" if task.regression else rng.choice(task.labels)


def row(columns: list[str], task: GlueTask, number: int, texts: list[str], target: str) -> str:
    """A line with its number, texts and label in their columns, and something in the others."""
    values = {
        **dict.fromkeys(columns, "x"),
        "index": str(number),
        **dict(zip(task.columns, texts, strict=True)),
        task.label: target,
    }
    return "\t".join(values[column] for column in columns)


def write_task(folder: Path, name: str, rows: int, seed: int = 0) -> None:
    """``rows`` rows of training and development data."""
    task, rng = TASKS[name], random.Random(seed)
    folder = folder / name
    folder.mkdir(parents=True)
    header = HEADERS.get(name)
    columns = list(task.header) if header is None else header.lstrip("\ufeff").split("\t")
    texts = [sentences(2, seed=1000 * seed + i)[: len(task.columns)] for i in range(rows)]
    lines = [row(columns, task, number, pair, label(task, rng)) for number, pair in enumerate(texts)]
    for file in ["train.tsv", *task.dev.values()]:
        (folder / file).write_text("\n".join([*([header] if header else []), *lines]) + "\n", encoding="utf-8")
