"""Checkpoints of small models that have never been trained, and a data-bin of chance symbols."""

import json
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode
from omegaconf import OmegaConf

from fairseq_posenc.plugin.checkpoint.checkpoint_file import untrained, write
from fairseq_posenc.plugin.models.building import build
from fairseq_posenc.text.data.databin import DatabinWriter
from fairseq_posenc.text.vocabulary import MASK, fingerprint

SIZES = dict(encoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=16, encoder_attention_heads=2)
SYMBOLS, LENGTH = 30, 16


def plain(configuration) -> dict:
    """A configuration as fairseq's trainer writes it."""
    return OmegaConf.to_container(OmegaConf.create(configuration), resolve=True, enum_to_str=True)


def write_chance(folder: Path) -> Path:
    """A data-bin whose validation text is 200 lines of 10 symbols, which end in </s>."""
    dictionary = Dictionary()
    for number in range(SYMBOLS):
        dictionary.add_symbol(str(number))
    dictionary.save(str(folder / "dict.txt"))
    (folder / "encoder.json").write_text(json.dumps({piece: i for i, piece in enumerate(bytes_to_unicode().values())}))
    (folder / "vocab.bpe").write_text("#version: 0.2\n")  # a tokenizer, which a data-bin has; nothing is cut here
    rng = np.random.default_rng(0)
    with DatabinWriter(folder / "valid", np.dtype(np.uint16), len(dictionary)) as writer:
        for _ in range(200):
            line = rng.integers(dictionary.nspecial, len(dictionary), 10)
            line[-1] = dictionary.eos()
            writer.add(line, np.array([len(line)]))
        writer.finish()
    return folder


def write_untrained(path: Path, data: Path, arch: str, **options: object) -> Path:
    """The checkpoint of such a model on the data of :func:`write_chance`, every parameter away from its initial value."""
    dictionary, causal = Dictionary.load(str(data / "dict.txt")), arch.startswith("transformer_lm")
    if not causal:
        dictionary.add_symbol(MASK)
    sizes = {name.replace("encoder", "decoder") if causal else name: size for name, size in SIZES.items()}
    sizes |= {"share_decoder_input_output_embed": True} if causal else {}
    torch.manual_seed(0)
    task = {"_name": "language_modeling" if causal else "masked_lm", "data": str(data), "tokens_per_sample": LENGTH}
    task |= {"dataset_impl": None, "use_plasma_view": False, "plasma_path": ""} if causal else {}
    model = build(arch, OmegaConf.create({"_name": arch, **sizes, **options}), dictionary, OmegaConf.create(task))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    cfg = {"model": OmegaConf.to_container(model.args), "task": task}
    write(path, untrained(plain(cfg), model, fingerprint(dictionary, data)))
    return path


def flip_a_bit(path: Path, tensor: torch.Tensor) -> None:
    """Change one bit of a tensor's numbers in a file."""
    content, numbers = bytearray(path.read_bytes()), tensor.numpy().tobytes()
    assert content.count(numbers) == 1
    content[content.index(numbers) + len(numbers) // 2] ^= 1
    path.write_bytes(content)
