"""The fast step on a GPU: CUDA itself looks that no update between two log lines waits, and losses are the plain step's."""

import pytest
import torch
from async_step.conftest import configure, lines, train, watched  # noqa: F401 - fixtures
from async_step.test_waiting import CASES

from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.transformer import Encoder, EncoderConfig, Mask

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
ON_GPU = {"common.cpu": False, "distributed_training.distributed_world_size": 1}


@pytest.fixture
def values(watched):  # noqa: F811
    """In the updates between log lines, CUDA refuses whatever would wait."""
    mode = torch.cuda.set_sync_debug_mode
    return {**watched(lambda: mode("error"), lambda: mode("default")), **ON_GPU}


@pytest.mark.parametrize("precision", ["float32", "bf16", "compiled"])
@pytest.mark.parametrize("case", CASES)
def test_the_fast_step_waits_for_nothing(case, precision, train, values):  # noqa: F811
    precisions = {"float32": {}, "bf16": {"common.bf16": True}, "compiled": {"common.bf16": True, "model.compile": True}}
    trained = train("fast", "fast", {**values, **CASES[case], **precisions[precision]})
    assert int(trained.rows["train"][0]["train_num_updates"]) > 4


@pytest.mark.parametrize("step", ["plain", "static", "non_blocking"])
def test_others_do_wait(step, train, values):  # noqa: F811
    with pytest.raises(RuntimeError, match="synchroniz"):
        train(step, step, values)


@pytest.mark.parametrize("backend", ["auto", "eager"])
@pytest.mark.parametrize("name", expressions())
def test_no_scheme_waits(name, backend):
    sizes = {"layers": 2, "dim": 64, "ffn_dim": 64, "heads": 2, "max_positions": 16}
    config = EncoderConfig(vocab_size=20, positions=expressions()[name], attention_backend=backend, **sizes)
    encoder = Encoder(config).to("cuda", torch.bfloat16)
    tokens = torch.randint(4, 20, (2, 16), device="cuda")
    mask = Mask(torch.arange(16, device="cuda") >= torch.tensor([[16], [9]], device="cuda"))
    for mode in ("default", "error"):  # the first time, libraries are loaded
        torch.cuda.set_sync_debug_mode(mode)
        try:
            encoder(tokens, mask=mask).last_hidden_state.sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("case", ["whole blocks", "padding and micro-batches"])
def test_losses_are_those_of_the_plain_step(case, train):  # noqa: F811
    values = {**ON_GPU, **CASES[case], "optimization.max_update": 12, "common.bf16": True}
    fast, plain = (train(step, step, values).curve for step in ("fast", "plain"))
    assert len(fast) == len(plain) >= 6
    for found, expected in zip(fast, plain, strict=True):
        assert found == pytest.approx(expected, rel=2e-2)
