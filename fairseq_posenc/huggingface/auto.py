"""Registers the project's models with transformers' Auto classes, which then load exports without ``trust_remote_code``."""

import transformers

from . import assemble, causal, modeling
from .configuration import HEADS, PosencConfig

PosencConfig.write_code = staticmethod(assemble.write)
transformers.AutoConfig.register(PosencConfig.model_type, PosencConfig, exist_ok=True)
transformers.AutoModel.register(PosencConfig, modeling.PosencModel, exist_ok=True)
for _head in HEADS:
    getattr(transformers, f"AutoModelFor{_head}").register(PosencConfig, getattr(modeling, f"PosencFor{_head}"), exist_ok=True)
transformers.AutoModelForCausalLM.register(PosencConfig, causal.PosencForCausalLM, exist_ok=True)
