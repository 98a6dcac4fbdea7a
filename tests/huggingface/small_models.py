"""Small checkpoints of every architecture, with every head, on a data-bin of the toy text."""

from pathlib import Path

import torch
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from torch.nn import functional as F
from untrained import plain

from fairseq_posenc.core.transformer.heads import SpanHead
from fairseq_posenc.huggingface.export import export as write_export
from fairseq_posenc.huggingface.export_command import Options
from fairseq_posenc.plugin.checkpoint.checkpoint_file import untrained, write
from fairseq_posenc.plugin.models.building import build
from fairseq_posenc.text.vocabulary import MASK, load_dictionary

SIZES = dict(encoder_layers=2, encoder_embed_dim=32, encoder_ffn_embed_dim=64, encoder_attention_heads=4, max_positions=48)
CLASSES = 3
CAUSAL_SIZES = dict(
    decoder_layers=2, decoder_embed_dim=32, decoder_ffn_embed_dim=64, decoder_attention_heads=4, max_positions=48, dropout=0.0
)


def dictionary_of(data: Path) -> Dictionary:
    dictionary = Dictionary.load(str(data / "dict.txt"))
    dictionary.add_symbol(MASK)
    return dictionary


def make_model(arch: str, data: Path, **options):
    """A model with a classification head called ``topic``; every parameter is perturbed, so that a missing one shows."""
    dictionary = dictionary_of(data)
    torch.manual_seed(len(arch))
    given = OmegaConf.create({"_name": arch, **SIZES, "dropout": 0.0, "attention_dropout": 0.0, **options})
    model = build(arch, given, dictionary)
    model.register_classification_head("topic", CLASSES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def train(model, steps: int = 4) -> None:
    """A few updates on made-up tokens, of the language model and of the classification head."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    tokens = torch.randint(4, len(model.encoder.dictionary), (4, 20), generator=torch.Generator().manual_seed(2))
    tokens[0, 12:] = 1
    for _ in range(steps):
        loss = F.cross_entropy(model(tokens)[0].transpose(1, 2), tokens, ignore_index=1)
        loss = loss + F.cross_entropy(model(tokens, classification_head_name="topic")[0], torch.arange(4) % CLASSES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def save(model, path: Path, data: Path) -> Path:
    """A checkpoint as fairseq's trainer writes it, as far as an export reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    task = {"_name": "masked_lm", "data": str(data), "tokens_per_sample": SIZES["max_positions"]}
    common = {"seed": 1, "fp16": False, "bf16": False}
    cfg = {"model": OmegaConf.to_container(model.args), "task": task, "criterion": {"_name": "masked_lm"}, "common": common}
    write(path, untrained(plain(cfg), model))
    return path


def save_causal(data, path, positions, add_bos_token=False, **options):
    """A checkpoint of a language model with random weights, as fairseq's trainer writes it."""
    torch.manual_seed(0)
    arch = {"_name": "transformer_lm_posenc", "positions": positions, "share_decoder_input_output_embed": True}
    given = OmegaConf.create({**arch, **CAUSAL_SIZES, **options})
    model = build("transformer_lm_posenc", given, load_dictionary(data, masked=False))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    task = {"_name": "language_modeling", "data": str(data), "tokens_per_sample": 48, "add_bos_token": add_bos_token}
    criterion = {"_name": "cross_entropy"}
    cfg = {"model": OmegaConf.to_container(model.args), "task": task, "criterion": criterion, "common": {"seed": 1}}
    write(path, untrained(plain(cfg), model))
    return path


def export(path: Path, data: Path | None, out: Path, head: str | None = None, **flags):
    """As the command with these flags."""
    return write_export(Options(path=path, data=data, out=out, head=head, **flags))


def with_spans(model):
    """The same model with the head of question answering."""
    model.classification_heads = torch.nn.ModuleDict()
    model.encoder.lm_head = SpanHead(SIZES["encoder_embed_dim"])
    return model
