"""A data-bin whose files were cut is refused where it is opened, whoever opens it; and what a new epoch changes is read."""

import contextlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, FairseqDataset, ListDataset, data_utils, indexed_dataset
from fairseq.data.iterators import EpochBatchIterator

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.batches.batch_warmup import Groups
from fairseq_posenc.text.data import databin
from fairseq_posenc.text.data.databin import HEADER, MAGIC, VERSION


@pytest.fixture(params=["mmap"])
def prefix(request, tmp_path):
    """Three lines, as fairseq-preprocess writes them."""
    builder = indexed_dataset.make_builder(f"{tmp_path / 'train'}.bin", request.param, vocab_size=100)
    for size in (3, 1, 5):
        builder.add_item(torch.arange(4, 4 + size))
    builder.finalize(f"{tmp_path / 'train'}.idx")
    return tmp_path / "train"


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("prefix", ["mmap", "cached"], indirect=True)
def test_whole_files_open(prefix):
    lines = data_utils.load_indexed_dataset(str(prefix), None)
    if lines.supports_prefetch:
        lines.prefetch(range(3))
    assert [len(lines[i]) for i in range(3)] == [3, 1, 5]


def test_the_header_of_an_index(prefix):
    content = prefix.with_suffix(".idx").read_bytes()
    header = HEADER.unpack(content[: HEADER.size])
    assert header == (MAGIC, VERSION, 8, 3)
    assert len(content) == HEADER.size + 12 * 3


@pytest.mark.parametrize(
    ("suffix", "damage", "message"),
    [
        (".bin", cut, r"train\.bin has 17 bytes, and its \.idx describes 18"),
        (".bin", lambda path: os.truncate(path, 0), r"train\.bin has 0 bytes, and its \.idx describes 18"),
        (".idx", lambda path: path.write_bytes(path.read_bytes()[:18] + bytes(8)), r"train\.bin and \.idx hold nothing"),
        (".idx", cut, r"train\.idx is damaged"),
        (".idx", lambda path: os.truncate(path, 12), r"train\.idx is damaged"),
        (".idx", lambda path: os.truncate(path, 0), r"train\.idx is no index"),
        (".idx", lambda path: path.write_bytes(b"\x00" + path.read_bytes()[1:]), r"train\.idx is no index"),
        (
            ".idx",
            lambda path: path.write_bytes(path.read_bytes()[:17] + b"\xff" + path.read_bytes()[18:]),
            r"train\.idx is damaged",
        ),
        (
            ".idx",
            lambda path: path.write_bytes(path.read_bytes()[:26] + b"\x01" + path.read_bytes()[27:]),
            r"train\.idx is damaged: its items do not follow one another",
        ),
    ],
)
def test_damaged_files_are_named(prefix, suffix, damage, message):
    damage(prefix.with_suffix(suffix))
    with pytest.raises(InputError, match=message):
        data_utils.load_indexed_dataset(str(prefix), None)


def test_ids_beyond_the_dictionary_are_named(prefix):
    dictionary = Dictionary()  # of 4 symbols, where the greatest id is 8
    with pytest.raises(InputError, match=r"train\.bin has the id 8, and its dictionary has 4 symbols.*dict\.txt"):
        data_utils.load_indexed_dataset(str(prefix), dictionary)
    for number in range(5):
        dictionary.add_symbol(f"word{number}")
    assert len(data_utils.load_indexed_dataset(str(prefix), dictionary)) == 3


def write_rows(prefix, dtype, rows, older=False):
    """Both files of a data-bin, byte by byte, in either format."""
    code = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 7: "f8", 8: "u2", 9: "u4", 10: "u8"}
    code = next(number for number, name in code.items() if np.dtype(name) == np.dtype(dtype))
    ids = [np.array(row, dtype) for row in rows]
    prefix.with_suffix(".bin").write_bytes(b"".join((row + 1 if older else row).astype(dtype).tobytes() for row in ids))
    sizes = [len(row) for row in rows]
    places, width, count = np.cumsum([0, *sizes]), np.dtype(dtype).itemsize, len(rows)
    if older:
        content = struct.pack("<8sQQQQQ", b"TNTIDX", 1, code, width, count, count)
        content += struct.pack(f"<{3 * count + 2}q", *range(count + 1), *places, *sizes)
    else:
        content = struct.pack(f"<9sQBQ{count}i{count}q", b"MMIDIDX", 1, code, count, *sizes, *(places[:-1] * width))
    prefix.with_suffix(".idx").write_bytes(content)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        *((name, r"train\.bin has the id -5") for name in ("i2", "i4", "i8")),
        ("f8", r"train\.idx .* float64"),
        *((name, None) for name in ("u1", "u2", "u4", "i4")),
    ],
)
def test_every_id_is_a_whole_number_of_the_dictionary(tmp_path, monkeypatch, dtype, message):
    """However many there are, whoever opens them, and with or without a dictionary."""
    monkeypatch.setattr(databin, "CHECKED_TOGETHER", 64)
    rows, prefix, dictionary = [[4, 5, 2]] * 100, tmp_path / "train", Dictionary()
    dictionary.add_symbol("a"), dictionary.add_symbol("b")
    write_rows(prefix, dtype, rows if message is None else [*rows, [4.5 if dtype == "f8" else -5, 2], [4, 2]])
    for known in (None, dictionary):
        if message is None:
            lines = data_utils.load_indexed_dataset(str(prefix), known)
            assert [lines[i].tolist() for i in (0, 99)] == [[4, 5, 2]] * 2
        else:
            with pytest.raises(InputError, match=message):
                data_utils.load_indexed_dataset(str(prefix), known)
    write_rows(prefix, "i4", [*rows, [6, 2]])
    with pytest.raises(InputError, match=r"train\.bin has the id 6, and its dictionary has 6 symbols"):
        data_utils.load_indexed_dataset(str(prefix), dictionary)


