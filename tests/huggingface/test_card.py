"""The files that people see of an export: the model card, the names of classes, limits of lengths and permissions."""

import json
import os
import shutil
from pathlib import Path

import pytest
import readme
import torch
import yaml
from small_models import export, make_model, save
from transformers import AutoTokenizer

from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

SECRET = "hunter2"


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
    export(folder / "lm.pt", data, folder / "lm", "lm", language="en,de", license="mit")
    export(folder / "run" / "tuned.pt", data, folder / "tuned", "topic")
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


def test_results_of_fine_tuning_are_added_as_the_document_says(exports, tmp_path, monkeypatch):
    shutil.copytree(exports / "lm", tmp_path / "my-model")
    monkeypatch.chdir(tmp_path)
    exec(readme.blocks("## Export", "python", file="examples/huggingface/README.md")[-1], {})  # noqa: S102 - the document's
    (before, text), (metadata, new_text) = (card(folder) for folder in (exports / "lm", tmp_path / "my-model"))
    first, added = metadata["model-index"][0]["results"]
    assert [first] == before["model-index"][0]["results"]
    assert added["dataset"] == {"name": "RTE", "type": "nyu-mll/glue", "config": "rte", "split": "validation"}
    assert added["metrics"] == [{"type": "accuracy", "value": 66.5}]
    assert new_text.split("---\n", 2)[2].strip() == text.split("---\n", 2)[2].strip()


def test_classes_have_the_names_that_the_checkpoint_gives(exports):
    config = json.loads((exports / "tuned" / "config.json").read_text())
    assert list(config["id2label"].values())[:2] == ["yes", "no"]


def test_a_text_can_be_cut_to_the_length_of_training(exports):
    """transformers cuts to model_max_length, which is otherwise 10**30; 48 tokens were trained on."""
    tokenizer = AutoTokenizer.from_pretrained(exports / "lm")
    assert len(tokenizer("w1 " * 200, truncation=True)["input_ids"]) == 48


def test_the_length_is_that_of_training_where_any_is_possible(exports, prepared, tmp_path):
    """A model that draws its positions from a larger range is trained on no longer sequences, and takes no longer than that."""
    model = make_model("roberta_posenc_tiny", prepared, positions="rope", position_sampling="random:200")
    export(save(model, tmp_path / "model.pt", prepared), prepared, tmp_path / "out", "lm")
    assert "| up to 48 tokens |" in card(tmp_path / "out")[1]
    model = make_model("roberta_posenc_tiny", prepared, positions="rope")
    export(save(model, tmp_path / "any.pt", prepared), prepared, tmp_path / "any", "lm")
    assert "| any; trained on up to 48 tokens |" in card(tmp_path / "any")[1]
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
