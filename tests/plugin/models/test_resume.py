"""Training resumes from a checkpoint only with the model that it holds."""

import copy
import math
import re
import shutil
from argparse import Namespace

import pytest
import torch
from cases import SOME, thorough_but
from fairseq import checkpoint_utils, tasks
from fairseq.data import Dictionary
from fairseq.trainer import Trainer
from lines import write_databin

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import option_fields
from fairseq_posenc.core.transformer import build_positions
from fairseq_posenc.plugin.models.building import complete, differences, encoder_config, record
from fairseq_posenc.plugin.options.option_set import ENCODER_OPTIONS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_databin(tmp_path_factory.mktemp("data") / "bin", train=[5, 3, 9])


@pytest.fixture(scope="module")
def trainer(data, configure):
    """``trainer(arch, *flags)`` at the start of training, also from the weights of ``finetune_from_model``."""

    def trainer(arch, *flags, finetune_from_model=None):
        cfg = configure(data, arch, *flags)
        cfg.checkpoint.finetune_from_model = finetune_from_model
        task = tasks.setup_task(cfg.task)
        return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))

    return trainer


@pytest.fixture
def saved(trainer, tmp_path):
    """``saved(arch, *flags)``: a checkpoint of such a model."""

    def saved(arch, *flags):
        path = tmp_path / "checkpoint_last.pt"
        trained = trainer(arch, *flags)
        trained.consolidate_optimizer()
        trained.save_checkpoint(str(path), {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}})
        return str(path)

    return saved


@pytest.mark.parametrize(
    ("before", "after", "differing"),
    [
        ("roberta_alibi_tiny", "roberta_rope_tiny", "--positions alibi in the checkpoint, rope now"),
        ("roberta_t5_tiny", "roberta_t5_tiny --t5-max-distance 64", "--t5-max-distance 128 in the checkpoint, 64 now"),
        (
            "roberta_none_tiny --position-scale-factor 2",
            "roberta_none_tiny",
            "--position-scale-factor 2.0 in the checkpoint, 1.0 now",
        ),
        pytest.param(
            "modernbert_rope_tiny",
            "modernbert_rope_tiny --norm-bias",
            "--no-norm-bias True in the checkpoint, False now",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "roberta_tisa_tiny",
            "roberta_tisa_tiny --activation-fn relu",
            "--activation-fn gelu in the checkpoint, relu now",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "roberta_tisa_tiny",
            "roberta_tisa_tiny --encoder-normalize-before",
            "--encoder-normalize-before False in the checkpoint, True now",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "roberta_tisa_tiny", "roberta_tisa", "--encoder-layers 2 in the checkpoint, 12 now", marks=pytest.mark.thorough
        ),
        ("roberta_absolute_tiny", "roberta_absolute_tiny --max-positions 20", "--max-positions 16 in the checkpoint, 20 now"),
        (
            "roberta_base --max-positions 16 --encoder-layers 2",
            "roberta_rope_tiny",
            "--positions absolute in the checkpoint, rope now",
        ),
    ],
)
def test_another_model_is_refused(before, after, differing, saved, trainer):
    path = saved(*before.split())
    started = trainer(*after.split())
    for restore_file, reset in (("checkpoint_last.pt", False), (path, True)):
        started.cfg.checkpoint.restore_file = restore_file
        with pytest.raises(InputError) as refused:
            started.load_checkpoint(path, reset_optimizer=reset)
        for named in (path, differing, f"--finetune-from-model {path}"):
            assert named in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("roberta_tisa_tiny", "roberta_tisa_tiny --dropout 0.3 --attention-backend eager --checkpoint-activations"),
        ("roberta_tisa_tiny", "roberta_posenc_tiny --positions tisa --tisa-kernels 5 --position-share-heads false"),
        ("roberta_tisa_tiny --max-positions 64", "roberta_tisa_tiny"),  # which learns no table of them
        ("roberta_m4_tiny", "roberta_m4_tiny --max-relative-position 15"),
    ],
)
def test_the_same_model_goes_on(before, after, saved, trainer):
    assert trainer(*after.split()).load_checkpoint(saved(*before.split())) is not None


