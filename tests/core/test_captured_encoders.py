"""Encoders as torch.export, torch.compile, torch.jit.trace and ONNX run them: at other lengths than they saw, with padding."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cases import SOME, thorough_but
from torch import Tensor, nn
from torch.export import Dim

from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.transformer import Encoder, EncoderConfig

PAD, LENGTH = 1, 200  # longer than every block of computation
DYNAMIC = ({0: Dim("batch", min=1, max=64), 1: Dim("length", min=2, max=LENGTH)},)
"""Of every kind; the other schemes are ``slow``."""


class States(nn.Module):
    """An encoder whose output is one tensor."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens: Tensor, position_ids: Tensor | None = None) -> Tensor:
        return self.encoder(tokens, position_ids=position_ids).last_hidden_state


def make(positions: str, **options: object) -> States:
    """With sizes that differ from one another, and positions away from their initial values."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=20, layers=2, dim=16, ffn_dim=32, heads=2, max_positions=LENGTH, separator_idx=2)
    encoder = Encoder(EncoderConfig(**sizes, positions=positions, **options)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in encoder.positions.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return States(encoder)


def batch(rows: int, n: int, side: str) -> Tensor:
    """Rows of n tokens in two sentences, of which the second is padded to its length."""
    tokens = torch.randint(4, 20, (rows, n), generator=torch.Generator().manual_seed(n))
    tokens[:, 0], tokens[:, n // 2] = 0, 2
    if rows > 1:
        tokens[1, -(n // 3) :] = PAD
        tokens[1] = tokens[1].roll(n // 3) if side == "left" else tokens[1]
    return tokens


SEEN = batch(2, 9, "left")
OTHERS = batch(3, 14, "right"), batch(2, LENGTH, "left"), batch(1, 7, "right")


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.random.fork_rng(), torch.no_grad():
        yield


def agree(captured: Callable[[Tensor], Tensor], model: States, batches: tuple[Tensor, ...] = OTHERS) -> None:
    for tokens in batches:
        torch.testing.assert_close(captured(tokens), model(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*thorough_but({"m4_reset"}, expressions(), SOME), "rope | rope(window=3)", "untied(form=head)"])
def test_torch_export_has_any_length(name: str) -> None:
    model = make(expressions().get(name, name))
    agree(torch.export.export(model, (SEEN,), dynamic_shapes=DYNAMIC).module(), model)


@pytest.mark.parametrize("name", thorough_but({"tupe_r"}, expressions(), SOME))
def test_torch_compile_has_no_graph_break(name: str) -> None:
    model = make(expressions().get(name, name))
    torch._dynamo.reset()
    agree(torch.compile(model, fullgraph=True, dynamic=True, backend="eager"), model, (SEEN, OTHERS[0]))


@pytest.mark.parametrize("positions", ["tisa", "shaw", "cable"])
def test_a_training_is_compiled_without_a_graph_break(positions: str) -> None:
    model = make(positions, dropout=0.0, attention_dropout=0.0).train()
    torch._dynamo.reset()
    agree(torch.compile(model, fullgraph=True, dynamic=True, backend="eager"), model, (SEEN, OTHERS[0]))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "name", [*thorough_but({"absolute_tisa", "floater", "synthesizer_dense"}, expressions(), SOME), "rope | rope(window=10)"]
)
def test_torch_jit_trace_reads_the_padding(name: str) -> None:
    model = make(expressions().get(name, name))
    agree(torch.jit.trace(model, (SEEN,), check_trace=False), model)


@pytest.mark.parametrize("name", thorough_but((), expressions(), {"transformer_xl"}))
def test_onnx_has_any_length(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install -e '.[dev]'")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    model = make(expressions().get(name, name))
    torch.onnx.export(model.eval(), (SEEN,), dynamic_shapes=DYNAMIC, dynamo=True, verbose=False).save(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    entry = session.get_inputs()[0].name
    agree(lambda tokens: torch.from_numpy(session.run(None, {entry: tokens.numpy()})[0]), model)
