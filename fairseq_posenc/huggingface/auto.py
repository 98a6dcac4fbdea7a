"""Registers the project's models with transformers' Auto classes, which then load exports without ``trust_remote_code``."""

from __future__ import annotations

from typing import Any

import transformers

from . import assemble, modeling
from .configuration import HEADS, PosencConfig

PREFIXES = {
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "longformer": "Longformer",
    "bert": "Bert",
    "albert": "Albert",
    "electra": "Electra",
    "deberta-v2": "DebertaV2",
    PosencConfig.model_type: "Posenc",
}
"""How the names of the classes begin, by the types of models that can be imported."""


def model_class(model_type: str, kind: str) -> Any:
    """transformers' class, or this project's own, for a head of that kind; ``Model`` for none."""
    library: Any = modeling if model_type == PosencConfig.model_type else transformers
    return getattr(library, PREFIXES[model_type] + ("Model" if kind == "Model" else f"For{kind}"))


modeling.PosencPreTrainedModel.write_code = staticmethod(assemble.write)
transformers.AutoConfig.register(PosencConfig.model_type, PosencConfig, exist_ok=True)
transformers.AutoModel.register(PosencConfig, modeling.PosencModel, exist_ok=True)
for _head in HEADS:
    getattr(transformers, f"AutoModelFor{_head}").register(PosencConfig, getattr(modeling, f"PosencFor{_head}"), exist_ok=True)