def test_another_format_is_refused(saved, trainer):
    path = saved("roberta_alibi_tiny")
    content = torch.load(path, weights_only=True)
    content["task_state"]["fairseq_posenc_format"] = 2
    torch.save(content, path)
    with pytest.raises(InputError, match=rf"{path}.*'fairseq_posenc_format' is 2"):
        trainer("roberta_alibi_tiny").load_checkpoint(path)


def test_stock_roberta_goes_on_as_absolute(saved, trainer):
    path = saved("roberta_base", "--encoder-layers", 2, "--max-positions", 16)
    with pytest.raises(InputError, match=r"not of this model's parameters.*--finetune-from-model"):  # stock has unused ones
        trainer("roberta_absolute", "--encoder-layers", 2).load_checkpoint(path)
    assert trainer("roberta_absolute", "--encoder-layers", 2).load_checkpoint(path, reset_optimizer=True) is not None


def test_another_model_may_start_from_the_weights(saved, trainer):
    path = saved("roberta_alibi_tiny")
    started = trainer("roberta_rope_tiny", finetune_from_model=path)
    assert started.load_checkpoint(path, reset_optimizer=True) is not None


def test_a_start_from_weights_names_what_is_different(saved, trainer, caplog):
    path = saved("roberta_alibi_tiny")
    with caplog.at_level("INFO"):
        trainer("roberta_rope_tiny", finetune_from_model=path).load_checkpoint(path, reset_optimizer=True)
    assert re.search(rf"from {path}: \d+ parameters loaded", caplog.text)
    assert f"the weights of {path} are of another model: --positions alibi in the checkpoint, rope now" in caplog.text


@pytest.mark.parametrize("finetunes", [False, True])
def test_averages_begin_with_the_weights_of_a_checkpoint_without_them(finetunes, saved, trainer):
    path = saved("roberta_alibi_tiny")
    started = trainer("roberta_alibi_tiny", "--store-ema", finetune_from_model=path if finetunes else None)
    started.load_checkpoint(path, reset_optimizer=finetunes)
    weights = torch.load(path, weights_only=True)["model"]
    average = started.ema.get_model().state_dict()
    assert all(torch.equal(average[name], value) for name, value in weights.items())


def test_a_checkpoint_without_the_optimizer_does_not_start_again_at_update_0(saved, trainer):
    path = saved("roberta_alibi_tiny")
    torch.save({**torch.load(path, weights_only=True), "last_optimizer_state": None}, path)
    with pytest.raises(InputError, match=rf"{path} has no optimizer state.*--finetune-from-model"):
        trainer("roberta_alibi_tiny").load_checkpoint(path)
    assert trainer("roberta_alibi_tiny").load_checkpoint(path, reset_optimizer=True) is not None


def test_another_optimizer_is_refused(saved, trainer):
    """With 16 bits, fairseq takes the state of any, since all have one class around them."""
    path = saved("roberta_alibi_tiny", "--bf16", "--optimizer", "stable_adamw")
    other = trainer("roberta_alibi_tiny", "--bf16", "--optimizer", "adam")
    with pytest.raises(InputError, match=r"state of --optimizer stable_adamw, not of adam"):
        other.load_checkpoint(path)
    assert other.load_checkpoint(path, reset_optimizer=True) is not None
    with pytest.raises(InputError, match=r"FP16Optimizer is that of --bf16"):
        trainer("roberta_alibi_tiny", "--optimizer", "stable_adamw").load_checkpoint(path)


def test_another_schedule_needs_a_reset_where_the_saved_one_has_less(saved, trainer):
    path, flags = saved("roberta_alibi_tiny"), ("--lr-scheduler", "polynomial_decay", "--total-num-update", "10")
    with pytest.raises(InputError, match=r"--lr-scheduler fixed.*--reset-lr-scheduler"):
        trainer("roberta_alibi_tiny", *flags).load_checkpoint(path)
    other = trainer("roberta_alibi_tiny", *flags, "--reset-lr-scheduler")
    assert other.load_checkpoint(path, reset_lr_scheduler=True) is not None


