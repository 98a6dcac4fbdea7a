"""The plan's figures: memory against measured runs and DeepSpeed's own formulas."""

import json
import re
from unittest import mock

import pytest
import torch
from commands import status_of
from torch.nn import functional as F
from training_runs import RANKS, call, needs_deepspeed

from fairseq_posenc.core.saved_tensors import saved_bytes
from fairseq_posenc.plugin.zero import plan, zero_config
from fairseq_posenc.plugin.zero.zero_config import ZeroConfig

SMALL = ["encoder_layers=3", "encoder_embed_dim=128", "encoder_ffn_embed_dim=512", "encoder_attention_heads=4"]


def footprint(arch, model=SMALL, vocabulary=1000, tokens=64, precision="fp32", samples=1, mask_prob=0.15):
    return plan.footprint(
        plan.Options(
            arch=arch,
            model=list(model),
            vocab_size=vocabulary,
            tokens_per_sample=tokens,
            precision=precision,
            batch_size=samples,
            mask_prob=mask_prob,
        )
    )


def test_parameters_are_those_of_the_architecture():
    """Counted by hand: embeddings, LayerNorms, layers, TISA's 3·S·H, the head, whose output weights are the embeddings."""
    dim, ffn = 128, 512
    layer = 4 * (dim * dim + dim) + 2 * dim * ffn + ffn + dim + 4 * dim + 3 * 5 * 4
    head = dim * dim + dim + 2 * dim + 1000
    parameters, _ = footprint("roberta_tisa")
    assert parameters == 1000 * dim + 2 * dim + 3 * layer + head


