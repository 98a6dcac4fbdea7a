"""Layers that differ: ``rope | rope(window=64) | rope(window=64)``, repeated from the first layer to the last."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ...base.errors import FieldError
from ..terms import Window
from .base import Scheme, Settings, scheme_options
from .positions import Positions, Sum, read_sum, require_meaning, sums_of


def build(expression: str, settings: Settings, options: Mapping[str, Any] | None = None) -> Positions:
    """Return the positional encoding of an expression, freshly initialised.

    Raises:
        InputError: as :class:`Positions` and :class:`LayeredPositions`.
    """
    return (LayeredPositions if len(sums_of(expression)) > 1 else Positions)(expression, settings, options)


def same(first: str, second: str, layers: int | None = None) -> bool:
    """Whether two expressions mean the same, whatever the order of their schemes, or mean it in a model with so many layers."""
    sums = ([(set(s.classes), s.options, s.window) for s in map(read_sum, sums_of(e)[:layers])] for e in (first, second))
    return next(sums) == next(sums)


def _embedding(part: Sum) -> dict[str, dict[str, Any]]:
    """What a sum adds to the word embeddings: the options in parentheses by the name of the scheme."""
    added = [scheme for scheme in part.classes if scheme.embed is not Scheme.embed]
    return {scheme.name: {full: part.options.get(full) for full in scheme_options(scheme)} for scheme in added}


class LayeredPositions(Positions):
    """Several sums, of which layer i has the (i mod number)-th; otherwise as :class:`Positions`.

    A model with fewer layers than sums has the first of them. What is added to the word embeddings is the same for all layers, so
    that each sum names it, with the same options. In ``positions.sums[k]``, each layer that has the k-th sum has its own
    parameters.

    Raises:
        InputError: as :class:`Positions`, or only some of the sums add to the embeddings.
    """

    def __init__(self, expression: str, settings: Settings, options: Mapping[str, Any] | None = None) -> None:
        nn.Module.__init__(self)  # this is no sum of schemes itself
        self.expression, self.settings = expression, settings
        parts = sums_of(expression)
        embeds = [_embedding(read_sum(part)) for part in parts]
        if names := {name for one in embeds for name in {**one, **embeds[0]} if one.get(name) != embeds[0].get(name)}:
            raise FieldError(
                f"`positions` {expression!r}: {' and '.join(sorted(names))} is added to the word embeddings, so each alternative "
                "must name it, with the same options"
            )
        sums = []
        for number, part in enumerate(parts[: settings.layers]):
            own = dataclasses.replace(settings, layers=len(range(number, settings.layers, len(parts))))
            sums.append(Positions(part, own, options, refuse_idle=False))
            for name in embeds[0] if number else ():  # the first has them
                delattr(sums[-1], name)
        self.sums: Sequence[Positions] = nn.ModuleList(sums)  # type: ignore[assignment]
        require_meaning({name: value for name, value in (options or {}).items() if value is not None}, self)

    @property
    def alternatives(self) -> list[Positions]:
        return list(self.sums)

    @property
    def schemes(self) -> list[Scheme]:
        return [scheme for part in self.sums for scheme in part.schemes]

    @property
    def terms_are_invariant(self) -> bool:
        return all(part.terms_are_invariant for part in self.sums)

    @property
    def effective_options(self) -> dict[str, Any]:
        """As :attr:`Positions.effective_options`; where alternatives differ, by their expressions."""
        names = dict.fromkeys(name for part in self.sums for name in part.effective_options)
        merged = {}
        for name in names:
            values = {part.expression: part.effective_options[name] for part in self.sums if name in part.effective_options}
            first = next(iter(values.values()))
            merged[name] = first if all(value == first for value in values.values()) else values
        return merged

    @property
    def complete_options(self) -> dict[str, Any]:
        """As :attr:`Positions.complete_options`."""
        return {name: value for part in self.sums for name, value in part.complete_options.items()}

    def embed(self, window: Window, tokens: Tensor | None) -> Tensor | None:
        """As :meth:`Positions.embed`."""
        return self.sums[0].embed(window, tokens)
