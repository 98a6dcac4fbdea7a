"""Every scheme sees the same data, token for token; what one cannot take is refused."""

import copy

import numpy as np
import pytest
import torch
from cases import SOME, thorough_but
from fairseq import tasks
from fairseq.data import Dictionary, TokenBlockDataset, data_utils
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.trainer import Trainer
from hypothesis import given, settings
from hypothesis import strategies as st
from lines import write_databin
from omegaconf import open_dict

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.families import expressions
from fairseq_posenc.plugin.batches.blocks import CutLinesBlockDataset, CutLinesDataset
from fairseq_posenc.plugin.batches.example_packing import PackingTask

LENGTHS = [5, 3, 40, 7, 16, 15, 1, 31, 46, 2, 9, 200, 14, 3, 30, 1, 16, 8]  # of lines; blocks have 15 tokens after <s>


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_databin(tmp_path_factory.mktemp("data") / "bin", train=LENGTHS * 2, valid=LENGTHS[::-1])


def batches(cfg, arch):
    """Every tensor of the first epoch's batches and of validation's, as the trainer gives them to a model."""
    cfg = copy.deepcopy(cfg)
    cfg.model._name = arch
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(cfg.common.seed)
    model = task.build_model(cfg.model)
    task.load_dataset("valid")
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    epoch = trainer.get_train_iterator(1).next_epoch_itr(shuffle=True)
    for batch in [*epoch, *trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False)]:
        yield from (batch["net_input"]["src_tokens"], batch["target"], batch["id"], batch["net_input"]["src_lengths"])


@pytest.fixture(scope="module")
def stock_configuration(data, configure):
    """Of no architecture in particular: its options are all that this package's models have beyond their names."""
    return configure(data, "roberta_posenc", "--sample-break-mode", "complete")


@pytest.fixture(scope="module")
def expected(stock_configuration):
    return list(batches(stock_configuration, "roberta_none_tiny"))


@pytest.mark.parametrize("name", thorough_but(("absolute", "tisa", "tupe_r", "synthesizer_dense"), expressions(), SOME))
def test_every_architecture_gets_the_same_batches(name, stock_configuration, expected):
    found = list(batches(stock_configuration, f"roberta_{name}_tiny"))
    assert len(found) == len(expected)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


@pytest.mark.parametrize("family", ["roberta", "albert", "modernbert"])
def test_every_scheme_has_the_same_initial_weights(family, stock_configuration):
    """Where shapes agree; and random numbers after that, as those of heads and dropout, are the same, too."""
    weights, drawn = {}, set()
    for name in ("none", "absolute", "tisa", "tupe_a", "floater"):
        cfg = copy.deepcopy(stock_configuration)
        cfg.model._name = f"{family}_{name}_tiny"
        torch.manual_seed(1)
        model = tasks.setup_task(cfg.task).build_model(cfg.model)
        drawn.add(torch.rand(()).item())
        shared = {key: value for key, value in model.state_dict().items() if ".positions." not in key}
        assert all(torch.equal(value, weights.setdefault(key, value)) for key, value in shared.items()), name
        assert shared.keys() == weights.keys()
    assert len(drawn) == 1


def test_all_of_the_text_is_there(expected):
    """In every batch: a block begins with <s>, and what is no <s> and no padding adds up to the text."""
    tokens = expected[0::4]
    assert sum(int(batch.ne(1).sum()) - len(batch) for batch in tokens) == 3 * sum(LENGTHS)
    assert max(batch.shape[1] for batch in tokens) == 16


def masked_lm(data, mode, tokens_per_sample=16):
    return MaskedLMTask.setup_task(MaskedLMConfig(data=str(data), tokens_per_sample=tokens_per_sample, sample_break_mode=mode))


@pytest.mark.parametrize("mode", ["none", "complete", "complete_doc", "eos"])
def test_blocks_hold_the_text_in_order(data, mode):
    blocks = masked_lm(data, mode)._load_dataset_split("train", 1, False)
    assert blocks.sizes.max() == 16
    assert [len(block) for block in blocks] == blocks.sizes.tolist()
    lines = data_utils.load_indexed_dataset(str(data / "train"))
    text = torch.cat([line for line in lines if mode != "complete_doc" or len(line) > 1])  # a lone </s> ends a document
    assert torch.equal(torch.cat([block[1:] for block in blocks]), text)