@pytest.mark.parametrize("positions", ["tisa", "none", "shaw | t5", "t5 | tisa(window=4) | none", "floater", "m4m"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_has_no_data_keeps_what_a_real_forward_pass_keeps(positions, precision):
    samples, tokens, model = 5, 64, [*SMALL, f"positions={positions}"]
    parameters, activations = footprint("roberta_posenc", model, precision=precision, samples=samples)
    real = plan._build(plan._options("roberta_posenc", model, tokens), 1000, precision)
    masked = torch.arange(samples)[:, None], torch.arange(round(0.15 * tokens))

    def loss():
        logits = real(torch.full((samples, tokens), 10), masked_tokens=masked)[0].flatten(0, -2)
        return F.nll_loss(F.log_softmax(logits, dim=-1, dtype=torch.float32), torch.zeros(len(logits), dtype=torch.long))

    with mock.patch.object(F, "scaled_dot_product_attention", plan._fused_attention):
        kept = saved_bytes(real.parameters(), loss)
    assert parameters == sum(parameter.numel() for parameter in real.parameters())
    assert activations == pytest.approx(kept, rel=1e-3)


@pytest.mark.parametrize("scheme", ["t5", "tupe_r", "shaw"])
def test_activations_are_those_of_the_backend_that_a_gpu_uses(scheme):
    """Counted by hand for sdpa (t5, tupe_r): per sample nothing in n², and the bias, shared by all layers, in n² once."""

    def kept(scheme, tokens, samples):
        return footprint(f"roberta_{scheme}", tokens=tokens, precision="bf16", samples=samples, mask_prob=0)[1]

    short, long, of_none = (
        kept(name, tokens, 4) - kept(name, tokens, 2) for name, tokens in ((scheme, 80), (scheme, 160), ("none", 160))
    )
    if scheme == "shaw":  # eager, which keeps scores
        assert long > 2 * short + 2 * 2 * 4 * 160 * 160
    else:
        assert long == pytest.approx(2 * short, rel=1e-3)
        assert long == of_none
        assert 2 * kept(scheme, 160, 1) - kept(scheme, 160, 2) >= 4 * 160 * 160 * 2


def test_predicted_tokens_and_symbols_have_a_float_each():
    """Counted by hand: the logarithm of a probability in float32 for each; a symbol has a row of the embeddings and a bias."""
    few, many = (footprint("roberta_t5", vocabulary=size, precision="bf16") for size in (1000, 10**5))
    symbols = 10**5 - 1000
    assert many[0] == few[0] + symbols * (128 + 1)
    assert many[1] == few[1] + symbols * 10 * 4  # 15% of 64 tokens
    more = footprint("roberta_t5", vocabulary=10**5, precision="bf16", mask_prob=0.3)
    assert more[1] - many[1] == pytest.approx(10**5 * 9 * 4, rel=1e-2)


def test_layers_that_share_weights_are_counted_once():
    """ALBERT by hand: a layer's weights, its projection and embeddings once."""
    found = footprint("albert_tisa", [*SMALL, "embedding_size=32"])
    dim, ffn, narrow, positions = 128, 512, 32, 3 * 5 * 4
    layer = 4 * (dim * dim + dim) + 2 * dim * ffn + ffn + dim + 4 * dim
    head = dim * narrow + narrow + 2 * narrow + 1000
    assert found[0] == 1000 * narrow + 2 * narrow + narrow * dim + dim + layer + 3 * positions + head
    unshared = footprint("albert_tisa", [*SMALL, "embedding_size=32", "encoder_layer_groups=0"])
    assert unshared == (found[0] + 2 * layer, found[1])


@pytest.mark.parametrize(
    ("options", "vocabulary", "tokens", "message"),
    [
        (["encoder_layers=-1"], 1000, 64, "--encoder-layers must be at least 1, got -1"),
        (["encoder_layers=1000000000"], 1000, 64, "--encoder-layers must be at most"),
        (["encoder_layer_groups=5"], 1000, 64, "--encoder-layers 12 do not divide into --encoder-layer-groups 5"),
        (["encoder_layers=deep"], 1000, 64, "--encoder-layers must be a whole number, got 'deep'"),
        (["encoder_embed_dim=0"], 1000, 64, "--encoder-embed-dim must be at least 1, got 0"),
        (["dropout=nan"], 1000, 64, "--dropout must be a number, and finite, got 'nan'"),
        (["max_positions=512"], 1000, 10**12, "at --tokens-per-sample 1000000000000: "),
        ([], 1000, 10**12, "--max-positions must be at most"),
    ],
)
def test_what_is_never_built_is_refused(options, vocabulary, tokens, message):
    with pytest.raises(ValueError, match=message):
        footprint("roberta_t5", options, vocabulary, tokens)


BUCKET = 300000
MEASURED = """
import gc, json, os, sys, torch
from fairseq_posenc.plugin.zero import communication, zero_config
os.environ["DS_ACCELERATOR"] = "cpu"
communication.without_inference_kernels()
torch.distributed.init_process_group("gloo")
import deepspeed
from torch import nn
stage, precision = int(sys.argv[1]), sys.argv[2]
model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8)))
if precision == "bf16":
    model = model.bfloat16()
parameters = sum(p.numel() for p in model.parameters())
contents = {**zero_config.read(f"zero{stage}").contents, "train_batch_size": 2, "bf16": {"enabled": precision == "bf16"},
            "zero_allow_untested_optimizer": True}
contents["zero_optimization"] |= {"reduce_bucket_size": 1000, "allgather_bucket_size": 1000} if stage < 3 else {
    "stage3_param_persistence_threshold": 0, "reduce_bucket_size": int(sys.argv[3]), "stage3_prefetch_bucket_size": 1000}
optimizer = torch.optim.Adam(model.parameters(), lr=0.001, foreach=False)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=contents, dist_init_required=False)
sample = torch.ones(1, 512, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
for _ in range(2):
    engine.backward(engine(sample).float().pow(2).mean())
    engine.step()
gc.collect()
tensors = [found for found in gc.get_objects() if isinstance(found, torch.Tensor)]
storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
torch.distributed.barrier()
if torch.distributed.get_rank() == 0:
    print(json.dumps({"parameters": parameters, "bytes": sum(storages.values())}), flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.mark.thorough
@needs_deepspeed
@pytest.mark.parametrize(
    ("stage", "precision"),
    [pytest.param(1, "bf16", marks=pytest.mark.slow), pytest.param(2, "fp32", marks=pytest.mark.slow), (3, "bf16")],
)
def test_memory_of_the_states_is_that_of_a_measured_run(tmp_path, stage, precision):
    """All tensors that are alive in one of two processes between steps."""
    program = tmp_path / "measure.py"
    program.write_text(MEASURED)
    done = call(RANKS, 2, program, stage, precision, BUCKET)
    assert done.returncode == 0, done.stdout
    measured = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    planned = plan.memory(measured["parameters"], ZeroConfig(stage), 2, precision, activations=0)
    kept_buffers = planned.gradients + 2 * BUCKET if stage == 3 else 0  # there, they stay between steps
    assert measured["bytes"] == pytest.approx(planned.parameters + planned.optimizer + kept_buffers, rel=0.1)


UNSHARDED = """
import json, sys, time, torch
from fairseq_posenc.plugin.zero import plan
from torch.nn import functional as F
torch.distributed.init_process_group("gloo")
tokens = torch.full((2, 64), 10)
masked = (torch.arange(64) < 10).expand(2, -1)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
    model = plan._build(plan._options("roberta_tisa", sys.argv[1:], 64), 1000, "fp32")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), foreach=False)
    for _ in range(3):
        logits = parallel(tokens, masked_tokens=masked)[0]
        F.cross_entropy(logits, tokens[masked]).backward()
        optimizer.step()
    del logits
    # gloo's threads let go of what they sent when they have told those who wait, at the latest when they take up the next.
    for work in [torch.distributed.all_reduce(torch.zeros(1), async_op=True) for _ in range(64)]:
        work.wait()
    time.sleep(2)
