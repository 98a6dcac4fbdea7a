"""Which tokens are trained on, which :mod:`..batches` decides, and the processes and threads that read them."""

import atexit
import dataclasses
import queue

from fairseq import tasks
from fairseq.data import iterators
from fairseq.dataclass.configs import CommonConfig, FairseqConfig, OptimizationConfig
from fairseq.tasks import language_modeling
from hydra.core.config_store import ConfigStore

from ...base.patching import ModuleProxy, wrap
from ..batches import batch_warmup, blocks, epochs, mask_schedule, masked_lm, word_order
from ..run import no_decay, readers, training_log


def cut_long_lines() -> None:
    """Cut lines of more than ``--tokens-per-sample`` tokens into blocks of that length.

    ``--sample-break-mode complete``, ``complete_doc`` and ``eos`` keep a line whole, and fairseq drops blocks that are longer
    than the model's positions, so that models of any length would see other data than the others. Can be removed when fairseq
    cuts long lines.
    """
    tasks.masked_lm.TokenBlockDataset = language_modeling.TokenBlockDataset = blocks.CutLinesBlockDataset


def masked_language_models() -> None:
    """Replace fairseq's task ``masked_lm`` by one with comparable validation losses, faster masks, and words by the tokenizer.

    It also has ``--mask-prob-end``. Can be removed when fairseq's validation masks do not depend on ``--seed``, it draws masks
    once, ``--mask-whole-words`` takes any tokenizer, and it has the option.
    """
    tasks.masked_lm.get_whole_word_mask = masked_lm.WordBeginnings
    tasks.masked_lm.MaskTokensDataset = masked_lm.FastMaskTokensDataset
    del tasks.TASK_REGISTRY["masked_lm"]
    register = tasks.register_task("masked_lm", dataclass=mask_schedule.ScheduledMaskedLMConfig)
    tasks.masked_lm.MaskedLMTask = register(masked_lm.ComparableMaskedLMTask)


def word_order_of_language_models() -> None:
    """Let ``language_modeling`` validate on the tokens after blocks, in order and permuted: see :mod:`..batches.word_order`.

    Can be removed when fairseq measures the use of word order.
    """

    @wrap(language_modeling.LanguageModelingTask, "load_dataset")
    def load(load_dataset, self, split, *args, **kwargs):
        if split not in (word_order.ORDERED, masked_lm.PERMUTED):
            return load_dataset(self, split, *args, **kwargs)
        if masked_lm.VALID not in self.datasets:
            load_dataset(self, masked_lm.VALID, *args, **kwargs)
        permutes = split == masked_lm.PERMUTED
        self.datasets[split] = word_order.BlockEndDataset(self.datasets[masked_lm.VALID], self.dictionary.pad(), permutes)


def own_options() -> None:
    """Add ``--batch-warmup-updates``, ``--no-decay`` and ``--profile-steps``. Can be removed when fairseq has them."""
    for group, module, default in (
        (OptimizationConfig, batch_warmup, 0), (OptimizationConfig, no_decay, ""), (CommonConfig, training_log, ""),
    ):  # fmt: skip
        name, option = module.OPTION, dataclasses.field(default=default, metadata={"help": module.HELP})
        made = dataclasses.make_dataclass("Made", [(name, type(default), option)])
        group.__dataclass_fields__[name] = made.__dataclass_fields__[name]  # type: ignore[attr-defined]
        group.__annotations__[name] = type(default)
        setattr(group, name, default)
    ConfigStore.instance().store(name="config", node=FairseqConfig)


def readers_that_can_end() -> None:
    """Let :func:`.readers.end_readers` end the threads that read batches ahead, and end all of them at exit.

    fairseq leaves them to Python, which ends a daemon thread wherever it is. Inside PyTorch, that aborts the process with status
    -6, although training has ended and saved everything. Can be removed when fairseq ends them.
    """

    @wrap(iterators.BufferedIterator, "_create_consumer")
    def create_and_remember(create_consumer, self):
        create_consumer(self)
        readers.started.add(self._consumer)

    iterators.queue = ModuleProxy(queue, Queue=readers.ClosableQueue)
    atexit.register(lambda: readers.end(set(readers.started)))


def skip_only_the_last_batch() -> None:
    """Leave out the last batch of an epoch (``--skip-remainder-batch``) after a resume within the epoch, too, and no others.

    fairseq takes the number of batches that are left for that of the whole epoch: the epoch loses as many as were read before the
    resume, and it is over, with an error in ``train``, if fewer are left. Can be removed when fairseq adds the two.
    """
    wrap(iterators.EpochBatchIterator, "_get_iterator_for_epoch")(epochs.all_but_the_last)


def workers_of_one_epoch() -> None:
    """Start the processes that read training batches (``--num-workers``) again in every epoch.

    fairseq keeps them, and ``set_epoch`` does not reach their copies of the data. So the masks of a masked language model, which
    depend on the epoch, were those of the first epoch in all epochs, and others after a resume. Can be removed when fairseq
    tells its workers.
    """
    wrap(iterators.EpochBatchIterator, "next_epoch_itr")(epochs.with_new_workers)


def resume_at_the_same_place() -> None:
    """Resume within an epoch after the same share of its batches, by another number of processes, or with other batches.

    fairseq counts the batches of one process, so that some samples of the epoch would be read twice, or not at all. Can be
    removed when fairseq counts those of all.
    """
    wrap(iterators.EpochBatchIterator, "state_dict")(epochs.state_dict)
    wrap(iterators.EpochBatchIterator, "load_state_dict")(epochs.load_state_dict)