def test_a_long_line_begins_a_block_and_its_rest_is_filled_up(tmp_path):
    data = write_databin(tmp_path, train=[5, 3, 40, 4, 2, 9, 16])
    blocks = masked_lm(data, "complete")._load_dataset_split("train", 1, False)
    assert (blocks.sizes - 1).tolist() == [5 + 3, 15, 15, 10 + 4, 2 + 9, 14, 2]  # a last piece is never </s> alone


def test_lines_that_fit_are_left_to_fairseq(tmp_path):
    data = write_databin(tmp_path, train=[5, 3, 15, 7, 1, 9])
    blocks = masked_lm(data, "complete")._load_dataset_split("train", 1, False).dataset
    lines = data_utils.load_indexed_dataset(str(data / "train"))
    assert type(blocks.dataset) is type(lines)
    theirs = TokenBlockDataset(lines, lines.sizes, 15, pad=1, eos=2, break_mode="complete")
    assert blocks.slice_indices.tolist() == theirs.slice_indices.tolist()


def test_language_models_get_blocks_of_the_same_length(data):
    read = dict(dataset_impl="mmap", use_plasma_view=False, plasma_path="")
    cfg = LanguageModelingConfig(data=str(data), tokens_per_sample=16, sample_break_mode="complete", **read)
    task = LanguageModelingTask.setup_task(cfg)
    task.load_dataset("train")
    sizes = [len(task.dataset("train")[i]["target"]) for i in range(len(task.dataset("train")))]
    assert max(sizes) == 16
    assert sum(sizes) == 2 * sum(LENGTHS)


def test_samples_too_short_to_cut_lines_into_are_refused(data):
    with pytest.raises(ValueError, match=r"blocks of 2 tokens are too short.*--tokens-per-sample"):
        masked_lm(data, "complete", tokens_per_sample=3)._load_dataset_split("train", 1, False)


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=12), longest=st.integers(3, 12))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_pieces_put_together_are_the_lines(lengths, longest):
    lines = [torch.arange(length) + 100 * i for i, length in enumerate(lengths)]
    pieces = CutLinesDataset(lines, np.array(lengths, dtype=np.int32), longest)
    found = [pieces[i] for i in range(len(pieces))]
    assert torch.equal(torch.cat(found), torch.cat(lines))
    assert [len(piece) for piece in found] == pieces.sizes.tolist()
    assert max(pieces.sizes) <= longest
    assert (pieces.sizes == 1).sum() == lengths.count(1)  # none that was cut
    assert len(pieces) == sum(max(1, -(-length // longest)) for length in lengths)


def test_what_is_read_ahead_are_lines():
    class Lines(list):
        supports_prefetch = True

        def prefetch(self, indices):
            self.asked = set(indices)

    lines = Lines([torch.arange(4), torch.arange(20), torch.arange(3)])
    blocks = CutLinesBlockDataset(lines, [4, 20, 3], 8, pad=1, eos=2, break_mode="eos")
    assert blocks.supports_prefetch
    blocks.prefetch([1, 2, 4])
    assert lines.asked == {1, 2}


class Rows(PackingTask):
    """A task whose rows are as they are."""

    source_dictionary = target_dictionary = Dictionary()


@pytest.mark.parametrize(("arch", "accepted"), [("roberta_m4m_tiny", False), ("roberta_tisa_tiny", True)])
def test_rows_beyond_a_table_are_refused(arch, accepted, data, configure):
    cfg = configure(data, arch)
    with open_dict(cfg.task):
        cfg.task.pack_examples = 0
    task = Rows(cfg.task)
    model = task.build_model(cfg.model)
    assert (model.encoder.sentence_encoder.max_length is None) == accepted
    assert model.max_positions() > 10**5  # or fairseq would leave longer rows out
    task.prepared([], np.array([3, 16]), "train", shuffle=False)
    if accepted:
        task.prepared([], np.array([3, 17]), "train", shuffle=False)
    else:
        with pytest.raises(InputError, match=r"train has 17 tokens.*16 positions.*--max-positions"):
            task.prepared([], np.array([3, 17]), "train", shuffle=False)
