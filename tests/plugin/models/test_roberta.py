"""The fairseq face: interchange with stock RoBERTa, flags and configs."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import build_model
from fairseq.models.roberta import RobertaModel
from omegaconf import OmegaConf
from safetensors.torch import load_file

from fairseq_posenc.core.families import architectures, expressions
from fairseq_posenc.core.transformer import Encoder
from fairseq_posenc.plugin.checkpoint.stock import DEAD_COPIES, to_stock
from fairseq_posenc.plugin.models.building import complete, encoder_config
from fairseq_posenc.plugin.models.roberta import PosencRobertaModel

GOLDEN = Path(__file__).parents[4] / "shared" / "golden" / "fairseq_roberta.safetensors"
SIZE = dict(
    encoder_layers=2, encoder_embed_dim=32, encoder_ffn_embed_dim=64, encoder_attention_heads=4, max_positions=24,
)  # fmt: skip


class Task:
    """What models ask of a task."""

    def __init__(self, symbols=61):
        self.source_dictionary = Dictionary()
        for i in range(symbols):
            self.source_dictionary.add_symbol(f"w{i}")
        self.source_dictionary.add_symbol("<mask>")
        self.cfg = OmegaConf.create({"tokens_per_sample": 24})


def build(arch, task, **options_):
    torch.manual_seed(1)
    return build_model(OmegaConf.create({"_name": arch, **(SIZE | options_)}), task).eval()


def encoder_of(name, symbols=30_000):
    """An architecture's encoder for 512 tokens, without memory for its parameters."""
    options = Namespace(**architectures()[name].options, max_positions=512)
    with torch.device("meta"):
        return Encoder(encoder_config(complete(options, None), Task(symbols - 5).source_dictionary))


def build_stock(task):
    torch.manual_seed(2)
    model = RobertaModel.build_model(Namespace(**SIZE), task).eval()
    with torch.no_grad():  # so that a missing term shows
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture
def tokens():
    tokens = torch.randint(4, 60, (3, 17), generator=torch.Generator().manual_seed(3))
    tokens[1, 11:] = 1
    tokens[2, :4] = 1  # fairseq counts positions over what is not padding, on either side
    return tokens


def real(logits, tokens):
    return logits[tokens.ne(1)]


def test_loads_stock_strictly_with_equal_logits(tokens):
    task = Task()
    stock, ours = build_stock(task), build("roberta_absolute", task)
    ours.load_state_dict(stock.state_dict(), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(real(ours(tokens)[0], tokens), real(stock(tokens)[0], tokens), atol=1e-5, rtol=0)


def test_stock_loads_ours_strictly_with_equal_logits(tokens):
    task = Task()
    stock, ours = build_stock(task), build("roberta_absolute", task)
    stock.load_state_dict(ours.state_dict(), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(real(stock(tokens)[0], tokens), real(ours(tokens)[0], tokens), atol=1e-5, rtol=0)


def test_stock_has_no_place_for_other_positions():
    with pytest.raises(ValueError, match=r"positions\.tisa"):
        to_stock(build("roberta_tisa", Task()).state_dict())


def test_no_dead_copies_in_base_size():
    task = Task()
    ours = build_model(OmegaConf.create({"_name": "roberta_absolute"}), task)
    assert not [name for name in ours.state_dict() if DEAD_COPIES.search(name)]
    layers = sum(p.numel() for p in ours.encoder.sentence_encoder.layers.parameters())
    assert layers == 12 * (4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768)


@pytest.mark.parametrize("variant", ["roberta", "roberta_prenorm"])
@pytest.mark.skipif(not GOLDEN.exists(), reason=f"{GOLDEN} is not there")
def test_golden_logits(variant):
    """Logits of fairseq's own two-layer models, computed elsewhere, from their state dicts."""
    tensors = load_file(GOLDEN)
    prefix = f"{variant}.rand."
    state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix + "encoder.")}
    vocabulary, dim = state["encoder.sentence_encoder.embed_tokens.weight"].shape
    sizes = dict(
        encoder_layers=2,
        encoder_embed_dim=dim,
        encoder_ffn_embed_dim=state["encoder.sentence_encoder.layers.0.fc1.weight"].shape[0],
        max_positions=state["encoder.sentence_encoder.embed_positions.weight"].shape[0] - 2,
    )
    prenorm = variant == "roberta_prenorm"
    task = Task(vocabulary - 5)
    model = build("roberta_absolute", task, encoder_normalize_before=prenorm, no_layernorm_embedding=prenorm, **sizes)
    model.load_state_dict(state, strict=True)
    for n in (13, 40):
        tokens, expected = tensors[f"{variant}.n{n}.tokens"], tensors[f"{variant}.n{n}.rand.logits"]
        with torch.no_grad():
            torch.testing.assert_close(real(model(tokens)[0], tokens), real(expected, tokens), atol=5e-5, rtol=0)


