"""Exports are the same function, here for every architecture, and for each kind of term, family and head in bare environments."""

import json
import os
import re
import shutil
import subprocess
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from cases import SOME, thorough_but
from fairseq.utils import import_user_module
from safetensors import SafetensorError
from safetensors.torch import save_file
from small_models import export, make_model, save, save_causal, train, with_spans
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from fairseq_posenc.base import ownership
from fairseq_posenc.cli import main
from fairseq_posenc.core.families import expressions
from fairseq_posenc.huggingface import assemble
from fairseq_posenc.huggingface import export as export_module
from fairseq_posenc.huggingface.configuration import PosencConfig
from fairseq_posenc.huggingface.conversion import to_transformers
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM, PosencPreTrainedModel
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint

CHECK = Path(__file__).with_name("isolated_check.py")
TOLERANCE = 2e-5
OTHER_BASES = "rope(base=20000, layout=half)" + " | rope(base=500, layout=half, window=3)" * 2
PATHS = {  # what an export depends on, by the names of the exports: an architecture and its options
    "roberta": ("roberta_absolute_tiny", {}),  # those before tisa are transformers' own classes
    "albert": ("albert_absolute_tiny", {"embedding_size": 8}),
    "deberta": (
        "roberta_deberta_tiny",
        {"deberta_projections": "content", "deberta_indexing": "original", "layer_norm_eps": 1e-7},
    ),
    "modernbert": ("modernbert_posenc_tiny", {"encoder_layers": 4, "positions": OTHER_BASES}),
    "roberta-prelayernorm": ("roberta_absolute_tiny", {"encoder_normalize_before": True}),
    "mpnet": ("roberta_t5_tiny", {}),
    "esm": ("roberta_rope_tiny", {"encoder_normalize_before": True}),
    "jina_embeddings_v3": ("roberta_rope_tiny", {}),
    "tisa": ("roberta_absolute_tisa_tiny", {}),
    "shaw": ("roberta_shaw_tiny", {}),
    "m4m": ("albert_m4m_tiny", {"embedding_size": 8}),
    "tupe_r": ("roberta_tupe_r_tiny", {}),
    "rope": ("roberta_rope_tiny", {"rope_fraction": 0.5}),
    "synthesizer_dense": ("roberta_synthesizer_dense_tiny", {}),
    "floater": ("roberta_floater_tiny", {}),
}
OF_OTHER_TERMS = ("alibi", "fire", "m1", "sinusoidal", "transformer_xl")  # than those of PATHS
CAUSAL = {  # the same of language models: positions and options
    "causal": ("absolute+tisa", {}),
    "opt": ("absolute", {}),
    "gpt_neox": ("rope", {"decoder_normalize_before": True}),
}
WITH_HEADS = ("roberta", "tisa")  # heads do not depend on the scheme
TOKENS = torch.randint(4, 40, (4, 30), generator=torch.Generator().manual_seed(5))
TOKENS[:, 0] = 0
TOKENS[1, 18:] = 1
TOKENS[2, 5:] = 1
TOKENS[3, 1:] = 1


def export_case(path, data, folder, name, head=None):
    """Export, and keep what fairseq gives for TOKENS beside it."""
    export(path, data, folder / name, head, tolerance=TOLERANCE, no_tokenizer=not name.startswith("tisa"))
    logits = Checkpoint(path, data, head).logits(TOKENS).contiguous()
    save_file({"tokens": TOKENS, "logits": logits}, folder / f"{name}.safetensors")


