"""Hugging Face models as they are read for analysis: the same function, and the position vectors that they have themselves."""

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from fairseq_posenc import load_encoder
from fairseq_posenc.base.errors import InputError
from fairseq_posenc.cli import main
from fairseq_posenc.study.analyze.models import read
from fairseq_posenc.study.analyze.trace import trace

SMALL = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, max_position_embeddings=40)
TOKENS = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(20)), "<mask>"]
TEXT = " ".join(f"w{7 * i % 20}" for i in range(200))


@pytest.fixture(params=["Albert", "Bert", "Electra", "Longformer", "Roberta"])
def model(request, tmp_path):
    """One of transformers' models, saved with a tokenizer; its token type is far from zero."""
    special = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), [*TOKENS[:4], "<mask>"], strict=True))
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(TOKENS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", **special)
    fast.save_pretrained(tmp_path)
    own = {"Longformer": {"attention_window": 32}, "Albert": {"embedding_size": 8}, "Electra": {"embedding_size": 8}}
    options = {"vocab_size": len(TOKENS), "pad_token_id": 1, **SMALL, **own.get(request.param, {})}
    config = getattr(transformers, f"{request.param}Config")(**options)
    torch.manual_seed(0)
    built = getattr(transformers, f"{request.param}ForMaskedLM")(config).eval()
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    built.save_pretrained(tmp_path)
    return built.requires_grad_(False)


def test_a_model_of_transformers(model, tmp_path, capsys):
    subject = read(f"theirs={tmp_path}", None, with_text=True)
    windows = subject.windows(TEXT, 12, count=3)
    assert windows.shape == (3, 12)
    assert windows[:, 0].tolist() == [0] * 3
    assert windows[:, -1].tolist() == [2] * 3
    assert [TOKENS[i] for i in windows[0, 1:4]] == ["w0", "w7", "w14"]
    expected = model(windows, output_hidden_states=True).hidden_states
    for ours, theirs in zip(trace(subject.encoder, windows).hidden, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)

    table = model.base_model.embeddings.position_embeddings.weight
    table = table[2:] if model.config.model_type in ("roberta", "longformer") else table  # after rows that no token uses
    assert torch.allclose(subject.position_vectors(len(table)), table, atol=1e-6)
    assert subject.fitting_length(128) == (17 if model.config.model_type == "longformer" else len(table))
    if model.config.model_type == "longformer":
        assert main(["import-hf", str(tmp_path), "--out", str(tmp_path / "new" / "model.pt")]) == 2
        assert "a window of a sequence (Longformer)" in capsys.readouterr().err
        with pytest.raises(InputError, match="Longformer"):
            load_encoder(tmp_path)
