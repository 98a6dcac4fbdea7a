"""The criterion of ``--task squad``."""

from __future__ import annotations

import math
from typing import Any

from fairseq import metrics
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from torch.nn import functional as F

from .squad import mask_scores


@register_criterion("squad", dataclass=FairseqDataclass)
class SquadCriterion(FairseqCriterion):
    """Cross-entropy of the answer's first and of its last token, the mean of both, over ``<s>`` and the context."""

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        context, start, end = sample["target"].unbind(1)
        scores, _ = model(**sample["net_input"])
        starts, ends = mask_scores(scores, sample["net_input"]["src_lengths"], context).unbind(-1)
        loss = (F.cross_entropy(starts, start, reduction="sum") + F.cross_entropy(ends, end, reduction="sum")) / 2
        correct = (starts.argmax(1) == start) & (ends.argmax(1) == end)
        count = len(context)
        logged = {
            "loss": loss.data,
            "ncorrect": correct.sum(),
            "ntokens": sample["ntokens"],
            "nsentences": count,
            "sample_size": count,
        }
        return loss, count, logged

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        def total(name: str) -> Any:
            return sum(output[name] for output in logging_outputs)

        count = total("nsentences")
        metrics.log_scalar("loss", total("loss") / count / math.log(2), count, round=3)
        metrics.log_scalar("accuracy", 100.0 * total("ncorrect") / count, count, round=1)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
