"""What is said, and what is refused, before training starts."""

import logging

import pytest
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY
from test_roberta import Task

from fairseq_posenc.core.families import ROBERTA
from fairseq_posenc.core.schemes import option_fields
from fairseq_posenc.plugin.models.roberta import PosencRobertaModel
from fairseq_posenc.plugin.options import option_set
from fairseq_posenc.plugin.processes import exits

pytestmark = pytest.mark.usefixtures("as_program")


def start(cfg):
    """Start as fairseq's commands do; returns the configuration that training gets."""
    started = []
    distributed_utils.call_main(cfg, started.append)
    return started[0]


@pytest.mark.parametrize(
    ("arch", "flags", "message"),
    [
        (
            "roberta_tisa_tiny",
            ["--positions", "tsia"],
            "unknown positional encoding 'tsia' in --positions 'tsia': did you mean tisa",
        ),
        ("roberta_tisa_tiny", ["--shaw-terms", "keys"], "--shaw-terms keys means nothing to --positions tisa, only to shaw"),
        (
            "roberta_rope",
            ["--max-relative-position", 4],
            "--max-relative-position 4 means nothing to --positions rope",
        ),
        (
            "roberta_m4m",
            ["--max-positions", 8],
            "--tokens-per-sample 16 is more than --max-positions 8, which is all that --posi",
        ),
        (
            "roberta_rope",
            ["--max-positions", 8, "--mask-decoder-steps", 2],
            "--tokens-per-sample 16 is more than --max-positions 8, which is all that --mask-d",
        ),
        pytest.param(
            *("roberta_shaw", ["--attention-backend", "sdpa"], "--attention-backend sdpa cannot run these positions"),
            marks=pytest.mark.thorough,
        ),
        ("roberta_tisa", ["--tisa-kernels", 0], "--tisa-kernels must be at least 1"),
        (
            "roberta_tisa",
            ["--encoder-attention-heads", 5],
            "--encoder-embed-dim 16 does not divide into --encoder-attention-heads 5",
        ),
        (
            "roberta_tisa_large",
            ["--positions", "absolute+t5"],
            "--arch roberta_tisa_large means --positions tisa, and --positions absolute+t5 is given: write --arch "
            "roberta_posenc_large --positions absolute+t5 (with Hydra model._name=roberta_posenc_large model.posit",
        ),
        (
            "roberta_posenc_tiny",
            [],
            "--arch roberta_posenc_tiny leaves the positional encoding to --positions (model.positions), which is missing: ",
        ),
    ],
)
def test_what_makes_no_model_ends_in_one_sentence(arch, flags, message, configure, capsys):
    cfg = configure("data", arch, *flags)
    capsys.readouterr()  # Hydra's, about its plugins, the first time in a process
    with pytest.raises(SystemExit) as ended:
        start(cfg)
    assert ended.value.code == exits.REFUSED
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f": {message}" in said


def test_one_process_of_a_host_says_it(configure, capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(exits, "GRACE_SECONDS", 0)
    cfg = configure("data", "roberta_tisa_tiny", "--positions", "tsia")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        start(cfg)
    assert capsys.readouterr().err == ""


def test_a_misspelt_architecture_names_the_nearest(configure, capsys):
    """On the command line, and where Hydra has put it into the configuration."""
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(options.get_training_parser(), ["data", "--arch", "roberta_tsia"])
    assert ended.value.code == exits.REFUSED
    on_the_command_line = capsys.readouterr().err
    cfg = configure("data", "roberta_tisa_tiny")
    cfg.model._name = "roberta_tsia"
    with pytest.raises(SystemExit):
        start(cfg)
    for said in (on_the_command_line, capsys.readouterr().err):
        assert said.count("\n") == 1
        assert "unknown architecture 'roberta_tsia' (--arch, model._name): did you mean roberta_tisa" in said


def test_a_decoder_without_a_causal_form_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(options.get_training_parser(), ["data", "--arch", "transformer_tupe_r_big"])
    assert "no --arch transformer_tupe_r_big: its scheme has no causal form" in capsys.readouterr().err


def test_other_errors_keep_their_tracebacks(configure):
    def fail(cfg):
        raise ValueError("a mistake in the code")

    with pytest.raises(ValueError, match="a mistake in the code"):
        distributed_utils.call_main(configure("data", "roberta_tisa_tiny"), fail)


def test_the_configuration_has_the_values_that_count(configure):
    cfg = configure("data", "roberta_posenc", "--positions", "untied+floater", "--position-share-layers", "true")
    cfg.model._name = "roberta_posenc_tiny"
    model = start(cfg).model
    values = {
        "positions": "untied+floater", "untied_form": "code", "floater_hidden": 4, "floater_stride": 8, "encoder_layers": 2,
        "position_share_layers": "true", "encoder_embed_dim": 16, "max_positions": 16, "activation_fn": "gelu", "dropout": 0.1,
        "attention_backend": "auto", "layer_norm_eps": 1e-5,
    }  # fmt: skip
    assert {name: str(model[name]) for name in values} == {name: str(value) for name, value in values.items()}
    without = [name for name in option_set.ENCODER_OPTIONS.fields() if model[name] is None]
    assert set(without) == (option_fields().keys() - values.keys()) | {"position_sampling", "position_evaluation"}


@pytest.mark.parametrize(
    ("arch", "positions", "layers"),
    [("roberta_tupe_r_tiny", "t5+reset+untied", 2), ("roberta_posenc", "tisa", 12), ("roberta_posenc_large", "absolute+t5", 24)],
)
def test_positions_are_given_where_they_agree_with_the_architecture(arch, positions, layers, configure):
    model = start(configure("data", arch, "--positions", positions)).model
    assert (model._name, model.positions, model.encoder_layers) == (arch, positions, layers)


def test_an_architecture_of_the_users_own_may_have_any_positions(configure, monkeypatch):
    for registry, value in ((ARCH_MODEL_REGISTRY, PosencRobertaModel), (ARCH_MODEL_NAME_REGISTRY, ROBERTA.model)):
        monkeypatch.setitem(registry, "mine", value)
    monkeypatch.setitem(ARCH_CONFIG_REGISTRY, "mine", lambda args: None)
    assert start(configure("data", "mine", "--positions", "tisa+t5")).model.positions == "tisa+t5"
    assert start(configure("data", "mine")).model.positions == "absolute"


def test_checkpoints_record_data_paths_that_resolve_from_another_folder(configure, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    assert start(configure("a:missing", "roberta_tisa_tiny")).task.data == f"{tmp_path}/a:missing"


def test_models_of_others_are_left_alone(configure):
    cfg = configure("data", "roberta_base")
    assert start(cfg).model == cfg.model


@pytest.mark.parametrize(
    ("scheme", "options", "length"),
    [
        ("rope", "rope_layout=interleaved, rope_base=10000.0, rope_fraction=1.0, rope_type=default, ", "any length"),
        ("m2", "", "24 positions"),
    ],
)
def test_one_line_says_what_is_built(scheme, options, length, configure, caplog):
    with caplog.at_level(logging.INFO, "fairseq_posenc"):
        model = PosencRobertaModel.build_model(
            configure("data", f"roberta_{scheme}_tiny", "--position-scale-factor", 2).model, Task()
        )
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("fairseq_posenc.plugin.models")]
    positional, total = (sum(p.numel() for p in part.parameters()) for part in (model.encoder.sentence_encoder.positions, model))
    assert line.startswith(f"positions {scheme} ({options}position_scale_factor=2.0")
    assert f"); 24 tokens per sample, {length}; {positional:,} positional of {total:,}" in line
