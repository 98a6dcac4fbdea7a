"""The task and the criterion ``masked_lm_sentence_order``."""

import itertools
import math

import numpy as np
import pytest
import torch
from fairseq.criterions.masked_lm import MaskedLmConfig
from fairseq.data import Dictionary
from fairseq.logging import metrics
from omegaconf import OmegaConf
from torch.nn import functional as F

from fairseq_posenc.plugin.batches.masked_lm_sentence_order import (
    IN_ORDER,
    SWAPPED,
    WHOLE,
    MaskedLMSentenceOrder,
    MaskedLMSentenceOrderCriterion,
    SentenceOrderDataset,
)
from fairseq_posenc.plugin.checkpoint.state_dict import SENTENCE_ORDER
from fairseq_posenc.plugin.models.building import build
from fairseq_posenc.text.data.databin import DatabinWriter

SENTENCES = [[5, 6, 2], [7, 2], [8, 9, 10, 2]]
BLOCK = [0, *SENTENCES[0], *SENTENCES[1], *SENTENCES[2]]
SIZES = dict(encoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=16, encoder_attention_heads=2, embedding_size=8)


class Blocks(list):
    """As fairseq's data sets are read."""

    @property
    def sizes(self):
        return np.array([len(block) for block in self])


def halves(*blocks, seed=1):
    return SentenceOrderDataset(Blocks(map(torch.tensor, blocks)), separator=2, seed=seed)


def test_a_block_becomes_two_halves_in_either_order():
    """Every cut between sentences in both orders, about equally often, and the order is said."""
    found = {}
    for seed in range(400):
        dataset = halves(BLOCK, seed=seed)
        tokens = tuple(dataset[0].tolist())
        found.setdefault((tokens, int(dataset.orders[0])), []).append(seed)
        assert len(tokens) == dataset.sizes[0]
    expected = set()
    for cut in (1, 2):
        first, second = ([*itertools.chain(*part)] for part in (SENTENCES[:cut], SENTENCES[cut:]))
        expected |= {((0, *first, 2, *second), IN_ORDER), ((0, *second, 2, *first), SWAPPED)}
    assert found.keys() == expected
    assert min(map(len, found.values())) > 70


def test_each_epoch_draws_anew_and_reading_again_does_not():
    dataset = halves(BLOCK)
    epochs = []
    for epoch in range(1, 30):
        dataset.set_epoch(epoch)
        epochs.append((dataset[0].tolist(), int(dataset.orders[0])))
        assert (dataset[0].tolist(), int(dataset.orders[0])) == epochs[-1]
    assert len({str(each) for each in epochs}) == 4


