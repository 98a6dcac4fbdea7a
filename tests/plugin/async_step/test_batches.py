"""--task masked_lm_static: fairseq's samples, in batches of one shape that say where what is."""

import itertools

import pytest
import torch
from fairseq import tasks
from fairseq.trainer import Trainer
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.transformer import Encoder, EncoderConfig, Mask
from fairseq_posenc.plugin.batches.masked_lm_static import document_starts

PAD, BOS, EOS = 1, 0, 2
MODES = ["none", "complete", "complete_doc", "eos"]


@pytest.fixture
def batches(configure):
    """``batches(step, values by path)``: those of the first epoch, as the trainer gives them to a model, and the dictionary."""

    def batches(step, values):
        cfg = configure(step, values)
        task = tasks.setup_task(cfg.task)
        model = task.build_model(cfg.model)
        trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        return list(trainer.get_train_iterator(1).next_epoch_itr(shuffle=True)), task

    return batches


@pytest.mark.parametrize("mode", MODES)
def test_the_same_samples_under_the_same_masks(mode, batches):
    values = {"task.sample_break_mode": mode, "dataset.batch_size": 12}  # of which fairseq makes 8, a multiple of 8
    expected, _ = batches("plain", values)
    found, _ = batches("fast", values)
    assert len(found) == len(expected) > 1
    for batch, plain in zip(found, expected, strict=True):
        rows, width = plain["target"].shape
        tokens = batch["net_input"]["src_tokens"]
        assert torch.equal(tokens[:rows, :width], plain["net_input"]["src_tokens"])
        assert (tokens[rows:] == PAD).all()
        assert (tokens[:, width:] == PAD).all()
        count = batch["sample_size"]
        targets = torch.full_like(tokens, PAD).flatten()
        targets[batch["net_input"]["read_at"][:count]] = batch["target"][:count]
        assert torch.equal(targets.view_as(tokens)[:rows, :width], plain["target"])
        assert count == (batch["target"] != PAD).sum() == (plain["target"] != PAD).sum()
        for name in ("ntokens", "nsentences", "id"):
            assert torch.equal(torch.as_tensor(batch[name]), torch.as_tensor(plain[name]))
        padding = batch["net_input"]["mask"].get("padding", torch.zeros_like(tokens, dtype=torch.bool))
        assert torch.equal(padding, tokens == PAD)
        assert ("padding" in batch["net_input"]["mask"]) == (tokens == PAD).any()


def test_all_batches_have_one_shape(batches):
    found, _ = batches("fast", {"task.sample_break_mode": "complete", "task.document_mask": True, "dataset.batch_size": 9})
    shapes = {tuple(x.shape for x in (b["net_input"]["src_tokens"], b["net_input"]["read_at"], b["target"])) for b in found}
    assert shapes == {((8, 16), (24,), (24,))}  # 8 rows of 16, in each of which at most 3 are masked
    assert {b["net_input"]["mask"]["documents"].shape for b in found} == {(8, 16)}


def test_documents_do_not_depend_on_masks(batches):
    values = {"task.document_mask": True, "task.mask_prob": 0.5}
    found, task = batches("fast", values)
    blocks = task._load_dataset_split("train", 1, False)
    seen = 0
    for batch in found:
        for i, number in enumerate(batch["id"]):
            tokens = blocks[number][None]
            starts = batch["net_input"]["mask"]["documents"][i, : tokens.shape[1]]
            assert starts.tolist() == document_starts(tokens, BOS, EOS)[0].tolist()
            seen += len(starts.unique()) > 1
    assert seen