@pytest.fixture(scope="session")
def exports(prepared, tmp_path_factory):
    """A folder of exports: each of PATHS, briefly trained, and for some of them every head."""
    work = tmp_path_factory.mktemp("checkpoints")
    folder = tmp_path_factory.mktemp("exports")
    for name, (arch, options) in PATHS.items():
        model = make_model(arch, prepared, **options)
        train(model)
        path = save(model, work / f"{name}.pt", prepared)
        export_case(path, prepared, folder, f"{name}-trained", "lm")
        if name in WITH_HEADS:
            export_case(path, prepared, folder, f"{name}-classes", "topic")
            export_case(save(with_spans(model), work / "spans.pt", prepared), prepared, folder, f"{name}-spans")
    for name, (positions, options) in CAUSAL.items():
        path = save_causal(prepared, work / f"{name}.pt", positions, **options)
        export(path, prepared, folder / name)
        expected = {"tokens": TOKENS, "logits": Checkpoint(path, may_be_causal=True).logits(TOKENS)}
        save_file(expected, folder / f"{name}.safetensors")
    return folder


@pytest.fixture(scope="session")
def checkpoint(prepared, tmp_path_factory):
    """One checkpoint, of absolute+tisa with a classification head."""
    model = make_model("roberta_absolute_tisa_tiny", prepared)
    return save(model, tmp_path_factory.mktemp("checkpoint") / "checkpoint.pt", prepared)


def isolated(python, *arguments):
    completed = subprocess.run(
        [python, CHECK, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""},  # a path to this package among them
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    return json.loads(completed.stdout.splitlines()[-1])


def test_exports_are_the_same_functions_without_fairseq_and_serve_every_use(exports, isolated_python):
    found = isolated(isolated_python, exports, "tisa-trained")
    assert found["transformers"].split(".")[0] == isolated_python.parent.parent.name[-1]
    lacking = ["jina_embeddings_v3-trained"] if found["transformers"].startswith("4.") else []
    assert found["lacking"] == lacking
    assert len(found["differences"]) == len(PATHS) + 2 * len(WITH_HEADS) + len(CAUSAL) - len(lacking)
    assert {name: d for name, d in found["differences"].items() if not d <= TOLERANCE} == {}


@pytest.mark.parametrize("name", thorough_but(OF_OTHER_TERMS, sorted(expressions().keys() - {"absolute", "rope"}), SOME))
def test_every_scheme_is_exported(name, prepared, tmp_path):
    """The export compares the checkpoint with what it has written, run by the code that it has written."""
    path = save(make_model(f"roberta_{name}_tiny", prepared), tmp_path / "checkpoint.pt", prepared)
    assert (
        max(parity.difference for parity in export(path, prepared, tmp_path / "out", "lm", no_tokenizer=True).values())
        < TOLERANCE
    )
    own = name in ("sinusoidal", "t5", "absolute_t5", "bert_r")
    assert (json.loads((tmp_path / "out" / "config.json").read_text()).get("format") == 1) == (not own)


def test_absolute_positions_become_plain_roberta(exports):
    folder = exports / "roberta-trained"
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["RobertaForMaskedLM"]
    assert config["max_position_embeddings"] == 48 + 2
    assert "auto_map" not in config
    assert not list(folder.glob("*.py"))


@pytest.mark.parametrize("arch", ["roberta_absolute_tiny", "albert_absolute_tiny", "roberta_alibi_tiny"])
def test_with_masked_next_token_each_score_is_of_the_token_in_its_place(arch, prepared, tmp_path):
    """As fill-mask and evaluators read them. transformers' own classes cannot do so; of a classifier they are the same."""
    model = make_model(arch, prepared, masked_next_token=True)
    path = save(model, tmp_path / "checkpoint.pt", prepared)
    export(path, prepared, tmp_path / "words", "lm", no_tokenizer=True, tolerance=TOLERANCE)
    left = torch.tensor([[1, 1, 1, 0, 7, 9, 4, 2], [0, 5, 6, 7, 8, 9, 10, 2]])
    with torch.no_grad():
        exported = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "words")
        found = exported(left, attention_mask=left.ne(1).long()).logits
        checkpoint = Checkpoint(path, prepared, "lm")
        expected = checkpoint.build_model(replace(checkpoint.config, masked_next_token=False))(left)
    assert isinstance(exported, PosencForMaskedLM)
    assert exported.config.masked_next_token
    torch.testing.assert_close(found[0, 4:], expected[0, 3:-1])
    torch.testing.assert_close(found[1, 1:], expected[1, :-1])
    export(path, prepared, tmp_path / "classes", "topic", no_tokenizer=True, tolerance=TOLERANCE)
    kind = json.loads((tmp_path / "classes" / "config.json").read_text())["model_type"]
    assert kind == ("fairseq_posenc" if "alibi" in arch else arch.partition("_")[0])