@pytest.mark.parametrize("arch", expressions())
def test_every_architecture_in_three_sizes(arch):
    from fairseq.models import ARCH_MODEL_REGISTRY

    for size in ("", "_large", "_tiny"):
        assert ARCH_MODEL_REGISTRY[f"roberta_{arch}{size}"] is PosencRobertaModel
    model = build(f"roberta_{arch}_tiny", Task())
    assert model.encoder.sentence_encoder.positions.expression == expressions()[arch]


def test_explicit_values_win_over_the_architecture():
    model = build("roberta_tisa_tiny", Task(), positions="absolute+t5", t5_buckets=8, position_share_layers="false")
    positions = model.encoder.sentence_encoder.positions
    assert positions.expression == "absolute+t5"
    assert positions.t5.weight.shape == (2, 4, 8)


def test_command_line_flags_reach_the_schemes():
    parser = options.get_training_parser("masked_lm")
    command = "data --arch roberta_tisa_tiny --tisa-kernels 3 --position-share-heads true --tokens-per-sample 24"
    args = options.parse_args_and_arch(parser, command.split())
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    cfg = convert_namespace_to_omegaconf(args)
    model = build_model(cfg.model, Task())
    assert model.encoder.sentence_encoder.positions.tisa.amplitude.shape == (2, 1, 3)


def test_help_shows_flags_grouped_with_defaults(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["fairseq-train", "--help"])
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(options.get_training_parser())
    text = " ".join(capsys.readouterr().out.split())
    assert text.isascii(), "a terminal of few characters could not show it"
    group = text[text.index("Positional encoding (architectures of fairseq_posenc)") :]
    assert "--tisa-kernels" in group
    assert "number S of kernels per head (default: 5)" in group


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(positions="tsia"), "did you mean tisa"),
        (dict(positions="none+tisa"), "cannot be part of a sum"),
        (dict(positions="tisa", tisa_kernels=0), "--tisa-kernels must be at least 1"),
        (dict(positions="rope", encoder_embed_dim=36, encoder_attention_heads=4), "head dimension must be even"),
        (dict(positions="shaw", max_relative_position=-1), "--max-relative-position must be at least 0"),
        (dict(positions="shaw", attention_backend="sdpa"), "--attention-backend sdpa cannot run these positions"),
        (dict(positions="t5", position_share_heads="maybe"), "--position-share-heads must be true or false"),
        (dict(positions="tisa", encoder_attention_heads=5), "--encoder-attention-heads 5"),
    ],
)
def test_bad_configuration_names_the_flag(arguments, message):
    with pytest.raises(ValueError, match=message):
        build("roberta_posenc_tiny", Task(), **arguments)


def test_sequence_beyond_the_table_names_the_flag():
    with pytest.raises(ValueError, match="--max-positions"):
        build("roberta_absolute", Task())(torch.full((1, 25), 5))


def test_checkpoint_activations_change_nothing(tokens):
    task = Task()
    gradients = []
    for checkpointed in (False, True):
        model = build("roberta_tisa", task, checkpoint_activations=checkpointed, dropout=0.0, attention_dropout=0.0).train()
        model(tokens)[0].float().square().mean().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients)


def test_checkpoint_holds_parameters_only():
    model = build("roberta_tisa", Task())
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters(remove_duplicate=False)}


def test_classification_head_and_features(tokens):
    model = build("roberta_tisa", Task())
    model.register_classification_head("task", num_classes=3)
    logits, extra = model(tokens, features_only=True, classification_head_name="task", return_all_hiddens=True)
    assert logits.shape == (3, 3)
    assert len(extra["inner_states"]) == 3
