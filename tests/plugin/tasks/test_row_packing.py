"""--pack-documents: documents of any length in full rows."""

import itertools

import numpy as np
import pytest
import torch
from async_step.conftest import configure, lines, train  # noqa: F401 - fixtures
from async_step.test_batches import BOS, EOS, PAD, batches  # noqa: F401 - a fixture
from fairseq import tasks
from fairseq.data import ListDataset
from hypothesis import given, settings
from hypothesis import strategies as st
from lines import write_databin
from omegaconf import OmegaConf

from fairseq_posenc.core.terms import starts_of
from fairseq_posenc.plugin.batches import row_packing
from fairseq_posenc.plugin.batches.row_packing import DocumentsDataset, PackedDocumentsDataset, best_fit


def one_by_one(lengths, capacity):
    """What is in each row by best-fit decreasing, from its definition."""
    rows: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row in rows if sum(row) + length <= capacity]
        if not fitting:
            rows.append([])
        row = max(fitting, key=sum) if fitting else rows[-1]
        row.append(length)
    return sorted(sorted(row) for row in rows)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_it_is_best_fit_decreasing(lengths):
    rows = best_fit(np.array(lengths), 12)
    found = [sorted(np.array(lengths)[rows == row].tolist()) for row in range(rows.max() + 1)]
    expected = one_by_one(lengths, 12)
    assert sorted(map(sum, found)) == sorted(map(sum, expected))
    assert sorted(map(len, found)) == sorted(map(len, expected))


@given(st.lists(st.integers(1, 11), min_size=1, max_size=30), st.integers(1, 8))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_documents_are_cut_by_their_definition(sizes, limit):
    sizes[0] = 5
    tokens = torch.arange(sum(sizes)).split(sizes)
    documents, expected = [[]], []
    for line in tokens:
        documents.append([]) if len(line) == 1 else documents[-1].extend(line.tolist())
    for document in documents:
        expected += [document[at : at + limit] for at in range(0, len(document), limit)]
    found = DocumentsDataset(ListDataset(tokens), np.array(sizes, np.int32), limit, pad=PAD, eos=EOS)
    assert [found[i].tolist() for i in range(len(found))] == expected
    assert found.sizes.tolist() == [len(piece) for piece in expected]


def test_rows_have_every_document_once_in_chunks(monkeypatch):
    monkeypatch.setattr(row_packing, "CHUNK", 7)
    documents = [torch.full((1 + i * 5 % 9,), i) for i in range(23)]
    rows = PackedDocumentsDataset(ListDataset(documents, np.array([len(d) for d in documents], np.uint16)), 10)
    assert sorted(itertools.chain.from_iterable(rows[i].unique().tolist() for i in range(len(rows)))) == list(range(23))
    for i in range(len(rows)):
        assert torch.equal(rows[i], torch.cat([documents[d] for d in rows.documents(i)]))
        assert rows.sizes[i] == len(rows[i]) <= 10
        assert len({d // 7 for d in rows.documents(i)}) == 1
    assert len(rows) == sum(len(one_by_one([len(d) for d in documents[at : at + 7]], 10)) for at in range(0, 23, 7))


def test_batches_have_whole_documents_apart_from_each_other(batches):  # noqa: F811
    values = {"task.pack_documents": True, "task.mask_prob": 0.5, "dataset.batch_size": 8}
    found, task = batches("fast", values)
    rows = task._load_dataset_split("train", 1, False)
    assert 0.95 < rows.sizes.sum() / (len(rows) * 16) <= 1
    several = 0
    for batch in found:
        net_input = batch["net_input"]
        targets = torch.full_like(net_input["src_tokens"], PAD).flatten()
        targets[net_input["read_at"][: batch["sample_size"]]] = batch["target"][: batch["sample_size"]]
        assert not (targets == BOS).any()
        for i, number in enumerate(batch["id"]):
            row, seen = rows[number], net_input["src_tokens"][i]
            target = targets.view_as(net_input["src_tokens"])[i]
            assert torch.equal(torch.where(target == PAD, seen, target)[: len(row)], row)
            starts = net_input["mask"]["documents"][i, : len(row)].unique().tolist()
            assert starts == (row == BOS).nonzero().flatten().tolist()
            assert (seen[starts] == BOS).all()
            several += len(starts) > 1
    assert several


def test_validation_predicts_no_first_token_either(configure):  # noqa: F811
    cfg = configure("fast", {"task.pack_documents": True, "task.mask_prob": 0.5})
    task = tasks.setup_task(cfg.task)
    task.load_dataset("valid")
    batch = task.datasets["valid"].collater([task.datasets["valid"][i] for i in range(len(task.datasets["valid"]))])
    assert BOS not in batch["target"]
    assert batch["sample_size"] > 10


def test_training_with_packed_documents_resumes(train):  # noqa: F811
    values = {"task.pack_documents": True}
    whole = train("fast", "whole", {**values, "optimization.max_update": 4})
    train("fast", "parts", {**values, "optimization.max_update": 2})
    parts = train("fast", "parts", {**values, "optimization.max_update": 4})
    for name, value in whole.checkpoint["model"].items():
        assert torch.equal(value, parts.checkpoint["model"][name]), name


def test_a_document_that_is_cut_before_the_end_of_a_line_stays_one():
    """Its next piece begins with </s> after <s>, which is no empty line."""
    row = torch.tensor([[BOS, EOS, 9, EOS, BOS, 4, EOS]])
    assert starts_of(row == BOS).tolist() == [[0, 0, 0, 0, 4, 4, 4]]


@pytest.mark.parametrize("option", ["document_mask", "pack_documents"])
@pytest.mark.parametrize(("sizes", "count"), [([9, 1] * 20, 20), ([9] * 400, 1), ([9] * 399 + [1, 9], 2), ([9] * 6, 1)])
def test_the_documents_are_counted(option, sizes, count, tmp_path, caplog):
    """Text without empty lines is one document, which is warned of."""
    write_databin(tmp_path, train=sizes)
    options = {"_name": "masked_lm_static", "data": str(tmp_path), "seed": 1, "tokens_per_sample": 32, option: True}
    caplog.set_level("INFO")
    tasks.setup_task(OmegaConf.create(options)).load_dataset("train")
    [record] = [record for record in caplog.records if " documents" in record.getMessage()]
    assert f"hold {count} documents" in record.getMessage()
    assert record.levelname == ("INFO" if count == 20 else "WARNING")
