"""A checkpoint of fairseq's trainer: its model, heads, vocabulary and encoder."""

import os
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.errors import InputError, sentence
from ...base.files import sha256
from ...core.families import FAMILIES, TRANSFORMER, TRANSFORMER_LM, architectures
from ...core.transformer import Decoder, DecoderConfig, Encoder, EncoderConfig, Stack
from ...text.vocabulary import DICTIONARY, VOCABULARY, Dictionary, Vocabulary, add_from_file, differing, fingerprint
from ..options.option_set import ENCODER_OPTIONS, LANGUAGE_MODEL_OPTIONS, TRANSLATION_OPTIONS, UNLIMITED, decoder_config
from .checkpoint_file import config_errors_as_input_errors, load, no_checkpoint, write
from .model import EncoderModel, LanguageModel, TranslationModel
from .state_dict import (
    CLASSIFICATION,
    DECODER_WORDS,
    ENCODER,
    LONGEST,
    SENTENCE_ORDER,
    SOURCE_WORDS,
    SPANS,
    WORDS,
    StateDict,
    class_sizes,
    count_layers,
    head_names,
    load_into,
)
from .stock import from_stock, our_options
from .trust import OURS, Untrusted, user_dir

WITH_DECODER = {TRANSFORMER.model: TRANSLATION_OPTIONS, TRANSFORMER_LM.model: LANGUAGE_MODEL_OPTIONS}
"""The options of the models that have a decoder, by fairseq's name."""


@dataclass(frozen=True)
class Head:
    """One of a model's heads."""

    kind: str  # the end of the name of transformers' class: MaskedLM, SequenceClassification, …
    name: str | None = None  # of a classification head
    outputs: int = 0  # number of classes