def test_loads_without_remote_code_where_the_package_is_installed(exports, tmp_path):
    model = transformers.AutoModelForMaskedLM.from_pretrained(exports / "tisa-trained")
    assert type(model) is PosencForMaskedLM
    model.save_pretrained(tmp_path)  # what is saved from here loads elsewhere
    assert (tmp_path / "modeling_posenc.py").read_text() == (exports / "tisa-trained" / "modeling_posenc.py").read_text()


@pytest.mark.parametrize("name", ["shaw", "m4m", "synthesizer_dense"])
def test_sdpa_is_refused_with_the_reason(name, exports):
    folder = exports / f"{name}-trained"
    assert transformers.AutoModel.from_pretrained(folder).config._attn_implementation == "eager"
    with pytest.raises(ValueError, match=f"cannot run {name}: "):
        transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa")


def test_schemes_that_a_checkpoint_lacks_start_as_schemes_do(exports):
    torch.manual_seed(0)
    folder = exports / "tisa-trained"
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, positions="tisa+t5+kerple")
    for scheme in ("t5.weight", "kerple"):
        found = [p for name, p in model.named_parameters() if f"positions.{scheme}" in name]
        assert found
        assert all(0 < p.abs().max() < 10 for p in found)


def test_only_what_the_expression_needs_travels(exports):
    code = (exports / "tisa-trained" / "modeling_posenc.py").read_text()
    assert "class Tisa(" in code
    assert "class Shaw(" not in code
    assert "class Floater(" not in code
    assert "class Floater(" in (exports / "floater-trained" / "modeling_posenc.py").read_text()


def test_the_labels_head_and_options_are_in_the_config(exports):
    config = transformers.AutoConfig.from_pretrained(exports / "tisa-classes")
    assert isinstance(config, PosencConfig)
    assert (config.num_labels, config.fairseq_head, config.position_options["tisa_kernels"]) == (3, "topic", 5)


def test_a_model_that_differs_is_refused(checkpoint, prepared, tmp_path, monkeypatch, capsys):
    original = PosencPreTrainedModel.save_pretrained

    def save_another(self, folder, **options):
        with torch.no_grad():
            self.base_model.encoder.positions.tisa.amplitude.add_(0.5)
        original(self, folder, **options)

    out = tmp_path / "out"
    arguments = ["export-hf", str(checkpoint), "--data", str(prepared), "--out", str(out), "--head", "lm"]
    assert main(arguments) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file() and path.name != ownership.RECORD}
    monkeypatch.setattr(PosencPreTrainedModel, "save_pretrained", save_another)
    capsys.readouterr()
    assert main([*arguments, "--overwrite"]) == 2
    assert "the exported model is not the checkpoint's: outputs differ by" in capsys.readouterr().err
    assert {name: (out / name).read_bytes() for name in before} == before
    assert (out / ".partial" / "model.safetensors").exists()
    assert not (out / ".partial" / "README.md").exists()
    monkeypatch.undo()
    assert main([*arguments, "--overwrite"]) == 0
    assert not (out / ".partial").exists()


def test_a_kill_while_the_files_are_moved(checkpoint, prepared, tmp_path, monkeypatch):
    """The folder does not load, and the same command completes it."""
    arguments = ["export-hf", str(checkpoint), "--data", str(prepared), "--out", str(tmp_path), "--head", "lm", "--overwrite"]
    assert main(arguments) == 0
    first, replace, left = contents(tmp_path), Path.replace, iter(range(3))

    def killed(path, target):
        if path.parent.name == ".partial" and next(left, None) is None:
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", killed)
    assert main(arguments) != 0
    assert not (tmp_path / "config.json").exists()
    monkeypatch.undo()
    assert main(arguments) == 0
    assert contents(tmp_path).keys() == first.keys()


