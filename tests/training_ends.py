"""Trains N times for an update, each time in a process of its own that ends within the epoch; prints their exit statuses.

    python tests/training_ends.py N DATA OPTION …

The processes are forked from one in which all is imported. Collating is slowed down within PyTorch, so that the thread that
reads ahead is there when the process ends.
"""

import os
import sys
from collections import Counter

import torch
import torch._dynamo  # every optimizer imports it: once here, rather than in each process
from fairseq import options
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils
from fairseq_cli import train

collate_tokens = data_utils.collate_tokens


def collate_slowly(*args, **kwargs):
    for _ in range(50):
        torch.ones(200_000).cumsum(0)
    return collate_tokens(*args, **kwargs)


def main() -> None:
    data_utils.collate_tokens = collate_slowly
    number, *arguments = sys.argv[1:]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))
    statuses: Counter[int] = Counter()
    for _ in range(int(number)):
        child = os.fork()
        if not child:
            utils.call_main(config, train.main)
            return  # to the end of the interpreter, which os._exit would not reach
        statuses[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
    print(dict(statuses))


if __name__ == "__main__":
    main()