parameters = sum(p.numel() for p in model.parameters())
live = sum(event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]")
if torch.distributed.get_rank() == 0:
    print(json.dumps({"parameters": parameters, "bytes": live}), flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow  # gloo's threads sometimes keep a buffer for longer than the test waits
def test_memory_without_sharding_is_that_of_a_measured_encoder(tmp_path):
    """What was allocated and not freed, by C++ too, where DDP has its buckets; the gradients are still there."""
    program = tmp_path / "measure.py"
    program.write_text(UNSHARDED)
    done = call(RANKS, 2, program, *SMALL)
    assert done.returncode == 0, done.stdout
    measured = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    planned = plan.memory(measured["parameters"], ZeroConfig(0), 2, "fp32", activations=0)
    assert measured["bytes"] == pytest.approx(planned.peak, rel=0.01)


@pytest.mark.parametrize("stage", range(4))
def test_every_gpu_and_its_host_hold_the_whole_model_at_the_start(stage):
    """More GPUs than any run has share all else to nothing."""
    planned = plan.memory(10**9, ZeroConfig(stage, bucket=1, live=1), 10**6, "bf16", activations=0)
    assert planned.start == 2e9 <= planned.peak
    assert planned.host == 4e9


@pytest.mark.parametrize(
    "zero",
    [
        {"offload_param": {"device": 3}},
        {"reduce_bucket_size": "auto"},
    ],
)
def test_values_without_meaning_are_named_with_their_file(tmp_path, zero):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 3, **zero}}))
    with pytest.raises(ValueError, match=re.escape(f"--deepspeed-config {path}") + ".* zero_optimization"):
        zero_config.read(str(path))


def test_deep_nesting_is_refused_with_the_file(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text('{"zero_optimization":' * 100_000)
    with pytest.raises(ValueError, match=re.escape(f"--deepspeed-config {path}")):
        zero_config.read(str(path))


@needs_deepspeed
@pytest.mark.parametrize("offload", [False, True])
def test_memory_agrees_with_deepspeeds_own_estimator(tmp_path, offload):
    """Theirs counts the float32 gradients of the step among the states, and leaves out what Adam computes with."""
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as estimate

    host, gpu = estimate(10**9, num_gpus_per_node=8, num_nodes=4, cpu_offload=offload, additional_buffer_factor=1)
    ours = plan.memory(10**9, ZeroConfig(2, offload_optimizer=offload), 32, "fp16", activations=0)
    assert ours.parameters + (0 if offload else ours.gradients + ours.optimizer + ours.step / 2) == pytest.approx(gpu, rel=1e-6)
    if offload:
        assert 8 * ours.host <= host


def test_the_command_prints_a_plan(capsys):
    flags = ["--vocab-size", 1000, "--tokens-per-sample", 64, "--model", *SMALL]
    assert status_of("plan", "roberta_tisa", "--deepspeed-config", "zero3", "--gpus", 16, *flags) == 0
    shown = capsys.readouterr().out
    assert "16 GPUs, zero3, bf16" in shown
    assert "fits in 80 GB" in shown
    assert status_of("plan", "roberta_tisa", "--gpu-memory", 0.0001, *flags) == 0
    assert "cannot start" in capsys.readouterr().out
    assert status_of("plan", "roberta_tisa", "--gpu-memory", "H200", "--tokens", 1e9, "--throughput", 1e4, *flags) == 0
    shown = capsys.readouterr().out
    assert "fits in 141 GB" in shown
    assert "1,000,000,000 tokens at 10,000 per second: 1.2 days" in shown


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["roberta_tiza"], "did you mean roberta_tisa"),
        (["roberta_tisa", "--gpus", "0"], "--gpus must be"),
        (["roberta_tisa", "--vocab-size", "0"], "--vocab-size must be"),
        (["roberta_tisa", "--vocab-size", "1" + "0" * 12], "--vocab-size must be at most 16777216"),
        (["roberta_tisa", "--gpu-memory", "nan"], "--gpu-memory: must be a number"),
        (["roberta_tisa", "--batch-size", "1" + "0" * 400], "--batch-size must be"),
        (["roberta_tisa", "--model", "width=3"], "--model width=3"),
        (["roberta_tisa", "--gpu-memory", "H1000"], "--gpu-memory"),
        (["roberta_tisa", "--tokens", "1e9"], "--tokens and --throughput"),
    ],
)
def test_the_command_refuses_nonsense(capsys, wrong, message):
    assert status_of("plan", *wrong) == 2
    assert message in capsys.readouterr().err
