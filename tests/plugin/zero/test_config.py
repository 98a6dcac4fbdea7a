"""What DeepSpeed is told: presets completed from fairseq's options, and files that contradict them refused."""

import json
from types import SimpleNamespace

import pytest
from torch import nn
from training_runs import needs_deepspeed

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.zero import zero_config

ARGUMENTS = """
    data --task masked_lm --criterion masked_lm --arch roberta_tisa_tiny --lr-scheduler polynomial_decay
    --total-num-update 100 --batch-size 8 --update-freq 4 --lr 0.0005 --weight-decay 0.01 --clip-norm 0.5
""".split()  # noqa: SIM905
ADAM = ("--optimizer", "adam", "--adam-betas", "(0.9,0.98)", "--adam-eps", "1e-6")


def fairseq_config(*flags, optimizer=ADAM):
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [*ARGUMENTS, *optimizer, *flags]))


@pytest.fixture(scope="module")
def cfg():
    return fairseq_config("--bf16")


@pytest.fixture
def complete(tmp_path, cfg):
    """``complete(contents)`` for a JSON file with ``contents``, 16 processes."""

    def complete(contents, cfg=cfg):
        path = tmp_path / "ds.json"
        path.write_text(contents if isinstance(contents, str) else json.dumps(contents))
        return zero_config.complete(zero_config.read(str(path)), cfg, 16)

    return complete


@pytest.mark.parametrize("name", zero_config.preset_names())
def test_presets_are_completed_from_the_options(cfg, name):
    completed = zero_config.complete(zero_config.read(name), cfg, 16)
    assert completed["zero_optimization"]["stage"] == int(name[4])
    if name != "zero0":
        assert completed["train_micro_batch_size_per_gpu"] == 8
        assert completed["gradient_accumulation_steps"] == 4
        assert completed["train_batch_size"] == 8 * 4 * 16
        assert completed["gradient_clipping"] == 0.5
        assert completed["bf16"] == {"enabled": True}
        assert completed["fp16"]["enabled"] is False


def test_the_presets_are_those_of_the_help():
    assert zero_config.preset_names() == ["zero0", "zero1", "zero2", "zero2-offload", "zero3", "zero3-offload"]


def test_fp16_takes_over_fairseqs_loss_scale():
    fp16 = zero_config.complete(zero_config.read("zero2"), fairseq_config("--fp16", "--fp16-init-scale", "1024"), 16)["fp16"]
    assert fp16 == {
        "enabled": True,
        "loss_scale": 0,
        "initial_scale_power": 10,
        "loss_scale_window": 2**14 // 16 // 4,  # fairseq's default for 16 processes and --update-freq 4
        "min_loss_scale": 1,
        "hysteresis": 1,
    }


def test_a_file_leaves_the_options_open(complete):
    completed = complete(
        {
            "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000},
            "train_batch_size": "auto",
            "optimizer": {"type": "auto", "params": {"lr": "auto"}},
        }
    )
    assert completed["zero_optimization"]["reduce_bucket_size"] == 1000
    assert completed["train_batch_size"] == 512
    assert "optimizer" not in completed  # fairseq builds it


