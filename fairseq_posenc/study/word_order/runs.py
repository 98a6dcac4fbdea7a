"""One run of ``fairseq-posenc tasks``: a small model learns one task, and is tested on shorter and longer sequences."""

import itertools
import math
from collections.abc import Iterable
from threading import Lock
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ...core.transformer import Encoder, EncoderConfig, PositionSampling
from ..engine.grid import Diverged, Progress
from .settings import Setting
from .tasks import FIRST, IGNORED, TASKS, Task

LEARNED = 0.99
POINTS = 40
"""Measurements of the accuracy during training."""
TESTED = 8  # lengths within those of training, and as many beyond
TEST_ROWS = 32
FACTOR = 4  # the longest test sequence in multiples of the longest in training

_one_at_a_time = Lock()


class Learner(nn.Module):
    """A transformer with scores of every symbol at every position."""

    def __init__(self, task: Task, positions: str, setting: Setting, max_positions: int) -> None:
        super().__init__()
        # Before the transformer, so that its values do not depend on the number of positional parameters.
        vocabulary = FIRST + task.symbols
        self.scores = nn.Linear(setting.dim, vocabulary)
        sizes: dict[str, Any] = dict(layers=setting.layers, dim=setting.dim, ffn_dim=setting.ffn_dim, heads=setting.heads)
        expression, _, sampling = positions.partition("@")
        self.sampling = PositionSampling.parse(sampling or None, None)
        span = None if self.sampling is None else self.sampling.span(max_positions)
        sizes |= dict(vocab_size=vocabulary, max_positions=max(max_positions, span or 0), dropout=0.0, attention_dropout=0.0)
        sizes |= dict(positions=expression, position_sampling=sampling or None)
        self.transformer = Encoder(EncoderConfig(**sizes))

    def forward(self, tokens: Tensor, generator: Generator | None = None) -> Tensor:
        """(B, N) -> (B, N, vocabulary). The generator draws positions, where they are drawn."""
        if self.training and self.sampling is not None and generator is not None:
            places = torch.arange(tokens.shape[1])[None]
            states = self.transformer(tokens, position_ids=self.sampling.draw(places, None, generator))
        else:
            states = self.transformer(tokens)
        return self.scores(states.last_hidden_state)


def build(name: str, positions: str, setting: Setting, seed: int) -> Learner:
    """Return a new model. Its parameters other than those of positions are the same for all positions, where shapes agree."""
    task, longest = TASKS[name], longest_test(name, setting)
    with _one_at_a_time:  # the initialisation draws from the generator of the whole process
        torch.manual_seed(seed)
        return Learner(task, positions, setting, longest)


def longest_test(name: str, setting: Setting) -> int:
    """Return the number of tokens of the longest test sequence."""
    task = TASKS[name]
    return _tokens(task, FACTOR * _lengths(task, setting)[-1])


def learn(name: str, positions: str, setting: Setting, seed: int, progress: Progress) -> dict[str, Any]:
    """Train a model until it has learned the task or used up its updates, and test it.

    The batches, each of one length, the test sequences, and the positions that are drawn after ``EXPRESSION@SAMPLING``, depend on
    the task, the setting and the seed alone.

    Returns:
        ``learned``; ``updates``; ``within`` and ``beyond``, the accuracy on sequences drawn independently of the batches, in
        which short ones may also occur; ``curve``, the accuracy within after each further ``every`` updates.

    Raises:
        Diverged: the loss is not finite.
    """
    torch.set_num_threads(1)  # of this thread: the tensors are small, and sums do not depend on the machine
    model, trained = build(name, positions, setting, seed), _lengths(TASKS[name], setting)
    task = TASKS[name].trained_on(trained[-1])
    longer = next(length for length in itertools.count(trained[-1]) if _tokens(task, length) > _tokens(task, trained[-1]))
    test_generator, generator, positions_generator = (
        Generator().manual_seed(number) for number in (10**6 + seed, seed, 2 * 10**6 + seed)
    )
    within, beyond = (
        [task.batch(test_generator, TEST_ROWS, length) for length in lengths]
        for lengths in (_spread(trained), _spread(range(longer, FACTOR * trained[-1] + 1)))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=setting.learning_rate, betas=(0.9, 0.98), fused=True)
    every, curve = max(1, setting.updates // POINTS), list[float]()
    for update in range(1, setting.updates + 1):
        length = trained[int(torch.randint(len(trained), (), generator=generator))]
        tokens, targets = task.batch(generator, setting.batch_size, length)
        for group in optimizer.param_groups:
            group["lr"] = setting.learning_rate * min(1.0, update / max(1, setting.warmup))
        predicted = targets != IGNORED
        loss = F.cross_entropy(model.train()(tokens, positions_generator)[predicted], targets[predicted])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not math.isfinite(loss.item()):
            raise Diverged(f"the loss after {update} updates is {loss.item()}")
        if update % every == 0 or update == setting.updates:
            curve.append(accuracy(model, within))
            progress(f"accuracy {curve[-1]:.2f}", update / setting.updates)
            if curve[-1] >= LEARNED:
                break
    return {
        "learned": curve[-1] >= LEARNED,
        "updates": update,
        "within": curve[-1],
        "beyond": accuracy(model, beyond),
        "every": every,
        "curve": curve,
    }


@torch.no_grad()
def accuracy(model: Learner, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the mean over batches of the share of correct targets."""
    shares = []
    model.eval()
    for tokens, targets in batches:
        predicted = targets != IGNORED
        shares.append((model(tokens).argmax(-1) == targets)[predicted].float().mean())
    return round(torch.stack(shares).mean().item(), 4)


def _lengths(task: Task, setting: Setting) -> range:
    """The lengths in training."""
    shortest = max(task.shortest, setting.shortest)
    return range(shortest, shortest + setting.lengths)


def _tokens(task: Task, length: int) -> int:
    """The number of tokens of a sequence; some tasks round its length."""
    return task.batch(Generator(), 1, length)[0].shape[1]


def _spread(lengths: range) -> list[int]:
    """Up to :data:`TESTED` of these lengths, evenly spread, with both ends."""
    return sorted({lengths[round((len(lengths) - 1) * i / (TESTED - 1))] for i in range(TESTED)})