@pytest.mark.parametrize("block", [[0, 5, 6, 2], [0, 2], [0, 5, 6, 2, 7, 8], [0]])
def test_what_has_no_two_sentences_stays_whole(block):
    """One sentence, an empty one, and one without its end, which would say that it came last."""
    dataset = halves(block)
    assert dataset[0].tolist() == block
    assert dataset.orders[0] == WHOLE


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two documents of four and of one sentence, parted by an empty line."""
    folder = tmp_path_factory.mktemp("data")
    dictionary = Dictionary()
    for i in range(30):
        dictionary.add_symbol(f"w{i}")
    dictionary.save(str(folder / "dict.txt"))
    with DatabinWriter(folder / "train", np.dtype(np.uint16), len(dictionary)) as writer:
        for sentence in ([5, 6, 7, 2], [8, 9, 2], [10, 11, 12, 2], [13, 2], [2], [14, 15, 16, 2]):
            writer.add(np.array(sentence), np.array([len(sentence)]))
        writer.finish()
    return folder


def setup(data, **options):
    cfg = {"data": str(data), "sample_break_mode": "complete_doc", "tokens_per_sample": 9, "seed": 1, **options}
    defaults = dict(
        shorten_method="none", shorten_data_split_list="", mask_prob=0.5, leave_unmasked_prob=0.0, random_token_prob=0.0,
        freq_weighted_replacement=False, mask_whole_words=False, mask_multiple_length=1, mask_stdev=0.0,
        include_target_tokens=False,
    )  # fmt: skip
    return MaskedLMSentenceOrder.setup_task(OmegaConf.create(defaults | cfg))


def batch_of(task):
    task.load_dataset("train")
    dataset = task.datasets["train"]
    return dataset.collater([dataset[i] for i in range(len(dataset))])


def test_batches_hold_whole_sentences_of_one_document_and_their_order(data):
    """None longer than --tokens-per-sample, what parts the halves included."""
    task = setup(data)
    batch = batch_of(task)
    source, target = batch["net_input"]["src_tokens"], batch["target"]
    tokens = torch.where(target.ne(1), target, source)
    assert tokens.shape[1] <= 9
    assert task.cfg.tokens_per_sample == 9
    rows = [" ".join(map(str, [token for token in row if token != 1])) for row in tokens.tolist()]
    expected = {
        ("0 5 6 7 2 2 8 9 2", IN_ORDER), ("0 8 9 2 2 5 6 7 2", SWAPPED), ("0 10 11 12 2 2 13 2", IN_ORDER),
        ("0 13 2 2 10 11 12 2", SWAPPED), ("0 14 15 16 2", WHOLE),
    }  # fmt: skip
    assert len(rows) == 3
    assert set(zip(rows, batch["order"].tolist(), strict=True)) <= expected
    assert batch["order"].dtype == torch.int64


def test_the_loss_is_the_words_and_the_orders_mean(data):
    """Summed over words, whose number divides it, and by hand."""
    task = setup(data)
    torch.manual_seed(0)
    batch = batch_of(task)
    options = {"_name": "albert_tisa_tiny", "max_positions": 9, **SIZES, "dropout": 0.0}
    model = task.build_model(OmegaConf.create(options)).train()
    criterion = MaskedLMSentenceOrderCriterion(MaskedLmConfig(tpu=False), task)
    loss, size, logged = criterion(model, batch)
    tokens, target, order = batch["net_input"]["src_tokens"], batch["target"], batch["order"]
    words = F.cross_entropy(model(tokens)[0].transpose(1, 2), target, ignore_index=1)
    scores = model(tokens, classification_head_name=SENTENCE_ORDER)[0]
    pairs = order.ne(WHOLE)
    orders = F.cross_entropy(scores[pairs], order[pairs])
    assert size == target.ne(1).sum()
    torch.testing.assert_close(loss / size, words + orders)
    loss.backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    with metrics.aggregate() as found:
        criterion.reduce_metrics([logged, logged])
    values = found.get_smoothed_values()
    assert values["loss"] == pytest.approx(words.item() / math.log(2), abs=1e-3)
    assert values["order_loss"] == pytest.approx(orders.item() / math.log(2), abs=1e-3)
    assert values["order_accuracy"] == pytest.approx(100 * (scores.argmax(1) == order)[pairs].float().mean().item(), abs=0.1)


def test_a_batch_without_pairs_has_the_words_loss(data):
    task = setup(data)
    batch = batch_of(task)
    batch["order"].fill_(WHOLE)
    model = task.build_model(OmegaConf.create({"_name": "roberta_rope_tiny", **SIZES})).eval()
    loss, size, _ = MaskedLMSentenceOrderCriterion(MaskedLmConfig(tpu=False), task)(model, batch)
    words = F.cross_entropy(model(batch["net_input"]["src_tokens"])[0].transpose(1, 2), batch["target"], ignore_index=1)
    torch.testing.assert_close(loss / size, words)


def test_batches_without_pairs_weigh_nothing_in_averages(data):
    """The order's loss is that of the pairs, however few they are, and not a number where there are none."""
    task = setup(data)
    batch = batch_of(task)
    model = task.build_model(OmegaConf.create({"_name": "albert_tisa_tiny", "max_positions": 9, **SIZES})).eval()
    criterion = MaskedLMSentenceOrderCriterion(MaskedLmConfig(tpu=False), task)
    logged = criterion(model, batch)[2]
    batch["order"].fill_(WHOLE)
    without = criterion(model, batch)[2]

    def average(*updates):
        with metrics.aggregate() as found:
            for update in updates:
                criterion.reduce_metrics(update)
        return {name: value for name, value in found.get_smoothed_values().items() if "order" in name}

    expected = average([logged])
    assert expected["order_loss"] > 0
    assert average([without], [logged], [without, without], [logged, without]) == pytest.approx(expected)
    assert all(map(math.isnan, average([without]).values()))


def lines_of(folder, sizes):
    """A data-bin whose documents have so many lines each."""
    dictionary = Dictionary()
    for i in range(30):
        dictionary.add_symbol(f"w{i}")
    dictionary.save(str(folder / "dict.txt"))
    for split in ("train", "valid"):
        with DatabinWriter(folder / split, np.dtype(np.uint16), len(dictionary)) as writer:
            for size in sizes:
                for line in ([5, 6, 7, 2],) * size + ([2],):
                    writer.add(np.array(line), np.array([len(line)]))
            writer.finish()
    return folder


@pytest.mark.parametrize(
    ("documents", "level", "found"),
    [
        ([2] * 30, "INFO", "30 of 30"),
        ([1] * 28 + [2] * 2, "WARNING", "2 of 30"),
        ([1] * 30, None, "0 of 30"),
        ([5] * 4, "INFO", "8 of 12"),
    ],
)
def test_the_samples_with_two_sentences_are_counted(documents, level, found, tmp_path, caplog):
    """None is refused in training; a validation text of such is warned of."""
    task = setup(lines_of(tmp_path, documents), tokens_per_sample=10)
    caplog.set_level("INFO")
    if level is None:
        with pytest.raises(ValueError, match=f"{found} samples of train have two sentences.*a line for each sentence"):
            task.load_dataset("train", data_selector=None)
        task.load_dataset("valid")
    else:
        task.load_dataset("train", data_selector=None)
    [record] = [record for record in caplog.records if "have two sentences" in record.getMessage()]
    assert found in record.getMessage()
    assert record.levelname == (level or "WARNING")


def test_the_head_is_saved_with_the_model(data):
    model = setup(data).build_model(OmegaConf.create({"_name": "albert_tisa_tiny", **SIZES}))
    other = build("albert_tisa_tiny", OmegaConf.create(SIZES | {"load_checkpoint_heads": True}), model.encoder.dictionary)
    other.load_state_dict(model.state_dict(), strict=True)
    tokens = torch.tensor([[0, 5, 2, 2, 7, 2]])
    scores = [each.eval()(tokens, classification_head_name=SENTENCE_ORDER)[0] for each in (model, other)]
    torch.testing.assert_close(*scores)