def test_the_best_of_one_metric_is_not_compared_with_another(saved, trainer):
    path = saved("roberta_alibi_tiny")
    content = torch.load(path, weights_only=True)
    torch.save({**content, "extra_state": {**content["extra_state"], "best": 7.2}}, path)
    assert trainer("roberta_alibi_tiny").load_checkpoint(path) is not None
    other = trainer("roberta_alibi_tiny")
    other.cfg.checkpoint.best_checkpoint_metric = "ppl"
    with pytest.raises(InputError, match=r"--best-checkpoint-metric ppl.*--reset-meters"):
        other.load_checkpoint(path)
    assert other.load_checkpoint(path, reset_meters=True) is not None


def test_older_layouts_go_on(saved, trainer):
    """Those with the options in ``args``, and with the optimizer's state in ``optimizer_history``."""
    path = saved("roberta_alibi_tiny")
    content = torch.load(path, weights_only=True)
    content["optimizer_history"][-1]["optimizer"] = content.pop("last_optimizer_state")
    cfg = content.pop("cfg")
    options = {**cfg["task"], **cfg["model"], "arch": cfg["model"]["_name"], "task": "masked_lm", "best_checkpoint_metric": "ppl"}
    content["args"] = Namespace(**options)
    content["extra_state"]["best"] = 7.2
    torch.save(content, path)
    with pytest.raises(InputError, match=r"the best ppl.*--best-checkpoint-metric loss"):
        trainer("roberta_alibi_tiny").load_checkpoint(path)
    assert trainer("roberta_alibi_tiny").load_checkpoint(path, reset_meters=True) is not None


@pytest.mark.parametrize("optimizer", ["adam", "fused_adam", "stable_adamw"])
def test_options_of_the_optimizer_are_those_of_the_command(optimizer, saved, trainer):
    """fairseq takes them from the checkpoint."""
    common = ("roberta_alibi_tiny", "--optimizer", optimizer)
    path = saved(*common, "--weight-decay", "0.01", "--adam-betas", "(0.9,0.98)")
    resumed = trainer(*common, "--weight-decay", "0.5", "--adam-betas", "(0.5,0.6)")
    resumed.load_checkpoint(path)
    for group in resumed.optimizer.param_groups:
        assert (group["weight_decay"], tuple(group["betas"])) == (0.5, (0.5, 0.6))
    resumed.load_checkpoint(path, optimizer_overrides={"weight_decay": 0.2})
    assert {group["weight_decay"] for group in resumed.optimizer.param_groups} == {0.2}


@pytest.mark.parametrize("change", [{"cfg": None}, {"cfg": {"model": {"_name": "transformer_lm"}, "task": {}}}])
def test_a_file_that_does_not_say_which_model_it_holds_is_refused(change, saved, trainer):
    path = saved("roberta_alibi_tiny")
    torch.save({**torch.load(path, weights_only=True), **change}, path)
    with pytest.raises(InputError, match="does not record which model it holds"):
        trainer("roberta_alibi_tiny").load_checkpoint(path)


@pytest.fixture
def other_data(data, tmp_path):
    """The same data, whose dictionary has the same symbols in another order."""
    folder = shutil.copytree(data, tmp_path / "other")
    (folder / "dict.txt").write_text("".join(reversed((data / "dict.txt").read_text().splitlines(keepends=True))))
    return folder


def test_another_vocabulary_of_the_same_size_is_refused(saved, trainer, configure, other_data):
    path = saved("roberta_tisa_tiny")
    cfg = configure(other_data, "roberta_tisa_tiny")
    task = tasks.setup_task(cfg.task)
    other = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    for finetune_from_model in (None, path):
        cfg.checkpoint.finetune_from_model = finetune_from_model
        with pytest.raises(InputError, match=rf"{path}.*vocabulary.*{other_data}.*dictionary"):
            other.load_checkpoint(path, reset_optimizer=True)
    with pytest.raises(InputError, match=rf"{path}.*vocabulary.*dictionary"):
        checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides={"data": str(other_data)})
    assert checkpoint_utils.load_model_ensemble_and_task([path]) is not None


def test_another_tokenizer_is_refused(saved, trainer, data):
    tokenizer = data / "sentencepiece.model"
    tokenizer.write_bytes(b"one")
    path = saved("roberta_tisa_tiny")
    tokenizer.write_bytes(b"another")
    with pytest.raises(InputError, match=r"vocabulary.*sentencepiece\.model"):
        trainer("roberta_tisa_tiny").load_checkpoint(path)
    tokenizer.unlink()  # where text is not cut any more, it does not matter
    assert trainer("roberta_tisa_tiny").load_checkpoint(path) is not None


