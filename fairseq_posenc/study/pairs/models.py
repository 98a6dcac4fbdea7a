"""The models that choose between two sentences: checkpoints of fairseq-train, and models of transformers."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.commands import best_checkpoint, split_label
from ...base.errors import InputError, first_line
from ...base.record import digests
from ...core.families import tells_order
from ...plugin.checkpoint.checkpoint import Checkpoint
from ...text.vocabulary import MASK
from ..measure.work import default_device
from .scoring import Scorer, Sentence, sentence_of


def read(model: str, data_bin: Path | None) -> Scorer:
    """Return the model of ``MODEL`` or ``LABEL=MODEL``: a checkpoint, the folder of a run, or a model of transformers.

    Raises:
        InputError, OSError: there is no such model, or it has no language model's head.
    """
    label, name = split_label(model)
    path = best_checkpoint(Path(name))
    if not path.is_file():
        return _of_transformers(label, name)

    return _of_checkpoint(label, Checkpoint(path, data_bin, "lm", may_be_causal=True))


def _of_checkpoint(label: str, checkpoint: Checkpoint) -> Scorer:
    if checkpoint.head.kind not in ("MaskedLM", "CausalLM"):
        raise InputError(f"{checkpoint.path} has no language model's head, which scores sentences: name another")
    vocabulary, device = checkpoint.vocabulary, default_device()
    dictionary, model = vocabulary.dictionary, checkpoint.model.to(device)

    def encode(text: str) -> Sentence:
        encoding = vocabulary.encode(text)
        if checkpoint.is_causal:
            ids, begins = [checkpoint.start, *encoding.ids.tolist()], [0, *encoding.begins.tolist()]
            return sentence_of(text, ids, begins, (True, *[False] * len(encoding.ids)))
        ends = (True, *[False] * len(encoding.ids), True)
        return sentence_of(text, vocabulary.join(encoding.ids).tolist(), [0, *encoding.begins.tolist(), 0], ends)

    def logits(tokens: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        chosen = torch.zeros(tokens.shape, dtype=torch.bool)
        chosen[rows, places] = True
        return model(tokens.to(device), chosen.to(device))

    symbols = dictionary.pad(), None if checkpoint.is_causal else dictionary.index(MASK), dictionary.unk()
    ordered = checkpoint.is_causal or tells_order(checkpoint.positions, checkpoint.config.mask_decoder_steps)
    return Scorer(label, encode, logits, *symbols, checkpoint.max_predicted, checkpoint.digest, ordered)


def _of_transformers(label: str, name: str) -> Scorer:
    import transformers

    from ...huggingface import auto  # noqa: F401 - registers this package's classes

    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        kind = _class_of(config)
        if kind is None:
            raise InputError(f"{name} is of the type {config.model_type} without a language model's head: name another")
        model, loaded = kind.from_pretrained(name, config=config, trust_remote_code=False, output_loading_info=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(f"{name} is no checkpoint, and transformers cannot read it: {first_line(error)}") from error
    if missing := loaded["missing_keys"]:
        raise InputError(f"{name} has no {', '.join(sorted(missing)[:3])}, which its language model needs")
    if not tokenizer.is_fast:
        raise InputError(f"the tokenizer of {name} does not tell where a token is in the text: it has no tokenizer.json")
    causal, device = kind is transformers.AutoModelForCausalLM, default_device()
    if not causal and tokenizer.mask_token_id is None:
        raise InputError(f"the tokenizer of {name} has no mask symbol")
    model = model.float().eval().to(device)
    pad = next(symbol for symbol in (tokenizer.pad_token_id, tokenizer.eos_token_id, 0) if symbol is not None)
    start = tokenizer.bos_token_id if causal else None

    def encode(text: str) -> Sentence:
        encoding = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        ids, begins = encoding["input_ids"], [begin for begin, _ in encoding["offset_mapping"]]
        special = [bool(mark) for mark in encoding["special_tokens_mask"]]
        if start is not None and ids[:1] != [start]:  # so that the first token is predicted too
            ids, begins, special = [start, *ids], [0, *begins], [True, *special]
        return sentence_of(text, ids, begins, special)

    def logits(tokens: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        attended = torch.arange(tokens.shape[1]) < lengths(tokens)[:, None]
        output = model(input_ids=tokens.to(device), attention_mask=attended.long().to(device)).logits
        return output[rows, places]

    def lengths(tokens: Tensor) -> Tensor:
        """The number of tokens of each row; padding is at the end, and may be a symbol that sentences have as well."""
        return tokens.shape[1] - (tokens != pad).flip(1).int().argmax(1)

    symbols = pad, None if causal else tokenizer.mask_token_id, tokenizer.unk_token_id
    files = sorted(path for path in Path(name).glob("*") if path.is_file()) if Path(name).is_dir() else []
    identity = digests({path.name: path for path in files}) or name
    return Scorer(label, encode, logits, *symbols, _max_length(model, tokenizer), identity)


def _class_of(config: Any) -> Any:
    """Return the Auto class of a language model's head, or None."""
    import transformers
    from transformers.models.auto import modeling_auto

    named = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type) in (config.architectures or ())
    causal = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if causal and (named or getattr(config, "is_decoder", False)):
        return transformers.AutoModelForCausalLM
    known = type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING
    return transformers.AutoModelForMaskedLM if known else transformers.AutoModelForCausalLM if causal else None


def _max_length(model: Any, tokenizer: Any) -> int | None:
    """Return the number of tokens that a model of transformers takes; None for any."""
    from ...huggingface.configuration import PosencConfig

    if isinstance(model.config, PosencConfig):
        return model.decoder.max_length if model.config.is_decoder else model.base_model.encoder.max_predicted
    tables = (module for name, module in model.named_modules() if name.endswith((".position_embeddings", ".wpe")))
    rows = [len(table.weight) - (-1 if table.padding_idx is None else table.padding_idx) - 1 for table in tables]
    limits = [*rows, tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    return min((limit for limit in limits if limit is not None and limit < 10**9), default=None)
