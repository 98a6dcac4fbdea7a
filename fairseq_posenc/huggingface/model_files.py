"""Reads a model of transformers by transformers' own classes, without running code from its folder.

Weights are read here, from safetensors or by the safe reader of ``.pt`` files. A folder may also name other files, adapters,
quantizers and kernels to download, which are not used.
"""

import json
import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from ..base.errors import InputError, first_line
from ..plugin.checkpoint import loading
from ..plugin.checkpoint.checkpoint_file import config_errors_as_input_errors
from ..plugin.checkpoint.state_dict import StateDict, count_layers, is_ordinary
from ..text.vocabulary import library_errors
from .model_types import MODEL_TYPES

MAX_COUNT = 10_000
"""Of layers and of labels, for each of which transformers makes an option or a name."""
SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
PLAIN = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool)
"""The types of numbers of a model that is not quantized; the last two are of constants, such as the numbers of positions."""


def read_config(name: str) -> PretrainedConfig:
    """Return the configuration of the model of that name.

    Raises:
        InputError: it is missing, damaged, or of a type that has no equivalent here.
    """
    try:
        described = PretrainedConfig.get_config_dict(name)[0]
        for option in ("num_hidden_layers", "num_labels"):
            if isinstance(value := described.get(option), int) and value > MAX_COUNT:
                raise ValueError(f"{option} is {value}")
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # of any kind, as its values may be
        raise InputError(
            f"{name} cannot be read as a model of transformers, nor is it a folder with fairseq's model.pt: {first_line(error)}"
        ) from error
    if config.model_type not in MODEL_TYPES:
        raise InputError(f"{name}: models of type {config.model_type!r} cannot be imported, only {', '.join(MODEL_TYPES)}")
    config._attn_implementation = "eager"  # it may be the name of a kernel on the hub, whose code would be run
    config.chunk_size_feed_forward = 0  # it saves memory in transformers, and not every length is a multiple of it
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def load_model(name: str) -> tuple[PreTrainedModel, str, list[str]]:
    """Return the model of that name in float32 and for evaluation, the kind of its head, and names of weights not part of it.

    Raises:
        InputError: its files are missing, damaged, of a type that has no equivalent here, or do not belong together.
    """
    config, weights = read_config(name), read_weights(name)
    kind = MODEL_TYPES[config.model_type]
    with config_errors_as_input_errors(f"{name}/config.json"):
        config, weights = kind.prepare(config, weights)
        head = kind.head_of(config)
        groups = getattr(config, "layer_groups", 0) or getattr(config, "num_hidden_groups", 0)
        layers, held = groups or config.num_hidden_layers, count_layers(weights)
        if held != layers:
            raise InputError(f"config.json describes {layers} layers, and the weights are of {held}")
        wanted = kind.model_class(head)
        with torch.device("meta"):
            parameters = dict(wanted(config).named_parameters())
        described = sum(parameter.numel() for parameter in parameters.values())
        if described > 2 * sum(value.numel() for value in weights.values()):  # before memory is taken; heads may be missing
            raise InputError(f"config.json describes {described:,} parameters, far more than the weights have")
        for key in parameters.keys() & weights.keys():
            if (shape := tuple(parameters[key].shape)) != (found := tuple(weights[key].shape)):
                raise InputError(f"{key} of the weights is {found}, and config.json describes {shape}")
        options = {"output_loading_info": True, "dtype": torch.float32}
        model, info = wanted.from_pretrained(None, config=config, state_dict=weights, **options)
    # An encoder's pooler may be missing, and not one that is part of a head.
    needed = [key for key in info["missing_keys"] if "pooler" not in key or head != "Model"]
    if missing := sorted(needed):
        raise InputError(f"{name} lacks parameters of a {wanted.__name__}: {', '.join(missing[:6])}")
    return model.eval(), head, sorted(info["unexpected_keys"])


def read_weights(name: str) -> StateDict:
    """Return the tensors of the model of that name.

    Raises:
        InputError: their file is missing or damaged.
    """
    for file in (SAFETENSORS, PICKLED):
        if path := find(name, file):
            return _read_tensors(path)
        if path := find(name, f"{file}.index.json"):
            try:
                parts = sorted({str(part) for part in json.loads(Path(path).read_bytes())["weight_map"].values()})
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(f"{path} does not name the file of each tensor ({first_line(error)}): copy it again") from None
            if any(Path(part).name != part for part in parts):
                raise InputError(f"{path} names files of other folders: copy it again")
            return {key: value for part in parts for key, value in _read_tensors(cached_file(name, part)).items()}
    raise InputError(f"{name} has no weights that can be read: no {SAFETENSORS} and no {PICKLED}")


def read_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the model of that name.

    Raises:
        InputError: its files are missing or damaged.
    """
    with library_errors(f"{name} has no tokenizer that can be read, so its symbols have no names"):
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def find(name: str, file: str) -> Path | None:
    """Return the path of a file of the model of that name; None if the model has no such file."""
    path = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    return None if path is None else Path(path)


def _read_tensors(path: Path | str) -> StateDict:
    try:
        state = load_file(path) if str(path).endswith(".safetensors") else loading.load(path)
    except (SafetensorError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{path} cannot be read: it is cut short, damaged or another kind of file ({first_line(error)})"
        ) from None
    if not isinstance(state, dict) or not all(isinstance(key, str) and is_ordinary(value) for key, value in state.items()):
        raise InputError(f"{path} does not hold only tensors of numbers: it is damaged, or another kind of file")
    if coded := [f"{key} is {value.dtype}" for key, value in state.items() if value.dtype not in PLAIN]:
        raise InputError(f"{path} is of a quantized model ({coded[0]}), whose numbers are codes: dequantize it first")
    return state
