"""Models of translation as transformers' own: the same scores, translations and ids, and what has no equivalent."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import readme
import torch
import transformers
from cases import thorough_but
from fairseq import tasks
from untrained import plain

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.huggingface.export import export
from fairseq_posenc.huggingface.export_command import Options
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.checkpoint_file import untrained, write
from fairseq_posenc.plugin.models.building import parse
from fairseq_posenc.text.vocabulary import load_vocabulary, train

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
SIZES = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2 --max-source-positions 40"
TRAINING = """--task translation --optimizer adam --lr 1e-2 --max-tokens 200 --max-update 8 --max-target-positions 40 --cpu
    --num-workers 0 --no-epoch-checkpoints --disable-validation"""
SHARED = "--share-all-embeddings"
PREPARE = Path(__file__).parents[2] / "examples" / "translation" / "prepare.py"
WRITTEN = runpy.run_path(str(readme.ROOT / "scripts" / "write_tables.py"))
ROWS = {WRITTEN["exported_class"](row): row for row in WRITTEN["EXPORTS"] if WRITTEN["is_translation"](row)}
OTHERS = {"MarianMTModel": "--decoder-layers 3", "BartForConditionalGeneration": "--activation-fn gelu --no-scale-embedding"}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A data-bin of two languages, of which one is the other backwards, with one vocabulary."""
    text = tmp_path_factory.mktemp("text")
    for split, count in (("train", 60), ("valid", 12), ("test", 4)):
        lines = [" ".join(WORDS[(i * j + j) % 8] for j in range(1, 3 + i % 7)) for i in range(count)]
        (text / f"{split}.en").write_text("".join(f"{line}\n" for line in lines))
        (text / f"{split}.de").write_text("".join(f"{' '.join(line.split()[::-1])}\n" for line in lines))
    vocabulary = text / "sentencepiece.model"
    vocabulary.write_bytes(train((text / "train.en").read_text().splitlines(), 28, "unigram", 1.0))
    made = [sys.executable, PREPARE, text, "--vocabulary", text, "-s", "en", "-t", "de", "--out", text / "data-bin"]
    subprocess.run([*map(str, made)], check=True, capture_output=True)
    return text / "data-bin"


@pytest.fixture
def trained(data, run, tmp_path):
    def trained(row: str) -> Path:
        arch, _, flags = row.partition(" ")
        arguments = f"{data} --arch {arch}_tiny {flags} {SIZES} {TRAINING} {SHARED} --save-dir {tmp_path / 'run'}"
        run("fairseq-train", *arguments.split())
        return tmp_path / "run" / "checkpoint_last.pt"

    return trained


@pytest.mark.parametrize("name", thorough_but(OTHERS, [*ROWS]))
def test_an_export_translates_as_the_checkpoint(name, data, trained, tmp_path, run, capsys):
    path = trained(f"{ROWS[name]} {OTHERS.get(name, '')}")
    for wrong in ({"remote_code": True}, {"head": "other"}):
        with pytest.raises(InputError, match=f"--{next(iter(wrong)).replace('_', '-')}"):
            export(Options(path=path, out=tmp_path / "export", **wrong))
    export(Options(path=path, out=tmp_path / "export"))
    assert f"export: {name}, transformers' own class" in capsys.readouterr().out
    checkpoint = Checkpoint(path, may_translate=True)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "export", trust_remote_code=False).eval()
    assert type(model).__name__ == name
    assert not model.generation_config.encoder_no_repeat_ngram_size  # it may copy
    assert model.generation_config.max_length == min(200, checkpoint.config.max_positions)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    lines = (data.parent / "test.en").read_text().splitlines()
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    (first, *_), vocabulary = batch["input_ids"].tolist(), load_vocabulary(tmp_path / "export" / "fairseq")
    assert first[: first.index(2) + 1] == [*vocabulary.encode(lines[0]).ids.tolist(), 2]

    translated = model.generate(**batch, num_beams=1, do_sample=False, min_new_tokens=1, max_new_tokens=12)  # as fairseq
    generated = run("fairseq-generate", data, "--path", path, "--beam", "1", "--max-len-a", "0", "--max-len-b", "11", "--cpu")
    hypotheses = dict(line[2:].split("\t", 1) for line in generated.stdout.splitlines() if line.startswith("H-"))
    for number, row in enumerate(translated):
        symbols = hypotheses[str(number)].split("\t")[1].split()
        found = [vocabulary.dictionary[i] for i in row.tolist()[1:] if i not in (1, 2)]
        assert found[:11] == symbols  # fairseq ends the longest with </s>
    tokens = batch["input_ids"]
    with torch.no_grad():
        scores = model(tokens, attention_mask=batch["attention_mask"], decoder_input_ids=tokens).logits
    torch.testing.assert_close(scores[tokens.ne(1)], checkpoint.logits(tokens)[tokens.ne(1)], atol=2e-5, rtol=1e-5)


def test_the_other_direction_of_a_data_bin(data, tmp_path):
    flags = f"--task translation -s de -t en --arch transformer_sinusoidal_tiny {SIZES} {SHARED}"
    cfg = parse([str(data), *flags.split()])
    content = untrained(plain(cfg), tasks.setup_task(cfg.task).build_model(cfg.model))
    content["cfg"]["criterion"] = {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1}
    write(tmp_path / "model.pt", content | {"extra_state": {"val_loss": 3.0}})
    export(Options(path=tmp_path / "model.pt", out=tmp_path / "export"))
    card = (tmp_path / "export" / "README.md").read_text()
    assert "2 + 2 layers" in card
    assert "loss 3 |" in card  # smoothed, and so no number of bits


def test_vocabularies_of_two_sizes(data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "data-bin")
    (folder / "dict.de.txt").write_text((folder / "dict.en.txt").read_text() + "other 1\n")
    cfg = parse([str(folder), "--task", "translation", "--arch", "transformer_sinusoidal_tiny", *SIZES.split()])
    write(tmp_path / "model.pt", untrained(plain(cfg), tasks.setup_task(cfg.task).build_model(cfg.model)))
    checkpoint = Checkpoint(tmp_path / "model.pt", may_translate=True)
    assert checkpoint.logits(torch.tensor([[4, 5, 2]])).shape[-1] == checkpoint.config.vocab_size + 1
    with pytest.raises(InputError, match="--share-all-embeddings"):
        export(Options(path=tmp_path / "model.pt", out=tmp_path / "export"))


@pytest.mark.parametrize(
    ("arch", "sharing", "said"),
    [
        ("transformer_sinusoidal", "--share-decoder-input-output-embed", "train with --share-all-embeddings"),
        ("transformer_rope", SHARED, "model.pt: no model of translation .* the nearest, .*, has other positions"),
        ("transformer_absolute", SHARED, "the nearest, BART, has other layernorm_embedding"),
    ],
)
def test_what_has_no_equivalent(arch, sharing, said, data, tmp_path):
    cfg = parse([str(data), "--task", "translation", "--arch", f"{arch}_tiny", *SIZES.split(), sharing])
    write(tmp_path / "model.pt", untrained(plain(cfg), tasks.setup_task(cfg.task).build_model(cfg.model)))
    with pytest.raises(InputError, match=said):
        export(Options(path=tmp_path / "model.pt", out=tmp_path / "export"))
    assert not (tmp_path / "export").exists()
