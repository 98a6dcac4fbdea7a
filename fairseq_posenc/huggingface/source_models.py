"""The models that can be imported: those of :data:`.types.MODEL_TYPES` in transformers, and fairseq's released RoBERTa.

Each becomes a :class:`Source`: its parameters under the project's names, its vocabulary in fairseq's order, and the model itself
as the reference.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core.transformer import Encoder, EncoderConfig, PositionSampling
from ..plugin.checkpoint.checkpoint import Checkpoint
from ..plugin.checkpoint.checkpoint_file import config_errors_as_input_errors
from ..plugin.checkpoint.state_dict import CLASSIFICATION, ENCODER, LANGUAGE_MODEL, WORDS, StateDict, load_into
from ..text.vocabulary import DICTIONARY
from . import TOLERANCE
from .model_files import load_model
from .model_types import MODEL_TYPES
from .parity import Parity, compare, head_output, random_batches
from .types.base import TOKEN_TYPES, ModelType
from .vocabularies import SourceVocabulary, read_vocabulary

BY_SYMBOL = (WORDS, f"{LANGUAGE_MODEL}weight", f"{LANGUAGE_MODEL}bias")
"""Parameters with a row for each symbol."""
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Source:
    """A model to be imported.

    Attributes:
        name: the folder or the model's name.
        config: of its encoder; ``positions`` are its own.
        state: its parameters under the project's names, rows of symbols in the dictionary's order.
        vocabulary: its dictionary, and the tokenizer's files.
        kind: of its head, the end of the name of transformers' class; ``Model`` without a head.
        outputs: the model itself: (B, n) tokens -> its head's output, or (B, n, D) hidden states.
        states: the same without the head: (B, n) -> (B, n, D); None for a checkpoint of this project.
        left_out: names of its parameters that are not imported.
        model_options: values of a fairseq model's options beyond the encoder's.
        task_state: what a checkpoint keeps about a classification head: the classes' names and transformers' problem type.
        token_type: (E,) the vector of token type 0, which was added to the position table; None if the model has none.
        max_length: tokens up to which the encoder here is the same function, because it attends to all of them; None for any.
    """

    name: str
    config: EncoderConfig
    state: StateDict
    vocabulary: SourceVocabulary
    kind: str
    outputs: Function
    states: Function | None = None
    left_out: list[str] = field(default_factory=list)
    model_options: dict[str, Any] = field(default_factory=dict)
    task_state: dict[str, Any] = field(default_factory=dict)
    token_type: Tensor | None = None
    max_length: int | None = None

    def encoder(self, tolerance: float = TOLERANCE) -> Encoder:
        """Return the encoder alone, with the source's parameters, in float32 and for evaluation.

        Raises:
            InputError: the source's configuration has an option without an equivalent here, so that outputs differ by more than
                ``tolerance``.
        """
        state = {name.removeprefix(ENCODER): value for name, value in self.state.items() if name.startswith(ENCODER)}
        with config_errors_as_input_errors(self.name):
            encoder = Encoder(self.config).float().eval()
            load_into(encoder, state, f"{self.name} does not fit its own configuration")
        if self.states is not None:
            self.compare(self.states, lambda tokens: encoder(tokens).last_hidden_state, tolerance)
        return encoder

    def compare(self, theirs: Function, ours: Function, tolerance: float = TOLERANCE, length: int = 128) -> Parity:
        """Compare the source with a model of this project on up to ``length`` symbols drawn at random.

        Raises:
            InputError: the outputs differ by more than ``tolerance``.
        """
        sampling = PositionSampling.parse(self.config.position_sampling, self.config.position_evaluation)
        limits = [self.config.max_positions, self.max_length, sampling.max_length if sampling else None]
        dictionary, length = self.vocabulary.dictionary, min(limit for limit in (*limits, length) if limit is not None)
        batches = random_batches(dictionary, [min(16, length), length])
        parity = compare(theirs, ours, batches, dictionary.pad())
        if not parity.difference <= tolerance:
            reason = "config.json may have an option that has no equivalent here, or it computes in less precision (--tolerance)"
            if not math.isfinite(parity.difference):
                reason = "weights hold numbers that are not finite"
            raise InputError(
                f"{self.name}: the imported model is not the source's: outputs differ by {parity.difference:.3g}, and "
                f"{tolerance:g} is allowed. Its {reason}."
            )
        return parity


def read(name: str) -> Source:
    """Read a source by name.

    Args:
        name: a folder with fairseq's ``model.pt`` and ``dict.txt``, a folder of a transformers model, or a model's name.

    Raises:
        InputError, OSError: it cannot be read, or is of an unsupported kind.
    """
    folder = Path(name)
    if (path := folder / "model.pt").exists():
        if not (folder / DICTIONARY).exists():
            raise FileNotFoundError(f"{folder} has a model.pt and no dict.txt: copy the dictionary that was released with it")

        checkpoint = Checkpoint(path, folder)
        if not checkpoint.is_stock:
            raise InputError(
                f"{path} is of the architecture {checkpoint.arch!r}: of fairseq's checkpoints, only its own RoBERTa is imported. "
                "A checkpoint of this package needs no import: continue from it with --finetune-from-model. To give it other "
                "positions, import its export (export-hf) with --positions."
            )
        return of_checkpoint(checkpoint, folder)
    if not folder.exists() and folder.parent != Path() and folder.parent.is_dir():  # else it would be looked for on the hub
        raise FileNotFoundError(f"there is no folder {name}")
    return _read_transformers(name)


def of_checkpoint(checkpoint: Checkpoint, folder: Path) -> Source:
    """Return a checkpoint of this package or of fairseq's own RoBERTa, with its language model's head, as a source.

    Args:
        folder: of its dictionary and tokenizer.

    Raises:
        InputError, OSError: the dictionary is not there or of another model, or the checkpoint has no such head.
    """
    if f"{LANGUAGE_MODEL}weight" not in checkpoint.state:
        raise InputError(f"{checkpoint.path} has no language model's head: name a checkpoint of pretraining")
    vocabulary = SourceVocabulary.of_folder(folder)
    if (words := checkpoint.config.vocab_size) != (symbols := len(vocabulary.dictionary)):
        raise InputError(f"{checkpoint.path} has {words} word embeddings, and {folder / DICTIONARY} {symbols} symbols")
    reference: Function = checkpoint.model
    states: Function | None = None
    if checkpoint.is_stock:
        from ..plugin.models.building import restored

        stock = restored(checkpoint, stock=True)
        reference, states = (lambda tokens: stock(tokens)[0]), (lambda tokens: stock(tokens, features_only=True)[0])
    options = {name: getattr(checkpoint.options, name) for name in ("untie_weights_roberta", *ModelType.pooler)}
    return Source(
        name=str(checkpoint.path),
        config=checkpoint.config,
        state={name: value for name, value in checkpoint.model.state_dict().items() if not name.startswith(CLASSIFICATION)},
        vocabulary=vocabulary,
        kind="MaskedLM",
        outputs=reference,
        states=states,
        model_options={
            name: str(value) if isinstance(value, Enum) else value for name, value in options.items() if value is not None
        },
    )


def _read_transformers(name: str) -> Source:
    model, head, unexpected = load_model(name)
    config, kind = model.config, MODEL_TYPES[model.config.model_type]
    vocabulary = read_vocabulary(name, config.vocab_size)
    order, pad = vocabulary.order, vocabulary.dictionary.pad()
    if kind.counts_from_padding and config.pad_token_id != order[pad]:
        raise InputError(
            f"{name}: config.json has pad_token_id {config.pad_token_id}, and the tokenizer pads with {int(order[pad])}: correct "
            "the one that the model was not trained with"
        )
    prefix = "" if model.base_model is not model else f"{model.base_model_prefix}."
    state = {prefix + key: value for key, value in model.state_dict().items()}
    types = next((value[0] for key, value in state.items() if key.endswith(TOKEN_TYPES)), None)
    task_state: dict[str, Any] = {}
    with config_errors_as_input_errors(f"{name}/config.json"):
        encoder, options = kind.encoder_config(config, vocabulary.dictionary), kind.model_options(config)
        state, others = kind.to_fairseq(state, config)
        if head == "MaskedLM":
            options["untie_weights_roberta"] = not torch.equal(state[WORDS], state[f"{LANGUAGE_MODEL}weight"])
        if head == "SequenceClassification":
            names = [str(config.id2label[number]) for number in sorted(config.id2label)]
            task_state = {"labels": names, "problem_type": config.problem_type}

    def outputs(tokens: Tensor) -> Tensor:
        output = head_output(model(order[tokens], attention_mask=tokens.ne(pad).long()))
        return output[..., order] if head == "MaskedLM" else output

    head_name = getattr(config, "fairseq_head", None) or "sentence_classification_head"
    windows = getattr(config, "attention_window", None)  # Longformer's, one or one for each layer
    return Source(
        name=name,
        config=encoder,
        state={
            key.replace(CLASSIFICATION, f"{CLASSIFICATION}{head_name}."): value[order] if key in BY_SYMBOL else value
            for key, value in state.items()
        },
        vocabulary=vocabulary,
        kind=head,
        outputs=outputs,
        states=lambda tokens: model.base_model(order[tokens], attention_mask=tokens.ne(pad).long()).last_hidden_state,
        left_out=others + unexpected,
        model_options=options,
        task_state=task_state,
        token_type=types,
        max_length=None if windows is None else min(windows if isinstance(windows, list) else [windows]) // 2 + 1,
    )
