"""Fine-tuning on SQuAD: the prediction of an answer's first and last token.

The data-bin holds ``dict.txt`` and, for each split, windows ``<s> question </s> </s> stretch of the context </s>`` as
``SPLIT.bin`` and ``SPLIT.idx``, and ``SPLIT.spans.npy``: a row of three int32 per window, (first token of the context, first
token of the answer, last token of the answer). Where a window holds no answer, the last two are 0: the answer is ``<s>``.
``fairseq-posenc squad`` writes it.
"""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import metrics
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import (
    BaseWrapperDataset,
    Dictionary,
    FairseqDataset,
    IdDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RightPadDataset,
    data_utils,
)
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from omegaconf import II, MISSING, open_dict
from torch import Tensor
from torch.nn import functional as F

from ...base.errors import InputError
from ...core.transformer.heads import SpanHead
from ...text.vocabulary import load_dictionary
from .example_packing import HELP, PackingTask


@dataclass
class SquadConfig(FairseqDataclass):
    """Options of the task ``squad``: the folder of the prepared questions, and the size of tables of positions."""

    data: str = field(default=MISSING, metadata={"help": "folder of the prepared questions"})
    max_positions: int = field(default=512, metadata={"help": "size of the model's tables of positions, as in pretraining"})
    pack_examples: int = field(default=0, metadata={"help": HELP})
    seed: int = II("common.seed")


class SquadHead(SpanHead):
    """The head of a model in training, which may start from a checkpoint of pretraining."""

    def upgrade_state_dict_named(self, state: dict[str, Tensor], name: str) -> None:
        """Replace the language model's head of a pretrained checkpoint by this one, as fairseq asks."""
        values = {f"{name}.{key}": value for key, value in self.state_dict().items()}
        for key in [key for key in state if key.startswith(f"{name}.") and key not in values]:
            del state[key]
        for key, value in values.items():
            state.setdefault(key, value)


@register_task("squad", dataclass=SquadConfig)
class SquadTask(PackingTask):
    """Trains a model to predict the first and the last token of answers, with the criterion ``squad``."""

    source_dictionary = target_dictionary = property(lambda self: self.dictionary)

    def __init__(self, cfg: SquadConfig, dictionary: Dictionary | None = None) -> None:
        super().__init__(cfg)
        self.dictionary = load_dictionary(Path(cfg.data)) if dictionary is None else dictionary

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        """Load one split.

        Raises:
            FileNotFoundError: it has not been prepared.
            InputError: windows and spans do not belong together.
        """
        path = os.path.join(self.cfg.data, split)
        windows = data_utils.load_indexed_dataset(path, self.dictionary)
        if windows is None or not os.path.exists(f"{path}.spans.npy"):
            raise FileNotFoundError(
                f"{path}.bin, .idx and .spans.npy are not all there: DATA of --task squad is a folder that "
                "fairseq-posenc squad has prepared (data in its --out)"
            )
        try:
            spans = np.load(f"{path}.spans.npy", allow_pickle=False)
        except (ValueError, EOFError):
            spans = np.empty(0)
        if spans.shape != (len(windows), 3) or spans.dtype.kind != "i" or (spans < 0).any() or (windows.sizes <= spans.T).any():
            raise InputError(
                f"{path}.spans.npy does not hold three places in each of the {len(windows)} windows: it is damaged, or the files "
                "are not of one preparation. Remove the folder and prepare it again."
            )
        nested = NestedDictionaryDataset(
            {
                "id": IdDataset(),
                "net_input": {
                    "src_tokens": RightPadDataset(windows, pad_idx=self.dictionary.pad()),
                    "src_lengths": NumelDataset(windows, reduce=False),
                },
                "target": BaseWrapperDataset(spans.astype(np.int64)),
                "nsentences": NumSamplesDataset(),
                "ntokens": NumelDataset(windows, reduce=True),
            },
            sizes=[windows.sizes],
        )
        self.datasets[split] = self.prepared(nested, windows.sizes, split)
        return self.datasets[split]

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        with open_dict(cfg):
            cfg.max_positions = self.cfg.max_positions
        model = super().build_model(cfg, from_checkpoint)
        model.encoder.lm_head = SquadHead(model.args.encoder_embed_dim)
        return model


def mask_scores(scores: Tensor, lengths: Tensor, context: Tensor) -> Tensor:
    """Mask the scores of all positions but ``<s>`` and the context.

    Args:
        scores: (B, n, 2), of the span head.
        lengths: (B,), the tokens of each window, before the padding.
        context: (B,), the first token of each window's context.

    Returns:
        (B, n, 2) float32, minus infinity at the question and the separators.
    """
    place = torch.arange(scores.shape[1], device=scores.device)
    last = lengths[:, None] - 1  # the closing </s>
    allowed = (place == 0) | ((place >= context[:, None]) & (place < last))
    return scores.float().masked_fill(~allowed[..., None], float("-inf"))


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
        loss, correct, count = (sum(log.get(name, 0) for log in logging_outputs) for name in ("loss", "ncorrect", "nsentences"))
        metrics.log_scalar("loss", loss / count / math.log(2), count, round=3)
        metrics.log_scalar("accuracy", 100.0 * correct / count, count, round=1)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
