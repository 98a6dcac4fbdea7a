"""The models that can be imported.

They are transformers' RoBERTa, BERT, ALBERT, DeBERTa v2 or v3 and ELECTRA's encoder, this project's exports, and fairseq's
released RoBERTa. Each becomes a :class:`Source`: its parameters under the project's names, its vocabulary in fairseq's order,
and the model itself as the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, RobertaConfig

from ..errors import InputError
from ..models.checkpoint import Checkpoint, explained
from ..models.state import CLASSIFICATION, ENCODER, LANGUAGE_MODEL, WORDS, StateDict, load_into
from ..models.stock import from_stock
from ..transformer import ACTIVATIONS, Encoder, EncoderConfig
from ..transformer.config import TRANSFORMERS
from . import names
from .configuration import PosencConfig
from .model_files import load_model, read_config, read_weights
from .parity import TOLERANCE, Parity, compare, random_batches
from .vocabularies import SourceVocabulary, read_vocabulary

KINDS = ("MaskedLM", "SequenceClassification", "QuestionAnswering")
ROBERTA_LIKE = ("roberta", "xlm-roberta", "camembert")
POOLER = {  # options of a fairseq model, by the names that transformers' configurations have for them
    "pooler_activation_fn": ("pooler_activation", "pooler_hidden_act"),
    "pooler_dropout": ("pooler_dropout", "classifier_dropout_prob", "classifier_dropout"),
}


@dataclass(frozen=True)
class Source:
    """A model to be imported.

    Attributes:
        name: the folder or the model's name.
        config: of its encoder; ``positions`` are its own.
        state: its parameters under the project's names, rows of symbols in the dictionary's order.
        vocabulary: its dictionary, and the tokenizer's files.
        kind: of its head, as transformers' classes end; ``Model`` where it has none.
        outputs: the model itself: (B, n) tokens -> its head's output, or (B, n, D) hidden states.
        states: the same without the head: (B, n) -> (B, n, D); None for a checkpoint of this project.
        left_out: names of its parameters that have no place here.
        model_flags: values of a fairseq model's options beyond the encoder's.
        token_type: (E,) the vector of token type 0, which the position table has taken in; None where there is none.
        max_length: tokens up to which the encoder here, whose attention sees all of a sequence, is the same function; None for
            any number.
    """

    name: str
    config: EncoderConfig
    state: StateDict
    vocabulary: SourceVocabulary
    kind: str
    outputs: Callable[[Tensor], Tensor]
    states: Callable[[Tensor], Tensor] | None = None
    left_out: list[str] = field(default_factory=list)
    model_flags: dict[str, Any] = field(default_factory=dict)
    token_type: Tensor | None = None
    max_length: int | None = None

    def encoder(self) -> Encoder:
        """The encoder alone, with the source's parameters, in float32 and for evaluation.

        Raises:
            InputError: it is not the source's, whose configuration has something that has no equivalent here.
        """
        state = {name.removeprefix(ENCODER): value for name, value in self.state.items() if name.startswith(ENCODER)}
        with explained(self.name):
            encoder = Encoder(self.config).float().eval()
            load_into(encoder, state, "the source does not fit its own configuration")
        if self.states is not None:
            self.compare(self.states, lambda tokens: encoder(tokens).last)
        return encoder

    def compare(
        self, theirs: Callable[[Tensor], Tensor], ours: Callable[[Tensor], Tensor], tolerance: float = TOLERANCE
    ) -> Parity:
        """Compare the source with a model of this project on symbols drawn at random.

        Raises:
            InputError: the outputs differ by more than ``tolerance``.
        """
        dictionary, longest = self.vocabulary.dictionary, min(self.config.max_positions, self.max_length or 128)
        batches = random_batches(dictionary, [min(16, longest), min(128, longest)])
        parity = compare(theirs, ours, batches, dictionary.pad())
        if not parity.difference <= tolerance:
            raise InputError(
                f"{self.name}: the imported model is not the source's: outputs differ by {parity.difference:.3g}, and "
                f"{tolerance:g} is allowed. Its config.json has an option that has no equivalent here."
            )
        return parity


def read(name: str) -> Source:
    """Read a source by name.

    Args:
        name: a folder with fairseq's ``model.pt`` and ``dict.txt``, a folder of a transformers model, or a model's name.

    Raises:
        InputError, OSError: it cannot be read, or is of a kind that has no place here.
    """
    folder = Path(name)
    if (folder / "model.pt").exists():
        return _read_fairseq(folder)
    if not folder.exists() and folder.parent != Path() and folder.parent.is_dir():  # else it would be looked for on the hub
        raise FileNotFoundError(f"there is no folder {name}")
    return _read_transformers(name)


def of_checkpoint(path: Path, data_bin: Path | None) -> Source:
    """A checkpoint of this package, with its language model's head, as a source.

    Args:
        path: the file.
        data_bin: the folder of its vocabulary; by default the one that it was trained on.

    Raises:
        InputError, OSError: not such a checkpoint, not its vocabulary, or it has no such head.
    """
    checkpoint = Checkpoint(path, data_bin)
    if f"{LANGUAGE_MODEL}dense.weight" not in checkpoint.state:
        raise InputError(f"{path} has no language model's head: name a checkpoint of pretraining")
    model = checkpoint.model
    own = {name: getattr(model.args, name) for name in ("untie_weights_roberta", "pooler_activation_fn", "pooler_dropout")}
    return Source(
        name=str(path),
        config=model.encoder.sentence_encoder.config,
        state={name: value for name, value in model.state_dict().items() if not name.startswith(CLASSIFICATION)},
        vocabulary=SourceVocabulary.of_folder(checkpoint.vocabulary.folder),
        kind="MaskedLM",
        outputs=lambda tokens: model(tokens)[0],
        model_flags={name: str(value) if isinstance(value, Enum) else value for name, value in own.items()},
    )


def _read_fairseq(folder: Path) -> Source:
    path = folder / "model.pt"
    if not (folder / "dict.txt").exists():
        raise FileNotFoundError(f"{folder} has a model.pt and no dict.txt: put the dictionary that was released with it there")
    checkpoint = Checkpoint(path, folder)
    if not checkpoint.is_stock:
        raise InputError(
            f"{path} is of the architecture {checkpoint.arch!r}: beside a dict.txt, only fairseq's own RoBERTa is imported. A "
            "checkpoint of this package's needs no import: train on from it with --finetune-from-model."
        )
    vocabulary = SourceVocabulary.of_folder(folder)
    if checkpoint.config.vocab_size != (size := len(vocabulary.dictionary)):
        raise InputError(f"{path} has {checkpoint.config.vocab_size} word embeddings, and {folder / 'dict.txt'} {size} symbols")
    model = checkpoint.stock_model()
    return Source(
        name=str(folder),
        config=checkpoint.config,
        state=from_stock(model.state_dict(), vocabulary.dictionary.pad()),
        vocabulary=vocabulary,
        kind="MaskedLM",
        outputs=lambda tokens: model(tokens)[0],
        states=lambda tokens: model(tokens, features_only=True)[0],
        model_flags={"untie_weights_roberta": bool(getattr(model.args, "untie_weights_roberta", False))},
    )


def _read_transformers(name: str) -> Source:
    config, weights, left_out = read_config(name), read_weights(name), []
    with explained(f"{name}/config.json"):
        config, max_length = _as_roberta(config)
        if max_length is not None:
            left_out += [key for key in weights if "_global." in key]
            weights = {key.replace("longformer.", "roberta.", 1): value for key, value in weights.items() if key not in left_out}
        if config.model_type == "deberta-v2":
            _settle_head(config, weights)
        kind = _kind(config)
    model, unexpected = load_model(name, config, kind, weights)
    vocabulary = read_vocabulary(name, config.vocab_size, config.model_type)
    order, pad = vocabulary.order, vocabulary.dictionary.pad()
    model_type = "roberta" if config.model_type in ROBERTA_LIKE else config.model_type
    prefix = "" if model.base_model is not model else f"{model.base_model_prefix}."
    state = {prefix + key: value for key, value in model.state_dict().items()}
    types = state.get(f"{model.base_model_prefix}.embeddings.token_type_embeddings.weight")
    with explained(f"{name}/config.json"):
        state, others = names.from_transformers(state, model_type, int(order[pad]))
        encoder_config, flags = _encoder_config(config, model_type, vocabulary), _model_flags(config, kind)

    def outputs(tokens: Tensor) -> Tensor:
        output = model(order[tokens], attention_mask=tokens.ne(pad).long())
        if kind == "QuestionAnswering":
            return torch.stack([output.start_logits, output.end_logits], dim=-1)
        if kind == "Model":
            return output.last_hidden_state
        return output.logits[..., order] if kind == "MaskedLM" else output.logits

    head_name = getattr(config, "fairseq_head", None) or "sentence_classification_head"
    return Source(
        name=name,
        config=encoder_config,
        state=names.name_head(_reorder(state, order), head_name),
        vocabulary=vocabulary,
        kind=kind,
        outputs=outputs,
        states=lambda tokens: model.base_model(order[tokens], attention_mask=tokens.ne(pad).long()).last_hidden_state,
        left_out=left_out + others + unexpected,
        model_flags=flags,
        token_type=None if types is None else types[0],
        max_length=max_length,
    )


def _as_roberta(config: PretrainedConfig) -> tuple[PretrainedConfig, int | None]:
    """A Longformer's configuration (Beltagy et al. 2020) as a RoBERTa's, and the maximum length; any other unchanged, and None.

    On sequences of no more than half a window and one token, the two are the same function.
    """
    if config.model_type != "longformer":
        return config, None
    windows = config.attention_window if isinstance(config.attention_window, list) else [config.attention_window]
    return RobertaConfig.from_dict({**config.to_dict(), "model_type": "roberta"}), min(window // 2 + 1 for window in windows)


def _settle_head(config: PretrainedConfig, weights: StateDict) -> None:
    """Set which of DeBERTa's two language-model heads the weights have, which published configurations do not state."""
    found = [head for head in ("lm_predictions.", "cls.predictions.") if any(name.startswith(head) for name in weights)]
    if len(found) == 1:
        config.legacy = found == ["cls.predictions."]
        config.architectures = config.architectures or ["DebertaV2ForMaskedLM"]


