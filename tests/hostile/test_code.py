"""Nothing that a checkpoint names or says is run, looked up in the environment, imported or fetched."""

import argparse
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from cases import in_turn, thorough_but
from fairseq import checkpoint_utils, utils
from fairseq.data import encoders
from omegaconf import DictConfig, OmegaConf

from fairseq_posenc.cli import main
from fairseq_posenc.plugin.checkpoint import trust
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

BUILDING = ("glue", "squad", "export-hf", "import-hf")
"""Commands that build the model that a checkpoint names."""


@pytest.fixture
def trace(tmp_path):
    """A file that would be there if code from the checkpoint had run."""
    path = tmp_path / "trace"
    yield path
    assert not path.exists()


def evaluated(trace) -> str:
    """What evaluates to a list of layers, and leaves the trace."""
    return f"[__import__('os').system('touch {trace}')] and [(8, 1, 1)]"


def models_that_evaluate(trace):
    code = evaluated(trace)
    return {
        "wav2vec2": {"conv_feature_layers": code},
        "hubert": {"conv_feature_layers": code},
        "fconv": {"encoder_layers": code, "decoder_layers": code, "dropout": 0.1},
        "transformer_lm": {"character_embeddings": True, "character_filters": code},
    }


def save(content, path):
    torch.save(content, path)
    return path


@pytest.mark.parametrize(("name", "command"), in_turn(["wav2vec2", "hubert", "fconv", "transformer_lm"], BUILDING))
def test_a_model_that_evaluates_its_options_is_not_built(name, command, contents, commands, refusal, trace, tmp_path):
    content = contents("roberta_base" if command == "import-hf" else "roberta_tisa_tiny")
    content["cfg"]["model"] = {"_name": name, **models_that_evaluate(trace)[name]}
    path = save(content, tmp_path / "named.pt")
    said = refusal(command, *commands[command](path))
    assert f"names the model '{name}'" in said
    assert "FAIRSEQ_POSENC_TRUST" not in said  # there is no way to allow it here


@pytest.mark.parametrize("name", ["wav2vec2", "hubert", "fconv", "transformer_lm"])
def test_fairseq_builds_no_model_that_evaluates_its_options(name, contents, trace, tmp_path):
    content = contents("roberta_tisa_tiny")
    content["cfg"]["model"] = {"_name": name, **models_that_evaluate(trace)[name]}
    path = save(content, tmp_path / "named.pt")
    with pytest.raises(trust.Untrusted, match=r"named\.pt.*FAIRSEQ_POSENC_TRUST="):
        checkpoint_utils.load_model_ensemble_and_task([str(path)])
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    with pytest.raises(trust.Untrusted, match=r"named\.pt.*FAIRSEQ_POSENC_TRUST="):
        checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)


@pytest.mark.parametrize("option", ["adaptive_softmax_cutoff", "decoder_xformers_att_config", "adaptive_input_cutoff"])
def test_options_of_listed_models_are_literals(option, contents, trace, tmp_path):
    content = contents("roberta_tisa_tiny")
    options = {"decoder_layers": 1, "decoder_embed_dim": 8, "decoder_ffn_embed_dim": 8, "decoder_attention_heads": 2}
    content["cfg"]["model"] = {"_name": "transformer_lm", "adaptive_input": option == "adaptive_input_cutoff", **options,
                               option: evaluated(trace)}  # fmt: skip
    content["cfg"]["task"] = {"_name": "language_modeling", "data": content["cfg"]["task"]["data"], "max_target_positions": 16}
    with pytest.raises(ValueError, match="malformed node"):
        checkpoint_utils.load_model_ensemble_and_task([str(save(content, tmp_path / "named.pt"))])


