"""--pack-examples: several examples per row are the same as each in a row of its own."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.families import expressions
from fairseq_posenc.plugin.batches.example_packing import arrange, pack
from fairseq_posenc.plugin.batches.squad import SquadConfig, SquadCriterion, SquadTask
from fairseq_posenc.text.data.databin import DatabinWriter

PAD, BOS, EOS = 1, 0, 2
LENGTHS = [5, 9, 3, 6, 12, 4]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(1, 20))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_every_token_has_a_place(lengths, tokens):
    examples = torch.full((len(lengths), max(lengths)), PAD)
    for i, length in enumerate(lengths):
        examples[i, :length] = 100 * (i + 1) + torch.arange(length)
    packed = pack(examples, torch.tensor(lengths), tokens, PAD)
    rows, read_at, documents = packed["src_tokens"], packed["read_at"], packed["mask"]["documents"]
    width = rows.shape[1]
    assert width <= max(tokens, *lengths)
    assert len(rows) <= len(lengths)
    assert (rows != PAD).sum() == sum(lengths)
    for i, length in enumerate(lengths):
        assert rows.flatten()[read_at[i, :length]].tolist() == examples[i, :length].tolist()
        assert set(documents.flatten()[read_at[i]].tolist()) == {int(read_at[i, 0]) % width}
    assert torch.equal(packed["mask"].get("padding", torch.zeros_like(rows, dtype=torch.bool)), rows == PAD)
    assert (documents.diff(dim=1) >= 0).all()


@pytest.mark.parametrize(
    ("lengths", "tokens", "expected"),
    [
        ([3, 7, 5, 4, 30], 10, ([(1, 16), (1, 0), (1, 7), (1, 12), (0, 0)], [30, 19])),  # as many as the longest has
        ([4, 4, 4, 4], 16, ([(0, 0), (1, 0), (0, 4), (1, 4)], [8, 8])),  # as full in two short rows as in one
        ([5, 5, 5], 10, ([(0, 0), (1, 0), (2, 0)], [5, 5, 5])),  # in two rows, a quarter would be padding
    ],
)
def test_rows_are_few_full_and_short(lengths, tokens, expected):
    assert arrange(lengths, tokens) == expected


def make_task(tokens, data=""):
    dictionary = Dictionary()
    for i in range(20):
        dictionary.add_symbol(f"w{i}")
    return SquadTask(SquadConfig(data=str(data), max_positions=32, pack_examples=tokens, seed=1), dictionary)


def build(name, task, **options):
    sizes = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 16, "encoder_attention_heads": 2}
    none = {"dropout": 0.0, "attention_dropout": 0.0}
    torch.manual_seed(0)
    return task.build_model(OmegaConf.create({"_name": f"roberta_{name}", **sizes, **none, **options}))


def example(length):
    """<s> words </s> </s> words </s>, as far as there is room."""
    tokens = torch.randint(4, 20, (length,))
    tokens[0] = BOS
    tokens[-1] = EOS
    if length > 5:
        tokens[2:4] = EOS
    return tokens


@pytest.mark.parametrize("name", expressions())
def test_scores_and_gradients_are_those_of_the_padded_batch(name):
    model = build(name, make_task(16)).train()
    with torch.no_grad():
        for parameter in model.encoder.sentence_encoder.positions.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    padded = torch.nn.utils.rnn.pad_sequence([example(length) for length in LENGTHS], batch_first=True, padding_value=PAD)
    packed = pack(padded, torch.tensor(LENGTHS), 16, PAD)
    assert packed["src_tokens"].shape == (3, 14)
    weights = torch.randn(*padded.shape, 2).masked_fill((padded == PAD)[..., None], 0)
    found = []
    for batch in ({"src_tokens": padded}, packed):
        scores, _ = model(**batch)
        model.zero_grad()
        (scores * weights).sum().backward()
        found.append(
            {"scores": scores * (weights != 0), **{k: p.grad for k, p in model.named_parameters() if p.grad is not None}}
        )
    assert found[0].keys() == found[1].keys()
    for key, expected in found[0].items():
        torch.testing.assert_close(found[1][key], expected, rtol=1e-5, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("backend", ["eager", "sdpa", "chunked"])
def test_in_every_backend_examples_do_not_see_each_other(backend):
    model = build("absolute_tisa", make_task(16), attention_backend=backend).eval()
    lengths, first = torch.tensor([6, 7]), example(6)
    scores = []
    for second in (example(7), example(7)):
        batch = pack(torch.nn.utils.rnn.pad_sequence([first, second], True, PAD), lengths, 16, PAD)
        scores.append(model(**batch)[0][0, :6])
    torch.testing.assert_close(*scores, rtol=0, atol=0)


def test_the_criterion_of_squad_scores_rows_of_several_windows(tmp_path):
    windows, spans = [example(length) for length in LENGTHS], [[1, 0, 0], [4, 4, 6], [1, 1, 1], [4, 4, 4], [4, 8, 10], [1, 2, 2]]
    with DatabinWriter(tmp_path / "train", np.dtype(np.uint16), 24) as writer:
        for window in windows:
            writer.add(window.numpy(), np.array([len(window)]))
        writer.finish()
    np.save(tmp_path / "train.spans.npy", np.array(spans, dtype=np.int32))
    found = []
    for tokens in (0, 16):
        task = make_task(tokens, tmp_path)
        model = build("absolute_tisa", task)
        dataset = task.load_dataset("train")
        sample = dataset.collater([dataset[i] for i in range(len(LENGTHS))])
        assert len(sample["net_input"]["src_tokens"]) == (3 if tokens else len(LENGTHS))
        loss, size, logged = SquadCriterion(task)(model, sample)
        assert size == logged["nsentences"] == len(LENGTHS)
        found.append((loss.item(), logged["ncorrect"].item(), logged["ntokens"]))
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_what_is_refused():
    with pytest.raises(InputError, match=r"^--pack-examples 33: .*32"):
        build("absolute", make_task(33))
    assert build("tisa", make_task(33)) is not None  # which reach as far as one likes
