"""Expressions such as ``absolute+tisa``, and the sum of the schemes of an expression."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FieldError, check_value, suggestion
from ..terms import Terms, Window
from .base import REGISTRY, GeneralOptions, Scheme, Settings, option_fields, scheme_options


def parse(expression: str) -> list[type[Scheme]]:
    """``"absolute+tisa"`` -> the scheme classes, in the order given.

    Raises:
        InputError: an unknown name (the nearest known ones are named), or a composition without meaning.
    """
    names = [name.strip() for name in expression.split("+")]
    for name in names:
        if name not in REGISTRY:
            raise FieldError(
                f"unknown positional encoding {name!r} in `positions` {expression!r}: {suggestion(name, REGISTRY)}"
                f"Known are {', '.join(sorted(REGISTRY))}, and sums of them such as absolute+tisa"
            )
    for name in names:
        if names.count(name) > 1:
            raise FieldError(f"`positions` {expression!r} names {name!r} twice; name each scheme once")
    if "none" in names and len(names) > 1:
        raise FieldError(f"`positions` {expression!r}: 'none' means no position information and cannot be part of a sum")
    return [REGISTRY[name] for name in names]


class Positions(nn.Module):
    """The sum of the schemes of an expression. ``positions.tisa`` is the scheme of that name.

    Args:
        expression: names of schemes joined by ``+``.
        settings: the model around it; its ``options`` are replaced by ``options``.
        options: values by full name (``max_relative_position``, ``tisa_kernels``, …); ``None`` means the default.

    Raises:
        InputError: an unknown scheme or option, an option that means nothing to these schemes, a bad value, or a composition
            without meaning.
    """

    def __init__(self, expression: str, settings: Settings, options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.expression = expression
        classes = parse(expression)
        values = _check_options(options or {})
        general = GeneralOptions(**{f.name: values[f.name] for f in dataclasses.fields(GeneralOptions) if f.name in values})
        factor = general.position_scale_factor or max(scheme.scale_factor for scheme in classes)
        names = frozenset(scheme.name for scheme in classes)
        self.settings = dataclasses.replace(settings, options=general, factor=factor, schemes=names)
        for scheme in classes:
            own_values = {f.name: values[full] for full, f in scheme_options(scheme).items() if full in values}
            self.add_module(scheme.name, scheme(self.settings, scheme.Options(**own_values)))
        self._has_content = self._join().content
        self._refuse_idle(values)

    @property
    def schemes(self) -> list[Scheme]:
        return list(self.children())  # type: ignore[arg-type]

    @property
    def inductive(self) -> bool:
        return all(scheme.takes_any_length for scheme in self.schemes)

    @property
    def max_length(self) -> int | None:
        """The number of tokens of the longest sequence; None if any length is possible."""
        return None if self.inductive else self.settings.max_positions

    @property
    def terms_are_invariant(self) -> bool:
        """Whether the terms stay the same where all positions are moved by the same amount."""
        return all(
            scheme.translation_invariant or not (scheme.reads_input or type(scheme).layer_terms is not Scheme.layer_terms)
            for scheme in self.schemes
        )

    @property
    def effective_options(self) -> dict[str, Any]:
        """Every option that means something here, by full name, with its value, given or default.

        Where schemes choose a general option differently, its value is a dictionary by scheme.
        """
        general: dict[str, dict[str, Any]] = {}
        if self._has_content:
            general["position_scale_factor"] = {"": self.settings.factor}
        for scheme in self.schemes:
            for name, value in scheme.general_options.items():
                general.setdefault(name, {})[scheme.name] = value
        options = {name: value for scheme in self.schemes for name, value in scheme.own_options.items()}
        for name, by_scheme in general.items():
            first, *others = by_scheme.values()
            options[name] = first if all(other == first for other in others) else by_scheme
        return options

    @property
    def complete_options(self) -> dict[str, Any]:
        """Options that make the same positions again, whatever the defaults become: the schemes' own, and what was given."""
        given = dataclasses.asdict(self.settings.options)
        own = {name: value for scheme in self.schemes for name, value in scheme.own_options.items()}
        return {name: given[name] for name in self.effective_options if given.get(name) is not None} | own

    def embed(self, window: Window, tokens: Tensor | None) -> Tensor | None:
        """(B or 1, Q, D): the sum of what the schemes add to the word embeddings of the tokens (B, Q), if there are any."""
        embedded = [scheme.embed(window, tokens) for scheme in self.schemes]
        parts = [e for e in embedded if e is not None]
        return sum(parts[1:], start=parts[0]) if parts else None

    def terms(self, window: Window) -> LayerTerms:
        """The terms of the layers in one forward pass."""
        parts = [scheme.layer_terms(window) for scheme in self.schemes if not scheme.reads_input]
        layers = max([1, *map(len, parts)])
        fixed = [
            Terms.sum([part[layer if len(part) > 1 else 0] for part in parts], self.settings.factor) for layer in range(layers)
        ]
        return LayerTerms(self, window, fixed)

    def probe(self) -> Terms:
        """Terms of made-up tokens, to see which kinds there are."""
        return Terms.sum(self._probe_schemes(), self.settings.factor)

    def _probe_schemes(self) -> list[Terms]:
        like = next(self.parameters(), torch.zeros(()))
        window = Window(min(2, self.settings.max_positions), device=like.device, dtype=like.dtype)
        with torch.no_grad():
            x = like.new_zeros(1, window.keys, self.settings.dim)
            return [
                scheme.input_terms(0, window, x) if scheme.reads_input else scheme.layer_terms(window)[0]
                for scheme in self.schemes
            ]

    def _join(self) -> Terms:
        try:
            parts = self._probe_schemes()
            for i, scheme in enumerate(self.schemes):
                scheme.join(parts[:i] + parts[i + 1 :])
            return self.probe()
        except ValueError as error:
            raise FieldError(f"`positions` {self.expression!r}: {error}") from error

    def _refuse_idle(self, given: Mapping[str, Any]) -> None:
        effective = self.effective_options
        for name, value in given.items():
            if name not in effective:
                owner = next((scheme.name for scheme in REGISTRY.values() if name in scheme_options(scheme)), None)
                elsewhere = f", only to {owner}" if owner and owner not in self.settings.schemes else ""
                raise FieldError(
                    f"`{name}` {value} means nothing to `positions` {self.expression}{elsewhere}: leave it out, or correct "
                    "`positions`"
                )