def test_who_trusts_a_file_can_allow_it(contents, tmp_path, monkeypatch):
    content = contents("roberta_tisa_tiny")
    ran = tmp_path / "ran"
    small = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}
    content["cfg"]["model"] = {"_name": "wav2vec2", "conv_feature_layers": evaluated(ran), "conv_pos_groups": 2, **small}
    (tmp_path / "trusted").mkdir()
    path = save(content, tmp_path / "trusted" / "named.pt")
    with pytest.raises(trust.Untrusted) as refused:
        checkpoint_utils.load_model_ensemble_and_task([str(path)])
    name, _, value = str(refused.value).partition("allow it by ")[2].partition(" in the")[0].partition("=")
    assert (name, value) == ("FAIRSEQ_POSENC_TRUST", str(path))
    for allowed in (value, str(path.parent), os.pathsep.join(["/elsewhere", value])):
        monkeypatch.setenv(name, allowed)
        with pytest.raises(Exception, match=r"."):  # it is no wav2vec2
            checkpoint_utils.load_model_ensemble_and_task([str(path)])
        assert ran.exists()
        ran.unlink()
    monkeypatch.setenv(name, str(path) + "2")
    with pytest.raises(trust.Untrusted):
        checkpoint_utils.load_model_ensemble_and_task([str(path)])


@pytest.mark.parametrize(
    ("section", "options", "said"),
    [
        ("task", {"_name": "audio_pretraining"}, "names the task 'audio_pretraining'"),
        ("task", {"_name": "masked_lm", "task": "audio_pretraining"}, "names the task 'audio_pretraining'"),
        ("task", {"dataset_impl": "fasta"}, "has a shell read the data"),
        ("task", {"use_plasma_view": True}, "starts a program"),
        ("criterion", {"_name": "ctc", "wer_args": "CODE"}, "names the criterion 'ctc'"),
        ("criterion", {"_name": "sentence_ranking", "save_predictions": "TRACE"}, "overwrites a file"),
        ("model", {"encoder": {"embed_path": "/dev/zero"}}, "loads a further file"),
        ("model", {"_name": "roberta_base", "arch": "wav2vec2"}, "names the model 'wav2vec2'"),
        ("bpe", {"_name": "gpt2", "gpt2_encoder_json": "http://example.org/x"}, "fetch http://example.org/x"),
        ("bpe", {"_name": "gpt2", "gpt2_encoder_json": " HTTPS://example.org/x"}, "fetch  HTTPS://example.org/x"),
        ("tokenizer", {"_name": "unheard"}, "names the tokenizer 'unheard'"),
    ],
)
def test_what_else_a_file_may_not_have_built(section, options, said, contents, trace, tmp_path):
    values = {"CODE": evaluated(trace), "TRACE": str(trace)}
    content = contents("roberta_tisa_tiny")
    content["cfg"][section] = (content["cfg"].get(section) or {}) | {k: values.get(v, v) if isinstance(v, str) else v
                                                                     for k, v in options.items()}  # fmt: skip
    path = save(content, tmp_path / "named.pt")
    with pytest.raises(trust.Untrusted, match=said):
        checkpoint_utils.load_model_ensemble_and_task([str(path)])


def test_a_task_that_is_given_is_not_the_file_s(contents, tmp_path):
    content = contents("roberta_tisa_tiny")
    path = save(content, tmp_path / "whole.pt")
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    content["cfg"]["task"]["_name"] = "audio_pretraining"
    save(content, path)
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    assert model.encoder.sentence_encoder.positions.tisa is not None


def test_what_is_listed_is_there():
    """Names that fairseq does not have would be typing errors."""
    for kind, names in {**trust.STOCK, "model": trust.STOCK["model"] | trust.OURS}.items():
        assert [name for name in names if not trust._is_listed(kind, name, names, False)] == []


def test_a_user_dir_that_a_file_names_is_not_imported(contents, trace, tmp_path):
    (tmp_path / "plugin_of_the_file").mkdir()
    (tmp_path / "plugin_of_the_file" / "__init__.py").write_text(f"import os; os.system('touch {trace}')")
    content = contents("roberta_tisa_tiny")
    content["cfg"]["common"]["user_dir"] = str(tmp_path / "plugin_of_the_file")
    checkpoint_utils.load_model_ensemble_and_task([str(save(content, tmp_path / "named.pt"))])
    assert "plugin_of_the_file" not in sys.modules


