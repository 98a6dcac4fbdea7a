"""Encoder and decoder in fairseq: as fairseq's own transformer, under its generator, and what is refused."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf
from untrained import plain

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.checkpoint_file import untrained, write
from fairseq_posenc.plugin.models.building import dictionary_of
from fairseq_posenc.plugin.run.checks import complete_model
from fairseq_posenc.plugin.run.resume import compare

SYMBOLS, PAD, EOS = 30, 1, 2
SIZES = dict(
    encoder_layers=2, decoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=32, encoder_attention_heads=2, dropout=0.0
)


def task(**options) -> SimpleNamespace:
    dictionary = dictionary_of(SYMBOLS)
    return SimpleNamespace(cfg=TranslationConfig(**options), source_dictionary=dictionary, target_dictionary=dictionary)


def make(arch: str, **options):
    """A model for evaluation, in float64, whose scores are far apart."""
    torch.manual_seed(4)
    args = Namespace(**{**SIZES, **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task()).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        model.decoder.output_projection.weight[EOS] *= 3  # so that some sentences end early
    return model


def batch(left: bool = True) -> dict[str, torch.Tensor]:
    """Source sentences of different lengths, padded as translation does it."""
    generator = torch.Generator().manual_seed(0)
    rows = [[*torch.randint(4, SYMBOLS, (n,), generator=generator).tolist(), EOS] for n in (6, 3, 4)]
    padded = [[PAD] * (7 - len(row)) + row if left else row + [PAD] * (7 - len(row)) for row in rows]
    return {"src_tokens": torch.tensor(padded), "src_lengths": torch.tensor([len(row) for row in rows])}


def translate(model, beam: int = 3, prefix: torch.Tensor | None = None, left: bool = True, **options) -> list[list[list[int]]]:
    """Tokens of every hypothesis."""
    generator = SequenceGenerator([model], dictionary_of(SYMBOLS), beam_size=beam, max_len_b=12, **options)
    return [
        [h["tokens"].tolist() for h in found]
        for found in generator.generate([model], {"net_input": batch(left)}, prefix_tokens=prefix)
    ]


@pytest.fixture(scope="module")
def pair():
    """fairseq's own transformer, and ours with its parameters."""
    stock = make(
        "transformer", decoder_embed_dim=16, decoder_ffn_embed_dim=32, decoder_attention_heads=2, share_all_embeddings=True
    )
    ours = make("transformer_sinusoidal_tiny", sinusoidal_layout="fairseq", share_all_embeddings=True)
    ours.load_state_dict(stock.state_dict())
    return stock, ours


def test_ours_is_fairseqs_own_transformer(pair):
    target = torch.tensor([[EOS, 5, 6, 7], [EOS, 8, 9, PAD], [EOS, 4, PAD, PAD]])
    stock, ours = (model(**batch(), prev_output_tokens=target)[0] for model in pair)
    tokens = target.ne(PAD)
    torch.testing.assert_close(ours[tokens], stock[tokens], rtol=1e-6, atol=1e-6)  # fairseq has its sinusoids in float32


@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search_finds_what_it_finds_with_fairseqs_own(pair, beam):
    """Sentences end at different steps, and leave the batch."""
    stock, ours = (translate(model, beam) for model in pair)
    assert ours == stock
    assert len({len(found[0]) for found in ours}) > 1


@pytest.mark.parametrize("scheme", ["shaw", "rope", "deberta", "untied", "fire"])
def test_beam_search_with_a_cache_finds_what_it_finds_without(scheme, monkeypatch):
    arch = "transformer_tupe_a_tie_cls_tiny" if scheme == "untied" else f"transformer_{scheme}_tiny"
    model, prefix = make(arch, max_positions=16), torch.tensor([[5, 6], [7, PAD], [PAD, PAD]])
    found = translate(model), translate(model, prefix=prefix), translate(model, left=False)
    assert found[2] == found[0]
    assert all(hypothesis[:2] == [5, 6] for hypothesis in found[1][0])
    assert all(hypothesis[0] == 7 for hypothesis in found[1][1])
    extract = type(model.decoder).extract_features
    monkeypatch.setattr(
        type(model.decoder),
        "extract_features",
        lambda self, tokens, encoder_out, state, **more: extract(self, tokens, encoder_out),
    )
    assert (translate(model), translate(model, prefix=prefix), translate(model, left=False)) == found


def test_generation_ends_with_the_table(monkeypatch):
    model = make("transformer_absolute_tiny", max_positions=8)
    assert model.max_decoder_positions() == 8
    with torch.no_grad():
        model.decoder.output_projection.weight[EOS] = -model.decoder.output_projection.weight[5]
    assert max(len(hypothesis) for found in translate(model) for hypothesis in found) <= 8


