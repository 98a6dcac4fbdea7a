"""Validation of language models on the tokens after blocks, in order and permuted."""

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import setup_task

from fairseq_posenc.plugin.batches.word_order import permuted

FLAGS = "--task language_modeling --arch transformer_lm_rope_tiny --tokens-per-sample 20 --batch-size 4"


def test_the_tokens_before_the_last_of_a_block_change_places():
    visible, groups = torch.arange(40) % 8 != 7, torch.arange(40) // 8
    order = permuted(torch.arange(40), visible, groups, 1)
    assert torch.equal(order, permuted(torch.arange(40), visible, groups, 1))
    assert not torch.equal(order, permuted(torch.arange(40), visible, groups, 2))
    assert torch.equal(order[~visible], torch.arange(40)[~visible])
    assert torch.equal(order // 8, groups)
    assert len({*order.tolist()}) == 40
    assert (order != torch.arange(40)).sum() > 20


def test_samples_are_those_of_validation(data_bin):
    """In order, or permuted, the same in each epoch; a batch counts the tokens that are predicted, which divide the loss."""
    arguments = [str(data_bin), *FLAGS.split(), "--valid-subset", "valid,ordered,permuted"]
    task = setup_task(convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments)).task)
    for split in ("valid", "ordered", "permuted"):
        task.load_dataset(split)
    valid, ordered, permuted = (task.dataset(split) for split in ("valid", "ordered", "permuted"))
    assert len(valid) == len(ordered) == len(permuted)
    for whole, ends, moved in zip(valid, ordered, permuted, strict=True):
        assert torch.equal(ends["source"], whole["source"])
        assert torch.equal(ends["target"], moved["target"])
        predicted = ends["target"] != task.dictionary.pad()
        assert predicted.nonzero().flatten().tolist() == [place for place in (7, 15) if place < len(predicted)]
        assert torch.equal(ends["target"][predicted], whole["target"][predicted])
        assert torch.equal(moved["source"][predicted], whole["source"][predicted])
        assert torch.equal(moved["source"].sort().values, whole["source"].sort().values)
    assert any(not torch.equal(moved["source"], whole["source"]) for moved, whole in zip(permuted, valid, strict=True))
    batch = permuted.collater([permuted[0], permuted[1]])
    assert batch["ntokens"] == 4
    assert permuted.collater([]) == {}