def installed(folder, head):
    """The Auto class, which has the package's own models."""
    return getattr(transformers, f"AutoModelFor{head}")


def travelled(folder, head):
    """The class in the folder that its configuration names, as where the package is not installed."""
    return get_class_from_dynamic_module(
        json.loads((folder / "config.json").read_text())["auto_map"][f"AutoModelFor{head}"], folder
    )


@pytest.mark.parametrize("model_class", thorough_but([travelled], [installed, travelled]))
def test_an_exported_encoder_takes_every_new_head(checkpoint, prepared, tmp_path, model_class, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    export(checkpoint, prepared, tmp_path / "export", "lm", tolerance=TOLERANCE)
    choices, rows = TOKENS.view(2, 2, -1), TOKENS.ne(1)
    spans = {"start_positions": torch.tensor([1, 2, 3, 0]), "end_positions": torch.tensor([2, 2, 4, 0])}
    cases = {  # inputs, what goes with them, the shape of the scores
        "SequenceClassification": (TOKENS, {"labels": torch.tensor([0, 1, 4, 2])}, (4, 5)),
        "TokenClassification": (TOKENS, {"labels": (TOKENS % 5).masked_fill(~rows, -100)}, (4, 30, 5)),
        "MultipleChoice": (choices, {"labels": torch.tensor([0, 1]), "attention_mask": choices.ne(1).long()}, (2, 2)),
        "QuestionAnswering": (TOKENS, spans, (4, 30)),
    }
    encoder = transformers.AutoModel.from_pretrained(tmp_path / "export").encoder
    for head, (tokens, others, shape) in cases.items():
        model = model_class(tmp_path / "export", head).from_pretrained(tmp_path / "export", num_labels=5).eval()
        assert isinstance(model, PosencPreTrainedModel) == (model_class is installed)
        assert torch.equal(model.model.encoder.embed_tokens.weight, encoder.embed_tokens.weight)
        averages = head in (
            "SequenceClassification",
            "MultipleChoice",
        )  # then the trainer divides by the steps that it accumulates
        assert getattr(model, "accepts_loss_kwargs", True) is not averages
        output = model(tokens, **others)
        assert output.get("logits", output.get("start_logits")).shape == shape, head
        assert next(iter(output)) == "loss", head
        output.loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters()), head
        others["attention_mask"] = tokens.ne(1).long()
        embedded = model(inputs_embeds=model.get_input_embeddings()(tokens), **others)
        torch.testing.assert_close(embedded.loss, output.loss)


def test_multiple_choice_scores_each_sequence_alone(checkpoint, prepared, tmp_path):
    export(checkpoint, prepared, tmp_path / "export", "lm", tolerance=TOLERANCE)
    model = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "export").eval()
    together = model(TOKENS.view(2, 2, -1), position_ids=torch.arange(30).expand(2, 2, -1)).logits.flatten()
    torch.testing.assert_close(torch.stack([model(row[None, None]).logits[0, 0] for row in TOKENS]), together)


def test_a_scheme_of_the_users_own(my_schemes, prepared, tmp_path):
    """Its code travels, and the command holds what was written, run from that code alone, against the checkpoint."""
    import_user_module(Namespace(user_dir=str(my_schemes)))
    model = make_model("roberta_posenc_tiny", prepared, positions="absolute+decay", decay_power=0.5)
    path = save(model, tmp_path / "own.pt", prepared)
    out = tmp_path / "out"
    arguments = [
        "export-hf",
        str(path),
        "--data",
        str(prepared),
        "--out",
        str(out),
        "--head",
        "lm",
        "--tolerance",
        str(TOLERANCE),
    ]
    assert main(["--user-dir", str(my_schemes), *arguments]) == 0
    code = (out / "modeling_posenc.py").read_text()
    assert "class Decay(Scheme)" in code
    assert "my_schemes import" not in code
    assert json.loads((out / "config.json").read_text())["position_options"]["decay_power"] == 0.5


