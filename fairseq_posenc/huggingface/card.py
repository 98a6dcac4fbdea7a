"""The model card of an export: what the model is, what it was trained on and how, and how far it agrees with its source."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ..schemes import parse
from ..version import __version__
from .checkpoint import Checkpoint
from .parity import Parity

GROUPS = ("model", "task", "criterion", "dataset", "optimization", "optimizer", "lr_scheduler")
PIPELINES = {
    "MaskedLM": "fill-mask",
    "SequenceClassification": "text-classification",
    "QuestionAnswering": "question-answering",
}
TAG = "fairseq-posenc"
TEMPLATE = """---
library_name: transformers
pipeline_tag: {pipeline}
tags:
- {project}
- {tag}
---

# {arch}

A {layers}-layer transformer encoder of width {dim} with {heads} heads and {parameters:,} parameters, trained by fairseq
with fairseq_posenc and exported by its version {version}.

## Positional encoding: {positions}

{schemes}

## Use

```python
from transformers import AutoModelFor{kind}, AutoTokenizer, pipeline

model = AutoModelFor{kind}.from_pretrained("{name}"{trust})
tokenizer = AutoTokenizer.from_pretrained("{name}"{trust})
pipe = pipeline("{pipeline}", model=model, tokenizer=tokenizer)
```

{code}

## Agreement with the checkpoint

Outputs of this model and of the checkpoint in fairseq, in float32, on batches of the training data's text with masks and
padding:

{parity}

The export fails where they differ by more than {tolerance:g}. {tokenizer}

## Training

Data: {data}. {updates}Vocabulary: {vocabulary:,} symbols. Checkpoint: SHA-256 `{digest}`.

```yaml
{arguments}```
"""
REMOTE_CODE = """The modelling code, modeling_posenc.py, lies beside the weights and needs PyTorch and transformers only; where
`fairseq_posenc` is installed, `import fairseq_posenc.huggingface` registers the same classes and `trust_remote_code` is not
needed. `attn_implementation` is `"eager"` or, for schemes that are an additive bias, `"sdpa"`."""
NO_REMOTE_CODE = "This is transformers' own RoBERTa."


def card(
    name: str, checkpoint: Checkpoint, data: Path, parity: Mapping[str, Parity], tolerance: float, plain: bool, tokenizer: str
) -> str:
    """The text of README.md.

    Args:
        name: what the model is called in the example.
        checkpoint: the source.
        data: its data-bin.
        parity: the comparison's result for each implementation of attention.
        tolerance: what it had to keep to.
        plain: whether the export is transformers' own RoBERTa.
        tokenizer: a sentence about how the tokenizer was checked.
    """
    config, head = checkpoint.config, checkpoint.head
    schemes = [f"- **{scheme.name}**: `{scheme.equation}` ({scheme.source})" for scheme in parse(config.positions)]
    if config.position_options:
        schemes.append(f"\nOptions: {', '.join(f'{key} = {value}' for key, value in sorted(config.position_options.items()))}.")
    return TEMPLATE.format(
        pipeline=PIPELINES[head.kind],
        project=TAG,
        tag=config.positions.replace("+", "-"),
        arch=checkpoint.pretrained.arch,
        layers=config.layers,
        dim=config.dim,
        heads=config.heads,
        parameters=sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        version=__version__,
        positions=config.positions,
        schemes="\n".join(schemes),
        kind=head.kind,
        name=name,
        trust="" if plain else ", trust_remote_code=True",
        code=NO_REMOTE_CODE if plain else REMOTE_CODE,
        parity="\n".join(f"- {implementation}: {result}" for implementation, result in parity.items()),
        tolerance=tolerance,
        tokenizer=tokenizer,
        data=_describe_data(data),
        updates="" if checkpoint.updates is None else f"Updates: {checkpoint.updates:,}. ",
        vocabulary=config.vocab_size,
        digest=checkpoint.pretrained.digest,
        arguments=_arguments(checkpoint.pretrained.cfg),
    )


def _describe_data(data: Path) -> str:
    """The data-bin's name and, where ``fairseq-posenc prepare`` has left its record, what is in it."""
    manifest = data / "manifest.json"
    if not manifest.exists():
        return f"`{data.resolve().name}`"
    record = json.loads(manifest.read_text("utf-8"))
    splits = record.get("stages", {}).get("data", {})
    sizes = [
        f"{splits[split]['tokens']:,} tokens of {split}" for split in ("train", "valid") if "tokens" in splits.get(split, {})
    ]
    texts = [Path(text["path"]).name for text in record.get("inputs", {}).get("train", [])]
    named = ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")
    return f"`{data.resolve().name}` ({'; '.join([*sizes, f'from {named}'])})"


def _arguments(cfg: Any) -> str:
    """The run's configuration as YAML, without what was left at None and without folders of the machine it ran on."""
    groups = {}
    for group in filter(cfg.__contains__, GROUPS):
        values = cfg[group]
        if values is None:
            continue
        values = vars(values) if isinstance(values, Namespace) else OmegaConf.to_container(values, resolve=True, enum_to_str=True)
        groups[group] = {
            key: Path(value).name if isinstance(value, str) and "/" in value else value
            for key, value in sorted(values.items())
            if value is not None
        }
    common = {key: cfg.common[key] for key in ("seed", "fp16", "bf16")}
    return OmegaConf.to_yaml(OmegaConf.create({"common": common, **groups}))