@pytest.mark.parametrize("name", ["../" * 20 + "{folder}/other", "/{folder}/other", "a b", ["gpt2"], pathlib.Path("../x")])
def test_an_old_file_names_no_file_for_hydra(name, tmp_path):
    (tmp_path / "other.yaml").write_text("secret: ${env:HOME}\n")
    name = name.format(folder=str(tmp_path).lstrip("/")) if isinstance(name, str) else name
    args = argparse.Namespace(arch="roberta_base", task="masked_lm", criterion="masked_lm", tokenizer=name)
    path = save({"args": args, "model": {}, "extra_state": {}}, tmp_path / "old.pt")
    with pytest.raises(Exception, match=r"old\.pt names the tokenizer .* which is not a name"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))


def test_options_in_strings_are_literals(trace):
    assert utils.eval_str_list("[1, 2]", int) == [1, 2]
    assert utils.eval_str_list("0.5") == [0.5]
    assert utils.eval_str_list(3) == [3.0]
    assert utils.eval_str_dict("{'a': 1}") == {"a": 1}
    assert (utils.eval_bool("True"), utils.eval_bool("False"), utils.eval_bool(True, default=False)) == (True, False, False)
    for function in (utils.eval_str_list, utils.eval_str_dict, utils.eval_bool):
        with pytest.raises(ValueError, match="malformed"):
            function(evaluated(trace))


SECRET = "a-secret-of-this-machine"
LOOKED_UP = "${env:SECRET_TOKEN}"


def as_config(cfg):
    return OmegaConf.create(cfg)


def as_arguments(cfg):
    """All in one namespace, as releases of fairseq before 0.10.1 saved it."""
    model, task = cfg["model"], cfg["task"]
    names = {"arch": model.pop("_name"), "task": task.pop("_name"), "criterion": "masked_lm", "optimizer": "adam"}
    return argparse.Namespace(**names, lr_scheduler="fixed", **{**task, **{k: v for k, v in model.items() if v is not None}})


@pytest.mark.parametrize("form", thorough_but([as_arguments], [dict, as_config, as_arguments]))
def test_what_would_be_looked_up_is_text(form, contents, commands, data_bin, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", SECRET)
    content = contents("roberta_tisa_tiny")
    content["cfg"]["task"]["shorten_data_split_list"] = LOOKED_UP
    content["cfg"]["task"]["data"] = f"/x/{LOOKED_UP}"
    saved = form(content.pop("cfg"))
    content |= {"args": saved, "cfg": None} if form is as_arguments else {"cfg": saved}
    content["extra_state"] = {"epoch": 1}
    path = save(content, tmp_path / "asking.pt")
    assert main(["export-hf", *commands["export-hf"](path)]) == 0
    written = [file.read_text("utf-8") for file in (tmp_path / "out").rglob("*") if file.suffix in (".md", ".json", ".py")]
    assert not any(SECRET in text for text in written)
    _, cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(data_bin)})
    assert "env:SECRET_TOKEN" in cfg.task.shorten_data_split_list
    assert SECRET not in str(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))