class LayerTerms:
    """The terms of the layers in one forward pass."""

    def __init__(self, positions: Positions, window: Window, fixed: Sequence[Terms]) -> None:
        self._positions = positions
        self._readers = [scheme for scheme in positions.schemes if scheme.reads_input]
        self._window = window
        self._fixed = fixed  # of every layer, or of all: what the schemes have that do not read the layer's input
        self.same = len(fixed) == 1 and fixed[0].projected and not self._readers
        """Whether all layers have the same terms, so that they can share what is computed from them."""

    def of(self, layer: int, x: Tensor) -> Terms:
        """The terms of one layer whose input at the queries is ``x``, (B, Q, D)."""
        fixed = self._of_layer(layer)
        if not self._readers:
            return fixed
        factor = self._positions.settings.factor
        return Terms.sum([fixed, *(scheme.input_terms(layer, self._window, x) for scheme in self._readers)], factor)

    def projected(self, projections: Sequence[Callable[[Terms], Terms]]) -> LayerTerms:
        """The same after each layer's own projection, :meth:`Terms.project`, where there is anything to project."""
        if all(terms.projected for terms in self._fixed):
            return self
        fixed = [project(self._of_layer(layer)) for layer, project in enumerate(projections)]
        return LayerTerms(self._positions, self._window, fixed)

    def cut(self, window: Window) -> LayerTerms:
        """The terms within a smaller window, as :meth:`Terms.cut`."""
        return LayerTerms(self._positions, window, [terms.cut(window) for terms in self._fixed])

    def _of_layer(self, layer: int) -> Terms:
        return self._fixed[layer if len(self._fixed) > 1 else 0]


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    known = option_fields()
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            raise FieldError(f"unknown position option {name!r}: {suggestion(name, known)}fairseq-train --help lists all")
        check_value(name, value, (known[name].type,), known[name].metadata)
    return given
