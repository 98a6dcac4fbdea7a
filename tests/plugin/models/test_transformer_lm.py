"""Language models that read from left to right."""

from __future__ import annotations

import re
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.language_modeling import LanguageModelingConfig

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.models.building import dictionary_of

SYMBOLS, EOS = 30, 2
SIZES = dict(decoder_layers=2, decoder_embed_dim=16, decoder_ffn_embed_dim=32, decoder_attention_heads=2, dropout=0.0)
FLAGS = [word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def make(arch: str, tokens: int = 16, output: int = SYMBOLS, **options):
    torch.manual_seed(0)
    args = Namespace(**{**SIZES, **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(
        args=LanguageModelingConfig(tokens_per_sample=tokens),
        source_dictionary=dictionary_of(SYMBOLS),
        target_dictionary=dictionary_of(output),
    )
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task).double().eval()


@pytest.mark.parametrize("scheme", ["alibi", "kerple", "fire", "absolute"])
def test_prefixes_are_continued_with_a_cache_as_without(scheme, monkeypatch):
    model, prefix = make(f"transformer_lm_{scheme}_tiny"), torch.tensor([[5, 6, 7], [8, 9, 1]])

    def continued() -> list[list[int]]:
        generator = SequenceGenerator([model], dictionary_of(SYMBOLS), beam_size=2, max_len_b=9)
        sample = {"net_input": {"src_tokens": prefix, "src_lengths": torch.tensor([3, 2])}}
        return [h["tokens"].tolist() for found in generator.generate([model], sample, prefix_tokens=prefix) for h in found]

    found = continued()
    assert [hypothesis[:2] for hypothesis in found] == [[5, 6], [5, 6], [8, 9], [8, 9]]
    extract = type(model.decoder).extract_features
    monkeypatch.setattr(
        type(model.decoder), "extract_features", lambda self, tokens, memory, state, **more: extract(self, tokens)
    )
    assert continued() == found


def test_a_table_is_as_long_as_the_samples_and_refuses_more():
    model = make("transformer_lm_absolute_tiny", tokens=8)
    model(torch.full((1, 8), 5), src_lengths=torch.tensor([8]))
    with pytest.raises(InputError, match=r"9 tokens is longer than the 8 positions .*raise --max-positions"):
        model(torch.full((1, 9), 5))
    assert make("transformer_lm_alibi_tiny", tokens=8)(torch.full((1, 90), 5))[0].isfinite().all()


def test_an_output_of_other_symbols_is_refused():
    with pytest.raises(InputError, match="--output-dictionary-size"):
        make("transformer_lm_alibi_tiny", output=20)


def test_another_size_is_named_by_its_flag():
    with pytest.raises(InputError, match=r"--decoder-embed-dim 16 .*--decoder-attention-heads 3"):
        make("transformer_lm_alibi_tiny", decoder_attention_heads=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "longer"), [("alibi", True), ("kerple", True), ("fire", True), ("rope", True), ("absolute", False)]
)
def test_evaluation_at_contexts_longer_than_training(scheme, longer, data_bin, tmp_path, run):
    """ALiBi, KERPLE and FIRE were published for this."""
    training = [
        "--optimizer",
        "adam",
        "--lr",
        "1e-2",
        "--max-update",
        "60",
        "--max-tokens",
        "512",
        "--cpu",
        "--save-dir",
        tmp_path,
    ]
    task = ["--task", "language_modeling", "--tokens-per-sample", "16", "--sample-break-mode", "none"]
    run("fairseq-train", data_bin, *task, "--arch", f"transformer_lm_{scheme}_tiny", *FLAGS, *training)
    losses = []
    for tokens, window in ((16, 0), (64, 0), (64, 48)):
        contexts = ["--tokens-per-sample", tokens, "--context-window", window, "--gen-subset", "valid", "--max-tokens", "512"]
        model = ["--path", tmp_path / "checkpoint_last.pt", "--cpu"]
        done = run("fairseq-eval-lm", data_bin, *model, *contexts, check=False)
        if tokens > 16 and not longer:
            assert done.returncode == 2
            assert "fairseq-eval-lm: a sequence of 64 tokens is longer than the 16 positions" in done.stdout
            return
        assert done.returncode == 0, done.stdout
        losses.append(float(re.search(r"Loss \(base 2\): ([\d.]+)", done.stdout)[1]))
    assert max(losses) < 4.5  # of log2(40) = 5.3 for words at random; each is followed by one of three
