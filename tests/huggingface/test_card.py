"""The files that people see of an export: the model card, the names of classes, limits of lengths and permissions."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from small_models import export, make_model, save
from transformers import AutoTokenizer

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.files import sha256
from fairseq_posenc.base.record import write_json
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.study.finetune.grid_report import summarise

SECRET = "hunter2"


def run_of(task, seed, checkpoint, **metrics):
    """A run of glue or squad, as its result.json has it."""
    scores = {"scores": {task: metrics}, "majority": {task: {}}, "constant": []}
    configuration = {"model": {"checkpoint": checkpoint, "arch": "roberta_posenc_tiny"}, "epochs": 3}
    about = {"configuration": configuration, "versions": {"torch": "2"}, "seconds": 1.0, "status": "finished", "format": 1}
    return {"task": task, "lr": 1e-5, "seed": seed, **about, **scores}


def write_grid(folder, *runs):
    folder.mkdir()
    write_json(folder / "results.json", summarise(runs))
    return folder


@pytest.fixture(scope="module")
def exports(prepared, tmp_path_factory):
    """A checkpoint of pretraining and one of fine-tuning, each validated, and a data-bin whose manifest was tampered with."""
    folder = tmp_path_factory.mktemp("card")
    path = save(make_model("roberta_posenc_tiny", prepared, positions="rope+t5"), folder / "lm.pt", prepared)
    content = load_checkpoint(path)
    content["extra_state"]["val_loss"] = 3.0
    content["cfg"]["task"] |= {"data": f"s3://user:{SECRET}@host/data", "hf_token": SECRET, "mask_prob": 0.15}
    content["cfg"]["common"]["seed"] = f"1?token={SECRET}"
    content["cfg"]["dataset"] = {"batch_size": 8, "train_subset": f"C:\\Users\\{SECRET}\\train"}
    content["cfg"]["optimization"] = {"update_freq": [2], "max_update": "1\n```\n---\nlicense: evil"}
    torch.save(content, path)
    content["cfg"]["task"] = {"_name": "sentence_prediction", "data": f"C:\\{SECRET}\\RTE", "num_classes": 3}
    content["cfg"]["checkpoint"] = {"best_checkpoint_metric": "accuracy"}
    content["task_state"] = {"labels": ["yes", "no", f"[x](javascript:{SECRET})"]}
    (folder / "run").mkdir()
    torch.save(content, folder / "run" / "tuned.pt")
    data = shutil.copytree(prepared, folder / "a-corpus")
    record = json.loads((data / "manifest.json").read_text())
    (text,) = record["inputs"]["train"]
    paths = [
        f"{SECRET}/moby.txt",
        f"C:\\{SECRET}\\ahab.txt",
        f"[x](javascript:{SECRET})",
        f"s3://user:{SECRET}@host",
        f"https://host/x?token={SECRET}",
    ]
    record["inputs"]["train"] = [*({**text, "path": path} for path in paths), {"dataset": "allenai/c4", "sha256": None}]
    (data / "manifest.json").write_text(json.dumps(record))
    previous = os.umask(0o027)
    digest = sha256(path)
    runs = [run_of("MRPC", seed, digest, f1=80.0 + seed, accuracy=70.0 + seed) for seed in (1, 2, 3)]
    grid = write_grid(folder / "grid", *runs, run_of("SQuAD-2.0", 1, digest, exact=52.5, f1=52.25))
    export(folder / "lm.pt", data, folder / "lm", "lm", language="en,de", license="mit", results=grid)
    write_json(folder / "run" / "result.json", run_of("RTE", 1, digest, accuracy=66.5))
    export(folder / "run" / "tuned.pt", data, folder / "tuned", "topic", results=folder / "run")
    os.umask(previous)
    return folder


def card(folder):
    text = (folder / "README.md").read_text("utf-8")
    return yaml.safe_load(text.split("---\n")[1]), text


def test_the_card_of_a_pretrained_model(exports):
    metadata, text = card(exports / "lm")
    assert (metadata["language"], metadata["license"], metadata["pipeline_tag"]) == (["en", "de"], "mit", "fill-mask")
    assert metadata["model-index"][0]["results"][0]["metrics"] == [{"type": "loss", "value": 3.0}]
    assert "\n# roberta_posenc_tiny: rope+t5\n" in text
    assert "a-corpus (" in text
    assert "from moby.txt, ahab.txt, c4, 3 more)" in text
    for expected in (
        "(perplexity 8)",
        "trust_remote_code=True",
        "sdpa: ",
    ):
        assert expected in text


def test_the_card_of_a_fine_tuned_model(exports):
    metadata, text = card(exports / "tuned")
    assert {"language", "license"}.isdisjoint(metadata)
    assert "\n# roberta_posenc_tiny: rope+t5, fine-tuned on RTE\n" in text
    assert "| RTE, after pretraining on a-corpus (" in text
    assert "| accuracy 3 |" in text
    assert "| yes, no |" in text


@pytest.mark.parametrize("name", ["lm", "tuned"])
def test_the_card_has_no_secret_and_no_markup_of_others(exports, name):
    _, text = card(exports / name)
    assert SECRET not in text
    assert "javascript" not in text
    assert "evil" not in text
    assert str(Path.home()) not in text
    assert str(exports.parent) not in text


def test_results_of_fine_tuning_are_in_the_card(exports):
    metadata, text = card(exports / "lm")
    tasks = {
        entry["dataset"].get("config") or entry["dataset"]["type"]: entry for entry in metadata["model-index"][0]["results"][1:]
    }
    assert tasks["mrpc"]["dataset"] == {"name": "MRPC", "type": "nyu-mll/glue", "config": "mrpc", "split": "validation"}
    assert tasks["mrpc"]["metrics"] == [{"type": "f1", "value": 82.0}, {"type": "accuracy", "value": 72.0}]
    assert tasks["rajpurkar/squad_v2"]["task"] == {"type": "question-answering"}
    assert tasks["rajpurkar/squad_v2"]["metrics"] == [{"type": "exact_match", "value": 52.5}, {"type": "f1", "value": 52.25}]
    (row,) = (line for line in text.splitlines() if re.match(r"\| MRPC +\| accuracy ", line))
    assert "72.00" in {cell.strip() for cell in row.split("|")}
    metadata, text = card(exports / "tuned")
    assert [entry["metrics"] for entry in metadata["model-index"][0]["results"]] == [[{"type": "accuracy", "value": 66.5}]]
    assert "| RTE " in text


@pytest.mark.parametrize(("task", "digest"), [("MRPC", "of another"), ("[x](y)", None)])
def test_results_of_another_checkpoint_and_names_of_others(exports, prepared, tmp_path, task, digest):
    checkpoint = exports / "lm.pt"
    grid = write_grid(tmp_path / "grid", run_of(task, 1, digest or sha256(checkpoint), accuracy=1.0))
    with pytest.raises(InputError, match=r"--results|results\.json"):
        export(checkpoint, prepared, tmp_path / "out", "lm", results=grid)
    with pytest.raises(InputError, match=r"--results .*nowhere"):
        export(checkpoint, prepared, tmp_path / "out", "lm", results=tmp_path / "nowhere")
    assert not (tmp_path / "out").exists()


def test_classes_have_the_names_that_the_checkpoint_gives(exports):
    config = json.loads((exports / "tuned" / "config.json").read_text())
    assert list(config["id2label"].values())[:2] == ["yes", "no"]


def test_a_text_can_be_cut_to_the_length_of_training(exports):
    """transformers cuts to model_max_length, which is otherwise 10**30; 48 tokens were trained on."""
    tokenizer = AutoTokenizer.from_pretrained(exports / "lm")
    assert len(tokenizer("w1 " * 200, truncation=True)["input_ids"]) == 48


def test_the_length_is_that_of_training_where_any_is_possible(exports, prepared, tmp_path):
    """A model that draws its positions from a larger range is trained on no longer sequences."""
    model = make_model("roberta_posenc_tiny", prepared, positions="rope", position_sampling="random:200")
    export(save(model, tmp_path / "model.pt", prepared), prepared, tmp_path / "out", "lm")
    assert "| any; trained on up to 48 tokens |" in card(tmp_path / "out")[1]
    assert AutoTokenizer.from_pretrained(tmp_path / "out").model_max_length == 48


def test_the_scale_of_a_similarity_is_stated(exports, prepared, tmp_path):
    content = load_checkpoint(exports / "run" / "tuned.pt")
    content["cfg"]["task"] |= {"data": "data/STS-B", "regression_target": True}
    content["task_state"] = {"labels": []}
    torch.save(content, tmp_path / "tuned.pt")
    export(tmp_path / "tuned.pt", prepared, tmp_path / "out", "topic")
    assert "| a similarity from 0 to 5, divided by 5 |" in card(tmp_path / "out")[1]


def test_others_may_read_the_files_as_far_as_umask_lets_them(exports):
    files = [path for path in (exports / "lm").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