def _kind(config: PretrainedConfig) -> str:
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if positions != "absolute":  # transformers 5 ignores it
        raise InputError(f"position_embedding_type {positions!r} cannot be imported, only 'absolute'")
    if config.model_type == "electra":
        return "Model"  # its heads, a generator's and a discriminator's of replaced words, have no equivalent here
    architecture = str((config.architectures or [""])[0]).replace("ForPreTraining", "ForMaskedLM")
    return next((kind for kind in KINDS if architecture.endswith(f"For{kind}")), "Model")


def _encoder_config(config: PretrainedConfig, model_type: str, vocabulary: SourceVocabulary) -> EncoderConfig:
    if isinstance(config, PosencConfig):
        return config.encoder_config()
    dictionary = vocabulary.dictionary
    values = {name: getattr(config, option) for name, option in TRANSFORMERS.items()}
    if model_type == "roberta":  # whose table begins with rows that no token uses
        values["max_positions"] -= int(vocabulary.order[dictionary.pad()]) + 1
    elif model_type == "deberta-v2":
        clip, buckets = config.max_relative_positions, config.position_buckets
        values["positions"] = "deberta"
        values["position_options"] = {
            **names.ORIGINAL_DEBERTA,
            "deberta_norm_eps": config.layer_norm_eps,
            "max_relative_position": clip if clip > 0 else config.max_position_embeddings,
            **({"deberta_buckets": buckets} if buckets > 0 else {}),
        }
    elif model_type == "albert":
        values["activation"] = names.ALBERT_ACTIVATIONS.get(config.hidden_act, config.hidden_act)
        values |= {"embed_dim": config.embedding_size, "layer_groups": config.num_hidden_groups}
    elif model_type == "electra":
        values["embed_dim"] = config.embedding_size if config.embedding_size != config.hidden_size else 0
    return EncoderConfig(vocab_size=len(dictionary), padding_idx=dictionary.pad(), separator_idx=dictionary.eos(), **values)


def _model_flags(config: PretrainedConfig, kind: str) -> dict[str, Any]:
    untied = kind == "MaskedLM" and not config.tie_word_embeddings and getattr(config, "legacy", True)
    flags: dict[str, Any] = {"untie_weights_roberta": untied}
    for flag, options in POOLER.items():
        values = [value for option in options if (value := getattr(config, option, None)) is not None]
        if values:
            flags[flag] = values[0]
    if (act := flags.get("pooler_activation_fn", "tanh")) not in ACTIVATIONS:
        raise InputError(f"the pooler's activation {act!r} has no equivalent here, only {', '.join(ACTIVATIONS)}")
    return flags


def _reorder(state: StateDict, order: Tensor) -> StateDict:
    """Rows of symbols from the source's order into the dictionary's."""
    by_symbol = (WORDS, f"{LANGUAGE_MODEL}weight", f"{LANGUAGE_MODEL}bias")
    return {name: value[order] if name in by_symbol else value for name, value in state.items()}