def test_other_sizes_are_named(saved, trainer):
    path = saved("roberta_tisa_tiny")
    started = trainer("roberta_tisa_tiny", "--encoder-ffn-embed-dim", 24, finetune_from_model=path)
    with pytest.raises(InputError, match=rf"{path}.*--encoder-ffn-embed-dim 16 in the checkpoint, 24 now"):
        started.load_checkpoint(path, reset_optimizer=True)


@pytest.mark.parametrize(
    "history",
    [{"num_updates": 3}, {"num_updates": 3, "lr_scheduler_state": {"best": {}}}, {"num_updates": 3, "lr_scheduler_state": 1}],
    ids=str,
)
def test_a_damaged_history_is_named(history, saved, trainer):
    path = saved("roberta_tisa_tiny")
    content = torch.load(path, weights_only=True)
    kept = {name: value for name, value in content["optimizer_history"][-1].items() if name.endswith("_name")}
    torch.save({**content, "optimizer_history": [kept | history]}, path)
    with pytest.raises(InputError, match=rf"{path} is not a checkpoint"):
        trainer("roberta_tisa_tiny").load_checkpoint(path)


def test_a_file_of_another_kind_is_none(tmp_path, trainer):
    path = tmp_path / "checkpoint_last.pt"
    torch.save({"a": 1}, path)
    with pytest.raises(InputError, match=rf"{path} is not a checkpoint"):
        trainer("roberta_alibi_tiny").load_checkpoint(str(path))


def test_a_damaged_file_is_left_to_what_loads_it(tmp_path, trainer):
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(b"PK and no more")
    with pytest.raises(RuntimeError, match="cannot be read as a checkpoint"):
        trainer("roberta_alibi_tiny").load_checkpoint(str(path))


OTHER_VALUES = {"positions": "none", "activation_fn": "relu", "pooler_activation_fn": "relu", "attention_backend": "eager"}
OTHER_VALUES |= {"position_sampling": "random:30", "position_evaluation": "plain", "initialization": "megatron", "norm": "rms"}


def another(name, value):
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2 + 0.01
    return OTHER_VALUES[name]


@pytest.mark.parametrize("name", [name for name in ENCODER_OPTIONS.fields() if name not in option_fields()])
def test_each_option_decides_what_it_is_declared_to(name):
    model = complete(Namespace(positions="absolute", encoder_embed_dim=24), None)
    other = copy.deepcopy(model)
    other[name] = another(name, model[name])
    _, declared = ENCODER_OPTIONS.fields()[name]
    assert (name in differences(model, other)) == declared.metadata["affects_output"]


CHANGED = {
    "position_scale_factor": 7.0,
    "max_relative_position": 3,
    "position_share_heads": "true",
    "position_share_layers": "true",
}


COMPANIONS = {"rope_type": {"rope_factor": 2.0}}  # what another value cannot be without


def neighbour(value, limits):
    """Another value within the limits of its field."""
    most = limits.get("maximum", math.inf)
    others = (value + 2, value + 1, value - 1, value / 2)  # some values must be even
    return next(other for other in others if limits.get("minimum", -math.inf) <= other <= most)


@pytest.mark.parametrize("name", thorough_but(SOME, expressions()))
def test_the_options_of_the_schemes_in_use_decide(name):
    model = complete(Namespace(positions=expressions()[name], encoder_embed_dim=24), None)
    with torch.device("meta"):
        positions = build_positions(encoder_config(model, Dictionary()))
    record(model, positions)
    for option, declared in option_fields().items():
        other = copy.deepcopy(model)
        if option in CHANGED:
            other[option] = CHANGED[option] if option in positions.effective_options else None
            assert differences(model, other).keys() <= {option}  # none where it is what the scheme does anyway
        elif model[option] is not None:
            choices = [choice for choice in declared.metadata.get("choices", ()) if choice != model[option]]
            truth = {"true": "false", "false": "true"}.get(model[option]) if declared.type is bool else None
            other[option] = truth or (choices[0] if choices else neighbour(model[option], declared.metadata))
            other.update(COMPANIONS.get(option, {}))
            assert option in differences(model, other)