@pytest.mark.parametrize(
    ("step", "option"), [("plain", None), ("fast", None), ("fast", "document_mask"), ("fast", "pack_documents")]
)
def test_with_masked_next_token_first_tokens_are_visible(step, option, batches):
    """Those of rows and of documents, which have no token before them; the others stay as they are."""
    values = {"task.mask_prob": 0.5} | ({f"task.{option}": True} if option else {})
    shown = 0
    for batch, before in zip(*(batches(step, {**values, "model.masked_next_token": on})[0] for on in (True, False)), strict=True):
        (tokens, target), (old_tokens, old_target) = (spread(each) for each in (batch, before))
        starts = batch["net_input"].get("mask", {}).get("documents", torch.zeros_like(tokens))
        first = starts == torch.arange(tokens.shape[1])
        assert (target[first] == PAD).all()
        assert torch.equal(target[~first], old_target[~first])
        assert torch.equal(tokens[~first], old_tokens[~first])
        assert torch.equal(tokens[first], torch.where(old_target == PAD, old_tokens, old_target)[first])
        shown += int((old_target[first] != PAD).sum())
    assert bool(shown) == (option != "pack_documents")  # where no first token is ever predicted


def spread(batch):
    """The tokens of a batch, and the targets in their places."""
    tokens, target = batch["net_input"]["src_tokens"], batch["target"]
    if "read_at" not in batch["net_input"]:
        return tokens, target
    count, places = batch["sample_size"], batch["net_input"]["read_at"]
    spread = torch.full(tokens.shape, PAD)
    spread.view(-1)[places[:count]] = target[:count]
    return tokens, spread


@given(st.lists(st.sampled_from([EOS, EOS, 5]), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_where_documents_start(line):
    """By reading a row from left to right."""
    row = [BOS, *line]
    expected, start = [], 0
    for i, token in enumerate(row):
        expected.append(start)
        if i and token == EOS and (row[i - 1] == EOS or i == 1):
            start = i + 1
    assert document_starts(torch.tensor([row]), BOS, EOS).tolist() == [expected]


def make_encoder(expression, **options):
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=20, layers=2, dim=16, ffn_dim=16, heads=2, max_positions=16, positions=expression, **options
    )
    encoder = Encoder(config).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return encoder


@pytest.mark.parametrize("name", expressions())
def test_a_document_in_a_row_is_a_document_alone(name):
    encoder = make_encoder(expressions()[name], mask_decoder_steps=2 if name == "deberta" else 0)
    ends = [0, 5, 12, 14]
    tokens = torch.randint(4, 20, (1, 14))
    tokens[0, [4, 11]] = EOS
    starts = [start for start, end in itertools.pairwise(ends) for _ in range(start, end)]
    mask = Mask(documents=torch.tensor([starts], dtype=torch.int32))
    packed = encoder(tokens, mask=mask, decode_masks=True).last_hidden_state
    for start, end in itertools.pairwise(ends):
        alone = encoder(tokens[:, start:end], decode_masks=True).last_hidden_state
        if name != "sentence_absolute" or start == 0:  # which counts the first word of the others from 1
            torch.testing.assert_close(packed[:, start:end], alone)


def test_sentences_do_not_go_on_in_the_next_document():
    """The first document is cut before its end, which no separator shows."""
    encoder, tokens = make_encoder("sentence_absolute"), torch.tensor([[BOS, 5, 6, 7, BOS, 8, 9, EOS, 10]])
    packed = encoder(tokens, mask=Mask(documents=torch.tensor([[0] * 4 + [4] * 5]))).last_hidden_state
    for part in (slice(4), slice(4, None)):
        torch.testing.assert_close(packed[:, part], encoder(tokens[:, part]).last_hidden_state)


@pytest.mark.parametrize("name", ["absolute_tisa", "tupe_r", "m4m"])
def test_padding_that_is_known_is_padding_that_is_found(name):
    encoder = make_encoder(expressions()[name])
    tokens = torch.randint(4, 20, (3, 9))
    tokens[1, 4:] = PAD
    torch.testing.assert_close(
        encoder(tokens, mask=Mask(tokens == PAD)).last_hidden_state, encoder(tokens).last_hidden_state, rtol=0, atol=0
    )