@pytest.mark.parametrize(
    ("decided", "name"),
    [
        ({"train_micro_batch_size_per_gpu": 16}, "train_micro_batch_size_per_gpu"),
        ({"gradient_clipping": 0.5}, "gradient_clipping"),
        ({"bf16": {"enabled": False}}, "bf16.enabled"),
        ({"bf16": True}, "bf16"),
        ({"optimizer": {"type": "Lamb"}}, "optimizer.type"),
        ({"optimizer": {"params": {"betas": [0.9, 0.999]}}}, "optimizer.params.betas"),
    ],
)
@pytest.mark.parametrize("stage", [0, 1])
def test_what_fairseqs_options_decide_is_refused(complete, decided, name, stage):
    with pytest.raises(ValueError, match=rf"ds\.json has {name} = .*fairseq's options"):
        complete({"zero_optimization": {"stage": stage}, **decided})


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "expected a JSON object, found list"),
        ({}, "found None"),
        ({"zero_optimization": {"stage": "2"}}, "found 2"),
        ({"zero_optimization": {"stage": 4}}, "found 4"),
        ({"zero_optimization": {"stage": 2}, "scheduler": {"type": "WarmupLR"}}, "scheduler, which training does not use"),
        ({"zero_optimization": {"stage": 2}, "gradient_cliping": 1.0}, "did you mean gradient_clipping"),
        ({"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}}, "data_types"),
        ({"zero_optimization": {"stage": 1, "overlap_comm": True}}, "use stage 2"),
        ({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}, "offload_optimizer, which needs stage 1"),
        ({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, "offload_param, which needs stage 3"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}, "offload_optimizer.device"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}, "offload_optimizer.ratio"),
        ({"zero_optimization": {"stage": 2, "zero_quantized_gradients": True}}, "zero_optimization.zero_quantized_gradients"),
        ({"zero_optimization": {"stage": 1, "round_robin_gradients": True}}, "zero_optimization.round_robin_gradients"),
        ({"zero_optimization": {"stage": 3}, "gradient_predivide_factor": 2.0}, "gradient_predivide_factor"),
        ({"zero_optimization": {"stage": 2}, "communication_data_type": "fp16"}, "communication_data_type"),
        ({"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}}, "zero_optimization.zenflow"),
        (
            {"zero_optimization": {"stage": 2}, "bf16": {"bf16_master_weights_and_grads": True}},
            "bf16.bf16_master_weights_and_grads",
        ),
        ('{"a": ' * 100_000, "is not JSON"),
        ({"zero_optimization": {"stage": 2, "reduce_bucket_size": None}}, "reduce_bucket_size"),
        ({"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}, "reduce_bucket_size"),
        ({"zero_optimization": {"stage": 2}, "optimizer": {"params": {"adam_w_mode": True}}}, "optimizer.params.adam_w_mode"),
        ({"zero_optimization": {"stage": 2}, "optimizer": {"legacy_fusion": True}}, "optimizer.legacy_fusion"),
        ({"zero_optimization": {"stage": 2}, "zero_force_ds_cpu_optimizer": True}, "zero_force_ds_cpu_optimizer"),
        ('{"zero_optimization": {"stage": 2}, "gradient_clipping": -Infinity}', "gradient_clipping"),
    ],
)
def test_files_that_cannot_be_meant_are_refused(complete, contents, message):
    with pytest.raises(ValueError, match=r"ds\.json") as refused:
        complete(contents)
    assert message in str(refused.value)


def test_what_a_file_says_is_read_once(tmp_path):
    path = tmp_path / "ds.json"

    def read(**zero):
        path.write_text(json.dumps({"zero_optimization": zero}))
        return zero_config.read(str(path))

    offload = {"offload_optimizer": {"device": "cpu", "pin_memory": True}, "offload_param": {"device": "none"}}
    zero = {"reduce_bucket_size": 1e7, "stage3_max_live_parameters": 0, **offload}
    found = read(stage=3, **zero)
    assert (found.stage, found.offload_optimizer, found.offload_parameters) == (3, True, False)
    assert (found.bucket, found.live) == (2e7, 0)  # stage 3 overlaps communication unless told otherwise
    assert read(stage=2, overlap_comm=False, **zero).bucket == 1e7


@needs_deepspeed
def test_keys_are_deepspeeds():
    from deepspeed.runtime.zero import config as zero
    from deepspeed.runtime.zero import offload_config

    models = {
        "zero_optimization": zero.DeepSpeedZeroConfig,
        "zero_optimization.offload_optimizer": offload_config.DeepSpeedZeroOffloadOptimizerConfig,
        "zero_optimization.offload_param": offload_config.DeepSpeedZeroOffloadParamConfig,
    }
    for section, model in models.items():
        names = {name for key, field in model.model_fields.items() for name in (key, field.alias)}
        assert names.issuperset(zero_config.KEYS[section]), section


@pytest.mark.parametrize(("source", "message"), [("zero4", "presets are .*zero3-offload"), ("missing.json", "missing.json")])
def test_unknown_sources_name_the_presets(source, message):
    with pytest.raises(ValueError, match=message):
        zero_config.read(source)


def test_offloading_in_a_file_keeps_fairseqs_optimizer(complete):
    completed = complete({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})
    assert completed["zero_force_ds_cpu_optimizer"] is False


@needs_deepspeed
@pytest.mark.parametrize("name", ["adafactor", "adagrad", "stable_adamw"])
def test_optimizers_of_whole_parameters_are_refused(name):
    from fairseq_posenc.plugin.zero.trainer import DeepSpeedTrainer

    run = SimpleNamespace(cfg=fairseq_config(optimizer=("--optimizer", name)), _model=nn.Linear(2, 2))
    with pytest.raises(InputError, match=f"--optimizer {name} .*zero0"):
        DeepSpeedTrainer._build_optimizer(run)


@pytest.mark.thorough
def test_sharding_without_deepspeed_says_what_to_install(run, tmp_path):
    (tmp_path / "program.py").write_text("""
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "deepspeed" else find_spec(name, *rest)
from fairseq_posenc.train import main
sys.exit(main(["data", "--deepspeed-config", "zero2"]))
""")
    done = run("python", tmp_path / "program.py", check=False)
    assert done.returncode == 2
    assert "needs deepspeed, which is not installed: pip install 'deepspeed<0.20,>=0.19.8'" in done.stdout
    assert "Traceback" not in done.stdout