@pytest.mark.parametrize(
    "value", [b"${env:SECRET_TOKEN}", {LOOKED_UP}, slice(LOOKED_UP), pathlib.PurePosixPath(LOOKED_UP), [LOOKED_UP]]
)
def test_nothing_is_looked_up_in_another_guise(value, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", SECRET)
    args = argparse.Namespace(arch="roberta_base", task="masked_lm", criterion="masked_lm", data=value, seed=value, langs=value)
    path = save({"args": args, "model": {}, "extra_state": {}, "optimizer_history": [{"num_updates": 1}]}, tmp_path / "old.pt")
    try:
        found = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    except Exception as error:
        found = error
    assert SECRET not in str(found)


class Made:
    """Pickled as a call with a state, whatever they are."""

    def __init__(self, function, arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


CORE = (np.core if np.__version__.startswith("1.") else np._core).multiarray
UNMARKED = (3, "|", None, None, None, -1, -1, 0)  # the state of a type whose data is taken as it comes
OBJECTS = Made(np.dtype, ("O8", False, True), UNMARKED)
REAL = (3, "<", None, None, None, -1, -1, 0)
NUMBERS = Made(np.dtype, ("f8", False, True), REAL)
FIELDS = Made(np.dtype, ("V8", False, True), (3, "|", None, ("a",), {"a": (NUMBERS, 10**6)}, 8, 1, 16))
CRASHING = {
    "a scalar of objects": Made(CORE.scalar, (OBJECTS, b"A" * 8)),
    "an array of objects": Made(CORE._reconstruct, (np.ndarray, (0,), b"b"), (1, (64,), OBJECTS, False, b"A" * 512)),
    "a type with fields": Made(CORE.scalar, (FIELDS, b"A" * 8)),
    "a short scalar": Made(CORE.scalar, (NUMBERS, b"A")),
    "an array that is short of data": Made(CORE._reconstruct, (np.ndarray, (0,), b"b"), (1, (10**6,), NUMBERS, False, b"A" * 8)),
    "an array of negative length": Made(CORE._reconstruct, (np.ndarray, (0,), b"b"), (1, (-1, -1), NUMBERS, False, b"A" * 8)),
    "an array of texts": np.array(["a", "b"]),
    "a text": np.str_("a"),
}


READER = """
import sys
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
for path in sys.argv[1:]:
    try:
        print("read:", repr(load_checkpoint(path)), flush=True)
    except Exception as error:
        print("read:", error, flush=True)
"""


@pytest.mark.thorough
def test_numpy_s_data_does_not_crash(tmp_path):
    paths = [save({"best": value}, tmp_path / f"crash{i}.pt") for i, value in enumerate(CRASHING.values())]
    completed = subprocess.run([sys.executable, "-c", READER, *paths], capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == 0, (completed.returncode, completed.stdout, completed.stderr)
    lines = [line for line in completed.stdout.splitlines() if line.startswith("read: ")]
    for case, path, said in zip(CRASHING, paths, lines, strict=True):
        assert said.startswith(f"read: {path} holds "), (case, said)
        assert "so nothing was loaded" in said, (case, said)


def test_the_shape_of_a_tensor_comes_back_as_one(tmp_path):
    """One process of fairseq tells the others how large its tensors are, by way of the same reader."""
    found = load_checkpoint(save({"sizes": [torch.Size([2, 3])]}, tmp_path / "sizes.pt"))
    assert type(found["sizes"][0]) is torch.Size


@pytest.mark.parametrize(
    "value",
    [np.float64(1.5), np.float32(0.1), np.int64(7), np.bool_(True), np.array(3.0), np.zeros((0, 3)), np.arange(6).reshape(2, 3).T,
     np.arange(4, dtype=">i4"), np.array([[1 + 2j]])],
    ids=lambda value: f"{value.dtype}-{np.shape(value)}",
)  # fmt: skip
def test_numpy_s_numbers_come_back(value, tmp_path):
    found = load_checkpoint(save({"it": [value], "twice": value}, tmp_path / "numbers.pt"))
    for loaded in (found["it"][0], found["twice"]):
        assert type(loaded) is type(value)
        assert np.array_equal(loaded, value)
        assert loaded.dtype == value.dtype
        assert np.shape(loaded) == np.shape(value)


def test_configurations_that_hold_themselves_or_double(tmp_path):
    cyclic = OmegaConf.create({"a": {}})
    cyclic.__dict__["_content"]["a"] = cyclic
    doubled: list = ["x"]
    for _ in range(60):
        doubled = [doubled, doubled]
    endless: dict = {}
    endless["model"] = endless
    for cfg in (cyclic, {"model": doubled}, endless):
        with pytest.raises(Exception, match=r"bad\.pt"):
            load_checkpoint(save({"cfg": cfg}, tmp_path / "bad.pt"))


def test_configurations_come_back_without_their_parents(tmp_path):
    cfg = OmegaConf.create({"a": {"b": [1, "x", None]}, "c": "${a.b}"})
    found = load_checkpoint(save({"cfg": cfg["a"], "other": cfg}, tmp_path / "cfg.pt"))
    assert isinstance(found["cfg"], DictConfig)
    assert found["cfg"] == {"b": [1, "x", None]}
    assert found["cfg"]._get_parent() is None
    assert found["other"]["a"]["b"][1] == "x"
    assert found["other"]["c"] == "$\\{a.b}"


def test_names_of_fairseq_s_encoders_are_listed():
    assert trust.STOCK["bpe"] == set(encoders.BPE_REGISTRY)
    assert trust.STOCK["tokenizer"] == set(encoders.TOKENIZER_REGISTRY)
