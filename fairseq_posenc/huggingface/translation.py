"""Models of translation in transformers: types whose names are fairseq's, apart from ``model.``, of an encoder and a decoder."""

import math
from typing import Any, NamedTuple

import torch
import transformers
from torch.nn.functional import pad

from ..base.errors import InputError
from ..core.transformer import EncoderConfig
from ..plugin.checkpoint.checkpoint import Checkpoint
from ..plugin.checkpoint.checkpoint_file import config_errors_as_input_errors
from ..plugin.checkpoint.state_dict import SOURCE_WORDS, StateDict
from .conversion import Exported, nearest
from .new_positions import differing
from .types.base import their_activation

INTO_MODEL = ("out_proj", "fc2")
"""Projections whose outputs, rather than inputs, are as wide as the model."""
MAX_LENGTH = 200
"""Of a translation, as in fairseq-generate; transformers' own default is 20 tokens."""


class Kind(NamedTuple):
    """A type of transformers' models of translation.

    Attributes:
        name: transformers' name of the type, ``model_type``.
        model: its class.
        title: its name in text.
        fields: of :class:`.EncoderConfig`, as its models have them; they scale embeddings, or not, where positions are learned.
        unused: rows at the beginning of its table of positions that no token uses.
    """

    name: str
    model: str
    title: str
    fields: dict[str, Any]
    unused: int = 0


def _sinusoidal(layout: str, **fields: bool) -> dict[str, Any]:
    fields = {"scale_embeddings": True, "layernorm_embedding": False, **fields}
    return {"positions": "sinusoidal", "position_options": {"sinusoidal_layout": layout}, **fields}


KINDS = (
    Kind("marian", "MarianMTModel", "Marian", _sinusoidal("vaswani")),
    Kind("pegasus", "PegasusForConditionalGeneration", "Pegasus", _sinusoidal("vaswani", normalize_before=True)),
    Kind("m2m_100", "M2M100ForConditionalGeneration", "M2M100", _sinusoidal("fairseq", normalize_before=True)),
    Kind("bart", "BartForConditionalGeneration", "BART", {"positions": "absolute"}, 2),
    Kind("mbart", "MBartForConditionalGeneration", "mBART", {"positions": "absolute", "normalize_before": True}, 2),
    Kind(
        *("blenderbot", "BlenderbotForConditionalGeneration", "Blenderbot"),
        {"positions": "absolute", "normalize_before": True, "layernorm_embedding": False},
    ),
)
"""The types to which models are exported; the first whose function is a model's is chosen."""


def to_transformers(checkpoint: Checkpoint, remote_code: bool = False) -> Exported:
    """Return a checkpoint's model of translation in transformers.

    Raises:
        InputError: no type has its function, it has several tables of word embeddings, or ``remote_code`` asks for a class of
            this project, which has none.
    """
    if remote_code:
        raise InputError("--remote-code: this project has no class for translation: leave it out")
    config, options, dictionary = checkpoint.config, checkpoint.options, checkpoint.vocabulary.dictionary
    if not options.share_all_embeddings:
        raise InputError(
            f"{checkpoint.path} has other word embeddings for the source than for the target, and an export has one vocabulary: "
            "train with --share-all-embeddings"
        )
    with config_errors_as_input_errors(checkpoint.path):
        kind = choose(config)
    sizes = {"layers": config.layers, "attention_heads": config.heads, "ffn_dim": config.ffn_dim, "layerdrop": config.layerdrop}
    both = {f"{stack}_{name}": value for name, value in sizes.items() for stack in ("encoder", "decoder")}
    eos = dictionary.eos()
    described = transformers.AutoConfig.for_model(
        kind.name,
        **{**both, "decoder_layers": options.decoder_layers, "d_model": config.dim, "scale_embedding": config.scale_embeddings},
        **{name: getattr(config, name) for name in ("dropout", "attention_dropout", "activation_dropout")},
        activation_function=their_activation(config.activation),
        max_position_embeddings=config.max_positions,
        vocab_size=config.vocab_size,
        bos_token_id=dictionary.bos(),
        pad_token_id=dictionary.pad(),
        eos_token_id=eos,
        decoder_start_token_id=eos,
        forced_eos_token_id=eos,
        encoder_no_repeat_ngram_size=0,  # 3 by default in Blenderbot, which then never copies three words
    )
    model = getattr(transformers, kind.model)(described)
    model.load_state_dict(_renamed(checkpoint.model.state_dict(), config, kind), strict=False)  # their sinusoids are not there
    model.generation_config.max_length = min(MAX_LENGTH, config.max_positions)
    return Exported(model.eval(), kind.title, [], False, "")


def choose(config: EncoderConfig) -> Kind:
    """Return the type of models whose encoder is the same as this one, and whose decoder is alike.

    Raises:
        InputError: there is none.
    """
    tried: list[tuple[str, list[str]]] = []
    sizes = ("vocab_size", "layers", "dim", "ffn_dim", "heads", "max_positions", "activation")
    for kind in KINDS:
        fields = {"scale_embeddings": config.scale_embeddings, **{name: getattr(config, name) for name in sizes}, **kind.fields}
        different = differing(config, EncoderConfig(**fields))
        if not different:
            return kind
        tried.append((kind.title, different))
    raise InputError(f"no model of translation in transformers {transformers.__version__} is the same; {nearest(tried)}")


def _renamed(state: StateDict, config: EncoderConfig, kind: Kind) -> StateDict:
    """Return the parameters under transformers' names, and in the order in which its sinusoids are.

    Ours alternate between sine and cosine as the paper's do, and those of Marian and Pegasus are sines, then cosines: the
    components of all states change places. The sum of a word's embedding and its position is multiplied by √D here, and the
    embedding alone in transformers.
    """
    halves = config.positions == "sinusoidal" and kind.fields["position_options"]["sinusoidal_layout"] == "vaswani"
    order = torch.cat([torch.arange(start, config.dim, 2) for start in (0, 1)]) if halves else torch.arange(config.dim)
    renamed = {"model.shared.weight": state[SOURCE_WORDS][:, order]}
    for name, value in state.items():
        if name.endswith("positions.absolute.weight"):
            value = value * math.sqrt(config.dim) if config.scale_embeddings else value
            name, value = name.replace("positions.absolute", "embed_positions"), pad(value, (0, 0, kind.unused, 0))
        elif name == "decoder.output_projection.weight":
            renamed["lm_head.weight"] = value[:, order]
            continue
        elif name.rsplit(".", 2)[-2] in INTO_MODEL or "norm" in name:
            value = value[order]
        elif value.dim() == 2:
            value = value[:, order]
        renamed[f"model.{name}"] = value
    return renamed
