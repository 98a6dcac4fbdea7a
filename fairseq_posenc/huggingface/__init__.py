"""The transformers face. Importing this package registers its models with transformers' Auto classes, so that an export loads
without ``trust_remote_code``."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
)

from .modeling import (
    PosencConfig,
    PosencForMaskedLM,
    PosencForQuestionAnswering,
    PosencForSequenceClassification,
    PosencModel,
)

AUTO_CLASSES = {
    AutoModel: PosencModel,
    AutoModelForMaskedLM: PosencForMaskedLM,
    AutoModelForSequenceClassification: PosencForSequenceClassification,
    AutoModelForQuestionAnswering: PosencForQuestionAnswering,
}

AutoConfig.register(PosencConfig.model_type, PosencConfig, exist_ok=True)
for _auto, _model in AUTO_CLASSES.items():
    _auto.register(PosencConfig, _model, exist_ok=True)

__all__ = [
    "AUTO_CLASSES",
    "PosencConfig",
    "PosencForMaskedLM",
    "PosencForQuestionAnswering",
    "PosencForSequenceClassification",
    "PosencModel",
]