def test_whatever_byte_of_an_index_changes_it_is_named(tmp_path):
    """Version, type, numbers, sizes and places: nothing but a sentence, or the same lines."""
    prefix, rows = tmp_path / "train", [[4, 5, 2], [6, 2], [7, 2]]
    write_rows(prefix, "u2", rows)
    content, passed = prefix.with_suffix(".idx").read_bytes(), 0
    for at in range(len(content)):
        for bit in (1, 64, 128):
            changed = bytearray(content)
            changed[at] ^= bit
            prefix.with_suffix(".idx").write_bytes(changed)
            with contextlib.suppress(InputError):
                lines = data_utils.load_indexed_dataset(str(prefix), None)
                assert lines.sizes.tolist() == [3, 2, 2]
                passed += 1
    assert passed < 0.1 * 3 * len(content)


@pytest.mark.parametrize(("older", "impl"), [(False, "cached"), (False, "lazy"), (True, "mmap"), (True, "huffman")])
def test_a_data_bin_of_another_format_is_named(tmp_path, older, impl):
    write_rows(tmp_path / "train", "u2", [[4, 2]], older)
    kind = "cached" if older else "mmap"
    with pytest.raises(InputError, match=rf"train\.idx is of --dataset-impl {kind}, not {impl}"):
        data_utils.load_indexed_dataset(str(tmp_path / "train"), None, dataset_impl=impl)


class Epochs(FairseqDataset):
    """Six items, each the number of the epoch."""

    epoch = 1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return self.epoch

    def collater(self, samples):
        return samples


def epochs(workers: int) -> EpochBatchIterator:
    data = Epochs()
    return EpochBatchIterator(
        data, data.collater, [[i] for i in range(6)], num_workers=workers, buffer_size=2, reuse_dataloader=True
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_see_the_epoch_and_read_the_same_after_a_resume(workers):
    batches = epochs(workers)
    for epoch in (1, 2):
        read = batches.next_epoch_itr()
        assert [next(read) for _ in range(3)] == [[epoch]] * 3
        state = batches.state_dict()
        assert [*read] == [[epoch]] * 3
    batches = epochs(workers)
    batches.dataset.set_epoch(state["epoch"])
    batches.load_state_dict(state)
    assert [*batches.next_epoch_itr()] == [[2]] * 3
    assert [*batches.next_epoch_itr()] == [[3]] * 6


@pytest.mark.parametrize("read_ahead", [0, 3])
@pytest.mark.parametrize("offset", [6, 14])  # in each half of the epoch
@pytest.mark.parametrize(
    "groups",
    [lambda batches: Groups(batches, 2, True, warmup=0, updates=batches.n // 2),
     lambda batches: Groups(batches, 2, True, warmup=4, updates=batches.n and (batches.n + 2) // 2)],
    ids=["equal", "growing"],
)  # fmt: skip
def test_an_epoch_without_its_last_batch_has_all_others_after_a_resume(groups, offset, read_ahead):
    def twenty_batches():
        data = ListDataset(list(torch.arange(20)))
        return EpochBatchIterator(data, torch.stack, [[i] for i in range(20)], buffer_size=read_ahead, skip_remainder_batch=True)

    whole, before = twenty_batches(), []
    read = groups(whole.next_epoch_itr())
    while whole.n < offset:
        before += next(read)
    state, after = whole.state_dict(), [*read]
    assert len(before) + sum(map(len, after)) == 18
    resumed = twenty_batches()
    resumed.load_state_dict(state)
    assert [*groups(resumed.next_epoch_itr())] == after
    assert whole.end_of_epoch()
    assert resumed.end_of_epoch()


@pytest.mark.parametrize(
    ("batches", "processes", "place"),
    [(33, 2, 8), (33, 1, 16), (33, 4, 4), (66, 1, 32), (11, 1, 5)],
    ids=["same", "one process", "four processes", "smaller batches", "larger batches"],
)
def test_training_resumes_after_the_same_share_of_an_epoch(batches, processes, place):
    """8 of each of two processes, 16 of 33 batches, were read."""

    def epoch(batches, processes):
        data = ListDataset(list(torch.arange(99)))
        return EpochBatchIterator(data, torch.stack, [[i] for i in range(batches)], num_shards=processes)

    before = epoch(33, 2)
    read = before.next_epoch_itr(shuffle=False)
    for _ in range(8):
        next(read)
    after = epoch(batches, processes)
    after.load_state_dict(before.state_dict())
    assert after.iterations_in_epoch == place
    assert next(after.next_epoch_itr(shuffle=False)).item() == place * processes


@pytest.mark.parametrize(("batches", "read", "before", "now"), [(4, 2, 1, 2), (5, 3, 1, 3), (6, 4, 1, 2)])
def test_a_resume_without_the_last_batch_has_one_to_read(batches, read, before, now):
    def epoch(processes):
        data = ListDataset(list(torch.arange(99)))
        given = [[i] for i in range(batches)]
        return EpochBatchIterator(data, torch.stack, given, num_shards=processes, skip_remainder_batch=True)

    first = epoch(before)
    for _, _ in zip(range(read), first.next_epoch_itr(shuffle=False)):  # noqa: B905 - the epoch has more
        pass
    after = epoch(now)
    after.load_state_dict(first.state_dict())
    assert next(after.next_epoch_itr(shuffle=False)) is not None


def test_workers_of_validation_stay():
    batches = epochs(0)
    loaders = [(*batches.next_epoch_itr(set_dataset_epoch=False), batches.dataloader)[-1] for _ in range(2)]
    assert loaders[0] is loaders[1]