def refusal(capsys, *arguments):
    assert main(["export-hf", *map(str, arguments)]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("fairseq-posenc export-hf: ")
    return message


def test_out_that_is_no_utf_8(checkpoint, prepared, tmp_path, capsys):
    """Which a library refuses when it writes the tokenizer."""
    said = refusal(capsys, checkpoint, "--data", prepared, "--out", tmp_path / "\udcff", "--head", "lm")
    assert "\\udcff" in said
    assert "is not UTF-8: rename the file or folder" in said
    assert list(tmp_path.iterdir()) == []


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_not_an_export_is_not_replaced(checkpoint, prepared, tmp_path, capsys):
    """Inputs in OUT, and a user's folder; --overwrite is advised for none of them."""
    data, inside = tmp_path / "data-bin", tmp_path / "project" / "checkpoint.pt"
    shutil.copytree(prepared, data)
    inside.parent.mkdir()
    shutil.copy(checkpoint, inside)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    before = contents(tmp_path)
    for source, out, message in [
        (inside, inside.parent, "CHECKPOINT .*checkpoint.pt lies in --out .*project, which is written over"),
        (checkpoint, data, "--data .*dict.txt lies in --out .*data-bin, which is written over"),
        (checkpoint, tmp_path, "--data .*dict.txt lies in --out"),
        (checkpoint, tmp_path / "mine", "is not empty, and export-hf has not made it .README.md is there.: name another folder"),
        (checkpoint, inside / "below", "--out .* cannot be a folder: .*checkpoint.pt is a file"),
    ]:
        for flags in ((), ("--overwrite",)):
            said = refusal(capsys, source, "--data", data, "--out", out, "--head", "lm", *flags)
            assert re.search(message, said)
            assert "--overwrite" not in said
            assert contents(tmp_path) == before


def test_overwrite_replaces_an_export_and_nothing_else(checkpoint, prepared, tmp_path, capsys):
    """Also by way of a link; what an earlier export that was killed has left is removed, and no file of the user's anywhere."""
    out, arguments = tmp_path / "out", [str(checkpoint), "--data", str(prepared), "--head", "lm"]
    assert main(["export-hf", *arguments, "--out", str(out)]) == 0
    first = contents(out)
    names = ("out/fairseq/notes.txt", "out/notes.txt", "out.former/mine")
    mine = [tmp_path / name for name in names]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (tmp_path / "link").symlink_to(out)
    (out / "config.json").write_text("old")
    before = contents(tmp_path)
    said = refusal(capsys, *arguments, "--out", out)
    assert said.endswith("is not empty: name another folder, or add --overwrite to replace that export")
    assert contents(tmp_path) == before
    killed = out / ".partial" / "config.json"
    killed.parent.mkdir()
    killed.touch()
    assert main(["export-hf", *arguments, "--out", str(tmp_path / "link"), "--overwrite"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out", "out.former"]
    assert (tmp_path / "link").is_symlink()
    assert all(path.read_text() == "mine" for path in mine)
    assert contents(out).keys() == {*first, "fairseq/notes.txt", "notes.txt"}
    assert contents(out)["config.json"] == first["config.json"]


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)], ids=["new", "overwrite"])
def test_one_export_at_a_time(checkpoint, prepared, tmp_path, capsys, monkeypatch, overwrite):
    """The second ends with a sentence, and changes nothing, while the first has the lock of its --out; afterwards it is free."""
    out = tmp_path / "out"
    arguments = (checkpoint, "--data", prepared, "--head", "lm", "--no-tokenizer", "--out", out)
    if overwrite:
        assert main(["export-hf", *map(str, arguments)]) == 0
        (out / "config.json").write_text("old")

    def another(*_, **__):
        monkeypatch.undo()
        before = contents(tmp_path)
        assert f"another process is writing to {out}" in refusal(capsys, *arguments, "--overwrite")
        assert contents(tmp_path) == before
        return to_transformers(*_, **__)

    monkeypatch.setattr(export_module, "to_transformers", another)
    assert main(["export-hf", *map(str, arguments), *overwrite]) == 0
    assert os.listdir(tmp_path) == ["out"]
    assert json.loads((out / "config.json").read_text())["format"] == 1
    assert "is not empty" in refusal(capsys, *arguments)
    assert not (out / ".lock").exists()


