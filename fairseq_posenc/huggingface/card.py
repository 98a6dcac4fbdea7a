"""The model card of an export: the model, its use, its evaluation, and how it was compared with the checkpoint.

Names and paths are read from files, and may contain a password, end the YAML block or form a link. So the card has only names in
plain characters.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult, ModelCardData

from ..base.version import __version__
from ..core.families import architectures
from ..core.schemes import parse
from ..plugin.checkpoint.checkpoint import Checkpoint
from ..text.data.folder import read
from .parity import Parity

if TYPE_CHECKING:
    from .conversion import Exported
    from .export_command import Options

USES = {  # of a head: transformers' name of the task, and an example
    "MaskedLM": ("fill-mask", '"The <mask> is blue."'),
    "Seq2SeqLM": ("translation", ""),
    "CausalLM": ("text-generation", '"The sky is", max_new_tokens=20'),
    "SequenceClassification": ("text-classification", '"The sky is blue."'),
    "QuestionAnswering": ("question-answering", ""),
}
NAME = re.compile(r"\w[\w.+ -]{0,79}")
KINDS = {"CausalLM": ("decoder", "padding"), "Seq2SeqLM": ("encoder and decoder", "padding")}
"""Of models that have a decoder: what they are, and what the inputs have on which they were compared."""
TRANSLATE = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained({name}), AutoModelForSeq2SeqLM.from_pretrained({name})
translated = model.generate(**tokenizer("A sentence.", return_tensors="pt"), num_beams=4, max_new_tokens=200)
print(tokenizer.batch_decode(translated, skip_special_tokens=True))"""
ANSWER = """from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained({name}), AutoModelForQuestionAnswering.from_pretrained({name})
inputs = tokenizer("What is blue?", "The sky is blue.", return_tensors="pt")
scores = model(**inputs)
print(tokenizer.decode(inputs.input_ids[0, scores.start_logits.argmax() : scores.end_logits.argmax() + 1]))"""
PROGRAMS = {"Seq2SeqLM": TRANSLATE, "QuestionAnswering": ANSWER}
"""For heads without a pipeline in transformers 5."""
NO_TOKENIZER = "No tokenizer was exported."
REMOTE_CODE = """The model's code is `modeling_posenc.py`, which needs PyTorch, transformers and what schemes of other packages
import. Where fairseq_posenc is installed, `import fairseq_posenc.huggingface.auto` registers the same classes, and
`trust_remote_code` is not needed."""


