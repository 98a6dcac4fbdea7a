"""Options of position encodings in a config of transformers."""

import json
import os
from types import SimpleNamespace

import pytest
import torch
from transformers import PreTrainedModel, modeling_utils

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.transformer import Encoder
from fairseq_posenc.huggingface.auto import PosencConfig
from fairseq_posenc.huggingface.modeling import PosencForSequenceClassification, PosencModel

SIZES = dict(vocab_size=20, layers=1, dim=16, ffn_dim=16, heads=2, max_positions=8)


def test_an_option_that_means_nothing_is_refused():
    config = PosencConfig(**SIZES, positions="tisa", position_options={"shaw_terms": "keys"})
    with pytest.raises(ValueError, match=r"shaw_terms keys .*tisa.*shaw"):
        PosencModel(config)


@pytest.mark.parametrize("version", [None, 0, 2])
def test_a_config_of_another_format_is_refused(version, tmp_path):
    PosencConfig(**SIZES).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**content, "format": version}))
    with pytest.raises(ValueError, match=f"format {version}, not 1"):
        PosencConfig.from_pretrained(tmp_path)


def test_options_that_are_never_read_are_refused():
    with pytest.raises(InputError, match="rope_parameters is not read: give position_options"):
        PosencConfig.from_dict({"format": 1}, rope_parameters={"rope_type": "linear", "factor": 4.0})


@pytest.mark.parametrize("options", [{"initialization": "megatron"}, {"scale_embeddings": True}, {}])
def test_a_new_model_starts_as_its_encoder_does(options):
    sizes = {"vocab_size": 50, "max_positions": 16, "layers": 4, "dim": 64, "ffn_dim": 256, "heads": 4}
    config = PosencConfig(**sizes, **options)
    (ours, theirs) = (model.state_dict() for model in (Encoder(config.encoder_config()), PosencModel(config).encoder))
    for name in ("layers.0.fc2.weight", "layers.0.self_attn.q_proj.weight"):
        assert theirs[name].std().item() == pytest.approx(ours[name].std().item(), rel=0.1)


def test_a_new_config_is_saved_with_every_option(tmp_path):
    PosencConfig(**SIZES, positions="sentence_absolute").save_pretrained(tmp_path)
    assert PosencConfig.from_pretrained(tmp_path).position_options == {"sentence_absolute_first": 1}
    config = PosencModel(PosencConfig(**SIZES, positions="untied+reset")).config
    assert config.position_options == {"untied_form": "code", "untied_theta": "vectors"}


def test_the_code_is_saved_and_uploaded_with_the_model(tmp_path, monkeypatch):
    """By the main process alone, and under the names of the new folder if the model is from the Hub."""
    uploaded = set()
    hub = SimpleNamespace(create_repo=lambda *_, **__: SimpleNamespace(repo_id="user/repo"))
    monkeypatch.setattr(modeling_utils, "hf_api", lambda: hub)
    card = SimpleNamespace(save=lambda path: None)  # transformers' own, which it would look for on the hub
    monkeypatch.setattr(modeling_utils, "create_and_tag_model_card", lambda *_, **__: card)
    monkeypatch.setattr(
        PreTrainedModel, "_upload_modified_files", lambda self, folder, name, before, **_: uploaded.update(os.listdir(folder))
    )
    config = PosencConfig(**SIZES, auto_map={"AutoModel": "user/repo--modeling_posenc.PosencModel"})
    PosencModel(config).save_pretrained(tmp_path / "main", push_to_hub=True)
    assert "modeling_posenc.py" in uploaded
    assert json.loads((tmp_path / "main" / "config.json").read_text())["auto_map"]["AutoModel"] == "modeling_posenc.PosencModel"
    PosencModel(config).save_pretrained(tmp_path / "other", is_main_process=False)
    assert not list(tmp_path.glob("other/*"))


LENGTHS = {"factor": 8.0, "original_positions": 64}
FACTORS = [1 + t / 7 for t in range(32)]


@pytest.mark.parametrize(
    ("kind", "own", "theirs"),
    [
        ("linear", {"factor": 4.0}, {"factor": 4.0}),
        ("ntk", {"factor": 4.0}, {"rope_type": "dynamic", "factor": 1.0}),
        ("yarn", LENGTHS, {"factor": 8.0}),
        ("llama3", LENGTHS, {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        (
            "longrope",
            {**LENGTHS, "factors": ":".join(map(str, FACTORS))},
            {"factor": 8.0, "long_factor": FACTORS, "short_factor": FACTORS},
        ),
    ],
)
def test_angles_of_rope_are_those_of_transformers(kind, own, theirs):
    """Of each extension; ntk is transformers' dynamic one for a sequence of four times the length."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    options = {"rope_type": kind, "rope_base": 500.0, **{f"rope_{name}": value for name, value in own.items()}}
    config = PosencConfig(**{**SIZES, "dim": 128}, positions="rope", position_options=options)
    rope = PosencModel(config).encoder.positions.rope
    config.rope_parameters = {"rope_type": kind, "rope_theta": 500.0, "original_max_position_embeddings": 64, **theirs}
    lengths = {"seq_len": 4 * config.max_positions} if kind == "ntk" else {}
    frequencies, magnification = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config, **lengths)
    torch.testing.assert_close(rope.frequencies(), frequencies.double(), rtol=1e-5, atol=0)
    assert rope.magnification == pytest.approx(magnification)


@pytest.mark.parametrize("positions", ["absolute", "untied+reset", "absolute_untied_projection", "synthesizer_random"])
def test_padding_on_the_left_changes_nothing(positions):
    torch.manual_seed(0)
    model = PosencForSequenceClassification(PosencConfig(**SIZES, positions=positions)).eval()
    tokens = torch.tensor([[0, 5, 6, 7, 2]])
    padded = torch.nn.functional.pad(tokens, (3, 0), value=1)
    masked = dict(input_ids=padded, attention_mask=(padded != 1).int())
    expected = model(tokens).logits
    for given in (masked, dict(input_ids=padded), dict(inputs_embeds=model.get_input_embeddings()(padded), **masked)):
        given.pop("input_ids") if "inputs_embeds" in given else None
        torch.testing.assert_close(model(**given).logits, expected)
