"""Every scheme under ZeRO-3, where a parameter is whole only while the module that holds it runs, as far as DeepSpeed can see.

Schemes turn parameters into terms outside their own ``forward``, and attention uses them elsewhere. Even the smallest parameter
is sharded, since most of positional ones would be left whole otherwise; by one process, which still holds it only while it is
needed, and by two. Both of the two have the same batch, and so the average of their gradients is the gradient of one.
"""

import json

import pytest
from training_runs import RANKS, call, needs_deepspeed

from fairseq_posenc.core.schemes import REGISTRY

pytestmark = needs_deepspeed

PROGRAM = """
import json, os, sys, torch
from fairseq_posenc.plugin.zero import communication, zero_config
os.environ["DS_ACCELERATOR"] = "cpu"
communication.without_inference_kernels()
torch.distributed.init_process_group("gloo")
world = torch.distributed.group.WORLD
import deepspeed
from fairseq_posenc.core.transformer import Decoder, DecoderConfig, Encoder, EncoderConfig

class TensorEncoder(Encoder):  # DeepSpeed looks for tensors in plain containers, which is what the faces return
    def forward(self, tokens):
        return super().forward(tokens).last_hidden_state

class TensorDecoder(Decoder):
    def forward(self, tokens):
        memory = torch.linspace(-1, 1, 3 * 7 * 16).sin().view(3, 7, 16)  # an encoder's states
        return self.output_projection(super().forward(tokens, memory))

FAMILIES = {
    "": (TensorEncoder, EncoderConfig, dict(layers=2)),
    "albert": (TensorEncoder, EncoderConfig, dict(layers=3, layer_groups=1, embed_dim=8)),
    "modernbert": (TensorEncoder, EncoderConfig, dict(layers=3, gated_ffn=True, normalize_before=True, first_norm=False,
                                                      linear_bias=False, norm_bias=False)),
    "eurobert": (TensorEncoder, EncoderConfig, dict(layers=2, gated_ffn=True, normalize_before=True, first_norm=False,
                                                    linear_bias=False, norm="rms")),
    "decoder": (TensorDecoder, DecoderConfig, dict(layers=2)),
}

def losses(expression, sharded):
    torch.manual_seed(0)
    family, _, expression = expression.rpartition(" ")
    model, options, own = FAMILIES[family]
    model = model(options(vocab_size=50, dim=16, ffn_dim=32, heads=2, max_positions=12, positions=expression, dropout=0.0,
                          attention_dropout=0.0, **own))
    tokens = torch.randint(4, 50, (3, 12), generator=torch.manual_seed(1))
    tokens[:, 0], tokens[:, 6], tokens[0, 9:] = 0, 2, 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)  # Adam would blow up rounding where gradients vanish
    if sharded:
        contents = {**zero_config.read("zero3").contents, "train_batch_size": 3 * world.size()}
        contents |= {"zero_allow_untested_optimizer": True, "gradient_clipping": 0.0}  # DeepSpeed's default is 1
        contents["zero_optimization"]["stage3_param_persistence_threshold"] = 0
        model, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=contents, dist_init_required=False)
    found = []
    for _ in range(3):
        loss = model(tokens).float().pow(4).mean()
        found.append(loss.item())
        if sharded:
            model.backward(loss)
            model.step()
        else:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if sharded:
        model.destroy()
    return found

for expression in sys.argv[1:]:
    try:
        found = [expression, losses(expression, False), losses(expression, True)]
    except Exception as error:
        found = [expression, str(error), None]
    if world.rank() == 0:
        print(json.dumps(found), flush=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()  # gloo's threads may abort a process that exits with them
"""
SHARED = ["albert absolute+shaw", "albert deberta+tisa"]  # one layer's weights for all layers, each with its own positions
DECODERS = ["decoder absolute+shaw", "decoder alibi"]  # whose word embeddings are the output projection, too
LAYERED = ["modernbert absolute+shaw|absolute+rope(window=4)", "eurobert tisa|rope"]
EXPRESSIONS = [*sorted(set(REGISTRY) - {"reset"}), "untied+t5+reset", "absolute+m4m", *SHARED, *LAYERED, *DECODERS]


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.thorough), pytest.param(2, marks=pytest.mark.slow)])
def curves(request, tmp_path_factory):
    """expression -> losses of three steps without and with ZeRO-3."""
    program = tmp_path_factory.mktemp("schemes") / "program.py"
    program.write_text(PROGRAM)
    done = call(RANKS, request.param, program, *EXPRESSIONS)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    assert len(rows) == len(EXPRESSIONS), done.stdout
    return {expression: (whole, sharded) for expression, whole, sharded in rows}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_sharded_parameters_train_the_same(curves, expression):
    whole, sharded = curves[expression]
    assert sharded is not None, whole
    assert sharded == pytest.approx(whole, rel=1e-5)
    assert whole[2] < whole[0]
