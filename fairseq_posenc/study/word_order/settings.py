"""The model of ``fairseq-posenc tasks`` and its training."""

from dataclasses import dataclass

from ...base.commands import option

COUNT = {"minimum": 1, "metavar": "N"}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The setting of a run; what a flag sets is an option.

    Attributes:
        shortest: the shortest sequence in training, unless the task has a longer minimum.
    """

    layers: int = 2
    dim: int = 64
    ffn_dim: int = 256
    heads: int = 4
    warmup: int = 100
    shortest: int = 1
    lengths: int = option("number of lengths in training, from the task's shortest on", 10, **COUNT, maximum=4096)
    updates: int = option("the budget of a run", 4000, **COUNT, maximum=10**7)
    batch_size: int = option("sequences per update", 32, **COUNT, maximum=10**6)
    learning_rate: float = option("Adam's learning rate, after a warm-up", 3e-3, minimum=0.0, maximum=10.0, metavar="LR")


PAPERS = {
    "order": Setting(
        layers=1, dim=256, ffn_dim=512, warmup=0, shortest=31, lengths=1, updates=1000, batch_size=16, learning_rate=1e-4
    )
}
"""The settings of tasks whose setting is fixed: base's head dimension, and the papers' learning rate."""
