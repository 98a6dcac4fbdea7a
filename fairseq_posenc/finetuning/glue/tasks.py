"""What the tasks of GLUE are: files, columns, labels and metrics, as the benchmark's own download has them."""

from __future__ import annotations

from dataclasses import dataclass, field

ENTAILMENT = ("entailment", "not_entailment")
BINARY = ("0", "1")


@dataclass(frozen=True)
class GlueTask:
    """One task.

    Attributes:
        name: the folder of its files.
        columns: the text columns' names, one or two.
        label: the label column's name in train and dev files.
        labels: the labels, in the order of the classes; empty for a regression on 0 … 5.
        metrics: names in :mod:`.metrics`, the first of which the benchmark lists first.
        dev, test: the evaluation sets by the name of their leaderboard file: the files' names.
        header: columns of train and dev files that have no header row.
    """

    name: str
    columns: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    dev: dict[str, str] = field(default_factory=dict)
    test: dict[str, str] = field(default_factory=dict)
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.dev:
            object.__setattr__(self, "dev", {self.name: "dev.tsv"})
            object.__setattr__(self, "test", {self.name: "test.tsv"})

    @property
    def regression(self) -> bool:
        return not self.labels


SCALE = 5.0
"""STS-B's scores are 0 … 5; a model is trained on score / 5, as in fairseq's recipe, on which its learning rates rest."""

TASKS = {
    task.name: task
    for task in (
        GlueTask("CoLA", ("sentence",), "label", BINARY, ("matthews",), header=("source", "label", "star", "sentence")),
        GlueTask("SST-2", ("sentence",), "label", BINARY, ("accuracy",)),
        GlueTask("MRPC", ("#1 String", "#2 String"), "Quality", BINARY, ("f1", "accuracy")),
        GlueTask("STS-B", ("sentence1", "sentence2"), "score", (), ("pearson", "spearman")),
        GlueTask("QQP", ("question1", "question2"), "is_duplicate", BINARY, ("f1", "accuracy")),
        GlueTask(
            "MNLI",
            ("sentence1", "sentence2"),
            "gold_label",
            ("contradiction", "neutral", "entailment"),
            ("accuracy",),
            dev={"MNLI-m": "dev_matched.tsv", "MNLI-mm": "dev_mismatched.tsv"},
            test={"MNLI-m": "test_matched.tsv", "MNLI-mm": "test_mismatched.tsv", "AX": "../diagnostic/diagnostic.tsv"},
        ),
        GlueTask("QNLI", ("question", "sentence"), "label", ENTAILMENT, ("accuracy",)),
        GlueTask("RTE", ("sentence1", "sentence2"), "label", ENTAILMENT, ("accuracy",)),
        GlueTask("WNLI", ("sentence1", "sentence2"), "label", BINARY, ("accuracy",)),
    )
}

OPTIONAL_TESTS = ("AX",)
"""Test sets that a download may lack."""