def test_embeddings_are_shared_as_asked():
    words = {
        options: {
            id(w) for w in (m.encoder.embed_tokens.weight, m.decoder.embed_tokens.weight, m.decoder.output_projection.weight)
        }
        for options in ("", "share_decoder_input_output_embed", "share_all_embeddings")
        for m in [make("transformer_shaw_tiny", **({options: True} if options else {}))]
    }
    assert [len(found) for found in words.values()] == [3, 2, 1]


def test_each_layer_of_encoder_and_decoder_has_tables_of_its_own():
    model = make("transformer_shaw_tiny", max_relative_position=0, position_share_heads="false", shaw_terms="keys")
    for part in (model.encoder, model.decoder):
        assert part.positions.shaw.keys.shape == (2, 2, 1, 8)
        assert part.positions.shaw.values is None


def test_a_source_beyond_the_table_is_refused():
    with pytest.raises(InputError, match=r"7 (tokens|positions) is longer than the 6 positions .*raise --max-positions"):
        make("transformer_absolute_tiny", max_positions=6).encoder(**batch())


def start(arch: str, **options) -> None:
    """What happens to a new model's options before training."""
    model = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[ARCH_MODEL_NAME_REGISTRY[arch]](**options))
    OmegaConf.set_struct(model, False)
    model._name = arch
    complete_model(OmegaConf.create({"model": model, "task": OmegaConf.structured(TranslationConfig())}))


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        (
            "transformer_posenc_tiny",
            {"positions": "m4+reset"},
            "--positions m4.reset cannot be a decoder's: reset is for encoders",
        ),
        ("transformer_shaw_tiny", {"max_relative_position": -1}, "--max-relative-position must be at least 0"),
        ("transformer_absolute", {"max_positions": 512}, "--max-source-positions 1024 is more than --max-positions 512"),
        ("transformer_shaw_tiny", {"decoder_layers": 0}, "--decoder-layers must be at least 1"),
    ],
)
def test_options_without_meaning_are_refused_before_training(arch, options, message):
    with pytest.raises(InputError, match=message):
        start(arch, **options)


def test_embeddings_of_two_dictionaries_cannot_be_shared():
    words = task()
    words.target_dictionary = dictionary_of(SYMBOLS + 1)
    args = Namespace(**SIZES, share_all_embeddings=True)
    ARCH_CONFIG_REGISTRY["transformer_shaw_tiny"](args)
    with pytest.raises(InputError, match="--share-all-embeddings"):
        ARCH_MODEL_REGISTRY["transformer_shaw_tiny"].build_model(args, words)


def test_an_encoder_cannot_translate():
    args = Namespace(encoder_layers=1)
    ARCH_CONFIG_REGISTRY["roberta_shaw_tiny"](args)
    with pytest.raises(InputError, match="--task translation"):
        ARCH_MODEL_REGISTRY["roberta_shaw_tiny"].build_model(
            args, TranslationTask(TranslationConfig(), *[dictionary_of(SYMBOLS)] * 2)
        )


@pytest.mark.parametrize("weights_only", [False, True])
def test_a_checkpoint_of_an_encoder_is_refused(weights_only):
    model = make("transformer_shaw_tiny")
    model.args._name = "transformer_shaw_tiny"
    content = {"cfg": {"model": {"_name": "roberta_shaw_tiny"}, "task": {}}}
    found, _ = compare("encoder.pt", content, model, task(), weights_only)
    assert found.startswith("encoder.pt holds a model of the architecture roberta_shaw_tiny")
    content["cfg"]["model"] = {**SIZES, "_name": "transformer_shaw_tiny", "max_relative_position": 2}
    found, _ = compare("other.pt", content, model, task(), weights_only)
    assert found is None if weights_only else "--max-relative-position 2 in the checkpoint, 1023 now" in found


@pytest.mark.parametrize("arch", ["transformer_shaw_tiny", "transformer_lm_alibi_tiny"])
def test_what_takes_encoders_refuses_a_decoder(arch, tmp_path):
    """An export, fine-tuning, load_encoder: all of them read a checkpoint by this."""
    path, cfg = tmp_path / "checkpoint.pt", OmegaConf.create({"model": {"_name": arch}, "task": {"_name": "translation"}})
    write(path, untrained(plain(cfg), SimpleNamespace(state_dict=lambda: {"decoder.embed_tokens.weight": torch.zeros(8, 4)})))
    with pytest.raises(InputError, match=f"of the architecture '{arch}', which has a decoder"):
        Checkpoint(path)