def card(
    options: Options, checkpoint: Checkpoint, data: Path, parity: Mapping[str, Parity], exported: Exported, tokenizer: str
) -> str:
    """Return the text of README.md.

    Args:
        options: of the command, whose output folder has the model's name.
        data: the checkpoint's data-bin.
        parity: the result of the comparison for each implementation of attention.
        exported: the model in transformers.
        tokenizer: a sentence about how the tokenizer was checked, or :data:`NO_TOKENIZER`.
    """
    config, tuned, own_type = checkpoint.config, fine_tuned_on(checkpoint), exported.title
    pipeline, example = USES[checkpoint.head.kind]
    known = architectures().get(checkpoint.arch)
    title = checkpoint.arch if known is None or known.expression else f"{checkpoint.arch}: {config.positions}"
    title += f", fine-tuned on {tuned}" if tuned else ""
    languages = options.language.split(",") if options.language else []
    evaluation = _evaluation(checkpoint, pipeline, tuned or _file_name(data.resolve()) or "data-bin")
    metadata = ModelCardData(
        language=languages or None,
        license=options.license,
        library_name="transformers",
        pipeline_tag=pipeline,
        tags=["fairseq-posenc", *(scheme.name for scheme in parse(config.positions))],
        model_name=title,
        eval_results=evaluation,
    )
    corpus, length = _describe(data), f"up to {usual_length(checkpoint, exported.any_length):,} tokens"
    layers = f"{config.layers} + {checkpoint.options.decoder_layers}" if checkpoint.translates else f"{config.layers}"
    facts = {
        "Size": f"{layers} layers of width {config.dim} with {config.heads} heads, {config.vocab_size:,} symbols, "
        f"{sum(parameter.numel() for parameter in checkpoint.model.parameters()):,} parameters",
        "Sequence length": f"any; trained on {length}" if exported.any_length else length,
        "Training data": f"{tuned}, after pretraining on {corpus}" if tuned else corpus,
        "Score": "a similarity from 0 to 5, divided by 5" if tuned == "STS-B" else "",
        "Classes": ", ".join(filter(NAME.fullmatch, checkpoint.labels)),
        "Updates": "" if checkpoint.updates is None else f"{checkpoint.updates:,}",
        "Validation": "",
        "Language": ", ".join(languages) or "not stated",
        "Licence": options.license or "not stated",
    }
    for result in evaluation or ():
        facts["Validation"] = f"{result.metric_type} {result.metric_value:g}"
        if result.metric_type == "loss" and not tuned and not getattr(checkpoint.section("criterion"), "label_smoothing", 0):
            facts["Validation"] += f" bits per predicted token (perplexity {2 ** min(result.metric_value, 99):.4g})"
    kind, inputs = KINDS.get(checkpoint.head.kind, ("encoder", "masks and padding"))
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items() if value)
    name = json.dumps(options.out.resolve().name) + ("" if own_type else ", trust_remote_code=True")
    loaded = f"AutoModelFor{checkpoint.head.kind}"
    use = f"from transformers import {loaded}\n\nmodel = {loaded}.from_pretrained({name})"
    if tokenizer != NO_TOKENIZER and checkpoint.head.kind in PROGRAMS:
        use = PROGRAMS[checkpoint.head.kind].format(name=name)
    elif tokenizer != NO_TOKENIZER:
        use = f'from transformers import pipeline\n\npipe = pipeline("{pipeline}", {name})\npipe({example})'
    differences = "\n".join(f"- {implementation}: {result}" for implementation, result in parity.items())
    return f"""---
{metadata.to_yaml()}
---

# {title}

A transformer {kind} with `{config.positions}` positions, trained with [fairseq](https://github.com/facebookresearch/fairseq) and
fairseq_posenc.

| | |
|---|---|
{rows}

## Use

```python
{use}
```

{f"This is transformers' own {own_type}." if own_type else REMOTE_CODE}

## Export

fairseq_posenc {__version__} exported this model from the checkpoint with the SHA-256 `{checkpoint.digest}`.
Both models were run in float32 on batches of the training data's text with {inputs}. Their outputs differ by:

{differences}

The export fails if they differ by more than {options.tolerance:g}. {tokenizer}
"""


def usual_length(checkpoint: Checkpoint, any_length: bool) -> int:
    """Return the number of tokens that a model and its export take or, if they take any number, that it was trained on."""
    length = checkpoint.length if checkpoint.inductive else checkpoint.config.max_positions
    return length if any_length else min(length, checkpoint.config.max_positions, checkpoint.max_length)


def _file_name(path: Any) -> str:
    """Return the last part of a path or an address, if it is plain."""
    name = re.split(r"[/\\]", str(path).rstrip("/\\"))[-1]
    return name if NAME.fullmatch(name) else ""


def fine_tuned_on(checkpoint: Checkpoint) -> str:
    """Return the name of the data that a pretrained model was fine-tuned on; empty for a pretrained model."""
    task = checkpoint.task
    pretrained = str(getattr(task, "_name", None) or getattr(task, "task", "")).startswith(
        ("masked_lm", "language_modeling", "translation")
    )
    return "" if pretrained else _file_name(getattr(task, "data", ""))


def _describe(data: Path) -> str:
    """Return the data-bin's name and, where ``fairseq-posenc prepare`` wrote its manifest, what it was made from."""
    name, manifest = _file_name(data.resolve()) or "a data-bin", read(data)
    if not manifest.inputs:
        return name
    sizes = [f"{totals['tokens']:,} tokens of {split}" for split, totals in manifest.totals().items()]
    texts = manifest.texts()
    named = list(filter(None, map(_file_name, texts)))[:5]
    if others := len(texts) - len(named):
        named.append(f"{others} more" if named else f"{others} texts")
    return f"{name} ({'; '.join([*sizes, 'from ' + ', '.join(named)])})"


def _evaluation(checkpoint: Checkpoint, pipeline: str, data: str) -> list[EvalResult] | None:
    """Return the checkpoint's result on the validation text of ``data``; None where there is none."""
    metric = str(getattr(checkpoint.section("checkpoint"), "best_checkpoint_metric", "loss"))
    score = checkpoint.extra_state.get("val_loss")
    if not (isinstance(score, (int, float)) and math.isfinite(score) and NAME.fullmatch(metric)):
        return None
    return [EvalResult(pipeline, data, data, metric, float(score), dataset_split="valid")]