def test_code_that_cannot_be_run_is_refused(checkpoint, prepared, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(assemble, "assemble", lambda expression, causal: "missing_name\n")
    said = refusal(capsys, checkpoint, "--data", prepared, "--out", tmp_path / "out", "--head", "lm")
    assert re.search("modeling_posenc.py .*'missing_name'", said)
    assert list(tmp_path.iterdir()) == []


def test_options_of_training_without_a_place_are_named(prepared, tmp_path):
    options = {"activation_dropout": 0.2, "encoder_layerdrop": 0.1, "initialization": "megatron"}
    for positions, lost in (
        ("absolute", {"activation_dropout 0.2", "layerdrop 0.1", "initialization megatron"}),
        ("tisa", set()),
    ):
        path = save(make_model(f"roberta_{positions}_tiny", prepared, **options), tmp_path / "checkpoint.pt", prepared)
        left_out = to_transformers(Checkpoint(path, prepared, "lm")).left_out
        assert {name for name in left_out if not name.startswith("classification_heads.")} == lost


def test_a_full_disk_leaves_what_there_was(checkpoint, prepared, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(PosencPreTrainedModel, "save_pretrained", full)
    said = refusal(capsys, checkpoint, "--data", prepared, "--out", tmp_path / "out", "--head", "lm")
    assert said.startswith(f"fairseq-posenc export-hf: {tmp_path / 'out'}: No space left on device. When there is room")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert main(["export-hf", str(checkpoint), "--data", str(prepared), "--out", str(tmp_path / "out"), "--head", "lm"]) == 0


def test_bad_input(checkpoint, prepared, tmp_path, capsys):
    out = tmp_path / "out"
    common = ("--data", prepared, "--out", out)
    assert "none.pt" in refusal(capsys, tmp_path / "none.pt", *common)
    assert "no such head, only lm, topic" in refusal(capsys, checkpoint, *common, "--head", "sentiment")
    out.mkdir()
    (out / "precious.txt").write_text("mine")
    assert "is not empty" in refusal(capsys, checkpoint, *common)
    assert (out / "precious.txt").read_text() == "mine"

    truncated = tmp_path / "truncated.pt"
    truncated.write_bytes(checkpoint.read_bytes()[:5000])
    assert "cannot be read as a checkpoint" in refusal(capsys, truncated, "--data", prepared, "--out", tmp_path / "a")

    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("dict.txt", "sentencepiece.model"):
        shutil.copy(prepared / name, bare)
    message = refusal(capsys, checkpoint, "--data", bare, "--out", tmp_path / "a")
    assert "neither valid.bin and .idx nor train.bin and .idx" in message

    for name in ("valid.bin", "valid.idx"):
        shutil.copy(prepared / name, bare)
    (bare / "valid.bin").write_bytes(b"\xff" * (bare / "valid.bin").stat().st_size)
    message = refusal(capsys, checkpoint, "--data", bare, "--out", tmp_path / "a")
    assert f"{bare / 'valid.bin'} has the id 65,535, and its dictionary has" in message

    saved = torch.load(checkpoint, weights_only=True)
    del saved["model"]["encoder.sentence_encoder.positions.tisa.offset"]
    torch.save(saved, tmp_path / "incomplete.pt")
    assert main(["export-hf", str(tmp_path / "incomplete.pt"), "--data", str(prepared), "--out", str(tmp_path / "a")]) == 2
    assert "does not fit the model that its own configuration describes" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