class Checkpoint:
    """A checkpoint of one of this package's encoders, or of fairseq's own RoBERTa; if asked for, of other models of this package.

    Args:
        data_bin: the folder of its vocabulary; by default the data-bin that it was trained on.
        head: the name of a classification head, or ``lm``; by default the only classification head if there is one (the
            prediction of the order of sentences does not count), else the language model's.
        with_tokenizer: whether its vocabulary has a tokenizer, which the data-bin may lack.
        may_be_causal: whether a language model that reads from left to right will do.
        may_translate: whether a model of translation will do.

    Attributes:
        configuration: the configuration of the run, with its sections ``model``, ``task``, …
        task: the options of the task.
        given: the options of the model, as the file has them.
        options: the same, completed, as those of this package's model.
        model_name: fairseq's name of the model.
        arch: the name of the architecture.
        state: the parameters, under this package's names.
        is_causal: whether it is a language model that reads from left to right.
        translates: whether it is an encoder and a decoder.
        has_decoder: whether it is either of them.
        config: the config of the encoder, also of a model of translation, or of a language model's decoder.
        positions: the expression of its positions.
        max_length: tokens of the longest sequence that the model takes: the rows of its table of positions, or almost any number.
        max_predicted: of the longest in which it predicts words, by the table of an enhanced mask decoder, too.
        inductive: whether its positions take longer texts than those of its training.
        updates: the number of updates of its training; None if the file does not record it.
        task_state, extra_state: what the task and the trainer have saved.

    Raises:
        InputError: the file is not such a checkpoint, or its configuration does not describe a model with these parameters.
        OSError: the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        data_bin: Path | None = None,
        head: str | None = None,
        with_tokenizer: bool = True,
        may_be_causal: bool = False,
        may_translate: bool = False,
    ) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"there is no checkpoint {path}: name a file, as fairseq-train writes them")
        self.path = path
        self._data_bin, self._head, self._with_tokenizer = data_bin, head, with_tokenizer
        self._content = _content(path)
        self.configuration: Mapping[str, Any] = self._content.get("cfg") or {}
        for name in ("model", "task"):
            if not isinstance(self.configuration.get(name), (Mapping, Namespace)):
                raise no_checkpoint(path, f"it has no configuration of the {name}")
        own = getattr(self.section("common"), "user_dir", None)
        cause = f"--user-dir {own} was given when {path} was trained, and is missing now: " if own and not user_dir() else ""
        with config_errors_as_input_errors(path, cause):
            self.task, self.given = self.section("task"), self.section("model")
            self.arch = str(getattr(self.given, "_name", None) or self.given.arch)
            self.model_name = _model_name(self.arch)
        if self.model_name not in {*OURS, *FAMILIES}:
            raise Untrusted(
                f"{cause}{path} names the model {self.arch!r}, which is none of this package's, nor fairseq's RoBERTa"
            )
        self._kind = WITH_DECODER.get(self.model_name, ENCODER_OPTIONS)
        self.is_causal, self.translates = self._kind is LANGUAGE_MODEL_OPTIONS, self._kind is TRANSLATION_OPTIONS
        self.has_decoder = self.is_causal or self.translates
        if (self.is_causal and not may_be_causal) or (self.translates and not may_translate):
            raise InputError(
                f"{path} is of the architecture {self.arch!r}, which has a decoder, and here an encoder (roberta_…, "
                "albert_…, modernbert_…) is needed; fairseq-generate and fairseq-eval-lm run it, and export-hf exports it"
            )
        self.state: StateDict = {  # checkpoints of old releases of fairseq call their encoder decoder
            f"en{name[2:]}" if name.startswith("decoder.") and not self.has_decoder else name: value
            for name, value in from_stock(self._content["model"]).items()
        }
        words = DECODER_WORDS if self.is_causal else SOURCE_WORDS if self.translates else WORDS
        if words not in self.state or self.state[words].dim() != 2:
            raise InputError(f"{path} is of the architecture {self.arch!r} and has no {words}: it is damaged")
        with config_errors_as_input_errors(path, cause):
            self.options = self._completed()
            core = self._described_core(*self.state[words].shape)
        self.config: EncoderConfig = core.config
        self.positions: str = core.positions.expression
        self.max_length, self.inductive = core.max_length or UNLIMITED, core.positions.inductive
        self.max_predicted = core.max_predicted or UNLIMITED
        history = self._content.get("optimizer_history")
        self.updates: int | None = history[-1].get("num_updates") if history else None
        self.task_state: dict[str, Any] = self._content.get("task_state") or {}
        self.extra_state: dict[str, Any] = self._content["extra_state"]

    @cached_property
    def digest(self) -> str:
        """The hexadecimal SHA-256 of the file, which is read once."""
        return sha256(self.path)

    @property
    def is_stock(self) -> bool:
        """Whether it is fairseq's own RoBERTa."""
        return self.model_name in OURS

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary; raises InputError or FileNotFoundError unless it is the one of the training."""
        data, folder = getattr(self.task, "data", None), self._folder
        advice = "Name the folder of its dictionary and tokenizer with --data-bin."
        try:
            name = f"dict.{self.languages[0]}.txt" if self.translates else DICTIONARY
            vocabulary = Vocabulary(folder, self._with_tokenizer, not self.has_decoder, name)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.path} was trained on {data}, and {sentence(error)}. {advice}") from error
        if self.config.vocab_size != (size := len(vocabulary.dictionary)):
            raise InputError(
                f"{self.path} has {self.config.vocab_size} word embeddings and the dictionary in {folder} has {size} symbols: "
                f"another vocabulary. {advice}"
            )
        if names := differing(self.task_state.get(VOCABULARY), fingerprint(vocabulary.dictionary, folder)):
            raise InputError(f"{self.path} was trained with another vocabulary than {folder} ({', '.join(names)}). {advice}")
        return vocabulary

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of the source and the target: those given, or inferred from the data-bin's files, as by fairseq."""
        given: tuple[Any, Any] = getattr(self.task, "source_lang", None), getattr(self.task, "target_lang", None)
        if None not in given:
            return given
        found = re.findall(r"^[^.]+\.([^.-]+)-([^.-]+)\.", "\n".join(sorted(os.listdir(self._folder))), re.MULTILINE)
        if not found:
            raise FileNotFoundError(f"{self._folder} has no files of two languages, such as valid.en-de.en.idx")
        return found[0]

    @property
    def _folder(self) -> Path:
        """The data-bin."""
        return self._data_bin or Path(str(getattr(self.task, "data", None)).split(os.pathsep)[0])

    @property
    def start(self) -> int:
        """What stands before the first word of a text: ``<s>``, or for a decoder without ``--add-bos-token`` ``</s>``."""
        dictionary, begins = self.vocabulary.dictionary, getattr(self.task, "add_bos_token", False)
        return dictionary.eos() if self.has_decoder and not begins else dictionary.bos()

    @property
    def heads(self) -> list[str]:
        """The names of its classification heads."""
        return head_names(self.state)

    @cached_property
    def head(self) -> Head:
        """The head that was named, or the default; raises InputError if it does not exist, or several do and none was named."""
        if self.has_decoder or f"{SPANS}weight" in self.state:
            if self._head is not None and not (self.is_causal and self._head == "lm"):
                raise InputError(f"--head {self._head}: {self.path} has a single head: leave it out")
            return Head("CausalLM" if self.is_causal else "Seq2SeqLM" if self.translates else "QuestionAnswering")
        usual = [name for name in self.heads if name != SENTENCE_ORDER]
        if self._head is None and len(usual) > 1:
            raise InputError(f"{self.path} has the heads {', '.join(self.heads)}: name one, or lm (language model), with --head")
        if self._head == "lm" or (self._head is None and not usual):
            return Head("MaskedLM")
        name = self._head or usual[0]
        if name not in self.heads:
            raise InputError(f"--head {name}: {self.path} has no such head, only {', '.join(['lm', *self.heads])}")
        projection = f"{CLASSIFICATION}{name}.out_proj.weight"
        if projection not in self.state or self.state[projection].dim() != 2:
            raise InputError(f"{self.path}: its head {name} has no {projection}. It is damaged: use another, or --head")
        return Head("SequenceClassification", name, len(self.state[projection]))

    @property
    def labels(self) -> list[str]:
        """The names of the classes of :attr:`head`: the checkpoint's, those of its data if they exist, or LABEL_0 and so on."""
        outputs, found = self.head.outputs, self.task_state.get("labels")
        folder = Path(str(getattr(self.task, "data", "")), "label")
        if not found and (folder / DICTIONARY).exists():
            dictionary = Dictionary()
            add_from_file(dictionary, folder / DICTIONARY)
            found = dictionary.symbols[dictionary.nspecial :][:outputs]
        if isinstance(found, list) and len(found) == outputs and all(isinstance(label, str) for label in found):
            return found
        return [f"LABEL_{i}" for i in range(outputs)]

    @property
    def length(self) -> int:
        """The number of tokens per sample in its training, or in fine-tuning if that had longer ones.

        Raises:
            InputError: the file has no valid number.
        """
        length = getattr(self.task, "tokens_per_sample", None) or self.config.max_positions
        longest = self.task_state.get(LONGEST, 0)
        if not isinstance(length, int) or length < 1 or not isinstance(longest, int):
            found = f"tokens_per_sample = {length!r} and {LONGEST} = {longest!r}"
            raise InputError(f"{self.path}: its configuration has {found}. It is damaged: use another.")
        return max(length, longest)

    def section(self, name: str) -> Any:
        """Return a section of the configuration, such as ``checkpoint``, as a namespace; None if it is missing."""
        section = self.configuration.get(name)
        return Namespace(**section) if isinstance(section, Mapping) else section

    def logits(self, tokens: Tensor) -> Tensor:
        """Return the output of :attr:`head` for (B, n) tokens: (B, n, vocabulary), (B, classes) or (B, n, 2).

        For a model of translation, they are the source and the target.
        """
        with torch.no_grad():
            if self.translates:
                return self.model(tokens, tokens)
            return self.model(tokens) if self.is_causal else self.model(tokens, head=self.head.name)

    def encoder(self) -> Encoder:
        """Build the encoder with its parameters, in float32 and for evaluation; raises InputError if they do not fit."""
        encoder = Encoder(self.config)
        state = {name.removeprefix(ENCODER): value for name, value in self.state.items() if name.startswith(ENCODER)}
        load_into(encoder, state, f"{self.path} does not fit the encoder that its own configuration describes")
        return encoder.float().eval()

    @cached_property
    def model(self) -> EncoderModel | LanguageModel | TranslationModel:
        """The result of :meth:`build_model`."""
        return self.build_model()

    def build_model(self, config: EncoderConfig | None = None) -> EncoderModel | LanguageModel | TranslationModel:
        """Build the model with the checkpoint's heads and parameters, in float32 and for evaluation.

        Args:
            config: another than the checkpoint's, with parameters of the same shapes.

        Raises:
            InputError: the parameters do not fit the model that the checkpoint describes.
        """
        config = config or self.config
        with config_errors_as_input_errors(self.path):
            model: EncoderModel | LanguageModel | TranslationModel
            if self.translates:
                decoder = replace(decoder_config(self.options, Dictionary()), vocab_size=len(self.state[DECODER_WORDS]))
                model = TranslationModel(config, decoder, bool(self.options.share_all_embeddings))
            elif isinstance(config, DecoderConfig):
                model = LanguageModel(config)
            else:
                tied, activation = not self.options.untie_weights_roberta, str(self.options.pooler_activation_fn)
                model = EncoderModel(config, f"{SPANS}weight" in self.state, tied, class_sizes(self.state), activation)
            load_into(model, self.state, f"{self.path} does not fit the model that its own configuration describes")
        return model.float().eval()

    def write(self, path: Path, state: StateDict, **options: Any) -> None:
        """Write a checkpoint of the same run with other parameters and options of the model, without the optimizer's state."""
        cfg = {**self.configuration, "model": {**vars(self.options), **options}}
        write(path, {**self._content, "args": None, "cfg": cfg, "model": state})

    def _completed(self) -> Namespace:
        """Return the complete options of this package's model; fairseq's own is ours with absolute positions."""
        given = vars(self.given)  # building a model adds to its options what fairseq refuses in a configuration
        options = our_options(given) if self.is_stock else Namespace(**given)
        known = {"_name": self.arch, **{name: getattr(options, name, None) for name in self._kind.fields()}}
        self._kind.complete(completed := Namespace(**known), self.task)
        return completed

    def _described_core(self, symbols: int, width: int) -> Stack:
        """Build the encoder or decoder of the configuration on the meta device; raises InputError if the file is far smaller."""
        options, kind = self.options, self._kind
        groups, narrow = getattr(options, "encoder_layer_groups", None), getattr(options, "embedding_size", None)
        stacks = {"encoder_layer_groups" if groups else kind.names["layers"]: ""}  # and the beginnings of their parameters' names
        if self.translates:
            stacks = {"encoder_layers": "encoder.", "decoder_layers": "decoder."}
        sizes = {name: count_layers(key for key in self.state if key.startswith(stack)) for name, stack in stacks.items()}
        sizes["embedding_size" if narrow else kind.names["dim"]] = width
        for name, size in sizes.items():  # before any layer is made: there may be a billion
            if (described := getattr(options, name)) != size:
                raise InputError(f"its configuration has {name} = {described!r}, and its parameters {size}. It is damaged")
        values = {**kind.core_values(options, Dictionary()), "vocab_size": symbols}
        with torch.device("meta"):
            if self.is_causal:
                shared = bool(options.share_decoder_input_output_embed)
                core: Stack = Decoder(DecoderConfig(**values, cross_attention=False, share_output=shared))
            else:
                core = Encoder(EncoderConfig(**values))
        described = sum(parameter.numel() for parameter in core.parameters())
        held = sum(value.numel() for value in self.state.values())
        if described > 2 * held:  # if only some are missing, loading reports them
            raise InputError(f"its configuration describes {described:,} parameters, and it holds {held:,}. It is damaged")
        return core


def _content(path: Path) -> dict[str, Any]:
    """Read a file, without the state of its optimizer; a configuration is a dictionary of namespaces and dictionaries."""
    content = load(path)
    if content.get("args") is not None:  # of a release of fairseq before 0.12, whose options fairseq turns into a configuration
        from fairseq import checkpoint_utils

        content = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    if not isinstance(cfg := content.get("cfg") or {}, dict):
        from omegaconf import OmegaConf

        content["cfg"] = OmegaConf.to_container(cfg, enum_to_str=True)
    extra = {name: value for name, value in (content.get("extra_state") or {}).items() if not name.startswith("ema")}
    return {**content, "extra_state": extra, "last_optimizer_state": None}


def _model_name(arch: str) -> str:
    """Return fairseq's name of an architecture's model, also of a user's own; empty if there is none."""
    if known := architectures().get(arch):
        return known.family.model
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    return ARCH_MODEL_NAME_REGISTRY.get(arch, "")
