"""``--mask-prob-end``: masks that become fewer during training."""

from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.tasks.masked_lm import MaskedLMConfig


@dataclass
class ScheduledMaskedLMConfig(MaskedLMConfig):
    """Options of ``masked_lm``: fairseq's, and the probability of masks at the end."""

    mask_prob_end: Optional[float] = field(
        default=None, metadata={"help": "probability of masks to which that of --mask-prob falls linearly; validation keeps that"}
    )
    mask_prob_updates: int = field(default=0, metadata={"help": "updates in which --mask-prob-end is reached"})


def share(cfg: Any, update: int) -> float:
    """Return which share of the masks remains: (p + (p_end - p) min(1, u / U)) / p at update u of U."""
    return 1 + (cfg.mask_prob_end / cfg.mask_prob - 1) * min(1.0, update / cfg.mask_prob_updates)


def thinned(sample: dict[str, Any], share: float, pad: int, seed: int) -> dict[str, Any]:
    """Return a batch with this share of its masks, rounded; the words of the others are visible again, and are not predicted.

    Args:
        sample: of ``masked_lm``, or of ``masked_lm_static``, which lists the positions.
        share: from 0 to 1.
        pad: the number of padding.
        seed: draws the masks that remain.
    """
    tokens, target = sample["net_input"]["src_tokens"].clone(), sample["target"].clone()
    listed = "read_at" in sample["net_input"]
    entries = target.flatten()
    predicted = torch.arange(sample["sample_size"], device=target.device) if listed else entries.ne(pad).nonzero().flatten()
    order = torch.randperm(len(predicted), generator=torch.Generator().manual_seed(seed))
    left_out = predicted[order[round(share * len(predicted)) :].to(target.device)]
    places = sample["net_input"]["read_at"][left_out] if listed else left_out
    tokens.view(-1)[places] = entries[left_out]
    target.view(-1)[left_out] = pad
    changed = {"net_input": {**sample["net_input"], "src_tokens": tokens}, "target": target}
    return {**sample, **changed, **({"sample_size": len(predicted) - len(left_out)} if listed else {})}
