"""Expressions such as ``absolute+tisa`` or ``rope(base=1e4, window=64)``, and the sum of the schemes of an expression."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...base.errors import FieldError, InputError, check_value, suggestion
from ..terms import Convolution, Rotation, Scale, Terms, Window, autocasts, exact
from .base import REGISTRY, GeneralOptions, Scheme, Settings, option_fields, scheme_options
from .log_n import LogN

PATTERNS = {
    "gemma": " | ".join([*["rope(window=511)"] * 5, "rope(base=1e6)"]),
    "modernbert": "rope(base=160000, layout=half) | rope(layout=half, window=64) | rope(layout=half, window=64)",
    "rnope": "rope(window=64) | rope(window=64) | rope(window=64) | none",
}
"""Names of expressions: the alternating layers of Gemma 3 (Gemma Team 2025), whose 512 tokens count the query, and of ModernBERT
(Warner et al. 2024), and global layers without positions after local ones (RNoPE: Yang et al. 2025) with ModernBERT's window."""
WINDOW = "window"
_TERM = re.compile(r"(\w+) *(?:\(([^()]*)\))?")
_PLUS = re.compile(r"\+(?![^()]*\))")  # outside of parentheses


@dataclass(frozen=True)
class Sum:
    """What an expression without ``|`` means.

    Attributes:
        classes: the schemes, in the order given.
        options: those that are given in parentheses, by full name.
        window: how many places to either side a query sees, or None.
    """

    classes: tuple[type[Scheme], ...]
    options: Mapping[str, Any]
    window: int | None


def parse(expression: str) -> list[type[Scheme]]:
    """``"absolute+tisa"`` -> the scheme classes, each once, in the order given.

    Raises:
        InputError: an unknown name (the nearest known ones are named), or a composition without meaning.
    """
    return list(dict.fromkeys(scheme for part in sums_of(expression) for scheme in read_sum(part).classes))


def sums_of(expression: str) -> list[str]:
    """Return the expressions between ``|``, or raise InputError if one of them is empty."""
    parts = [part.strip() for part in PATTERNS.get(expression.strip(), expression).split("|")]
    if "" in parts:
        raise FieldError(f"`positions` {expression!r}: write names of schemes with + or | between")
    return parts


def read_sum(expression: str) -> Sum:
    """Read an expression without ``|``, such as ``"absolute + rope(base=1e4, window=64)"``.

    Raises:
        InputError: as :func:`parse`, or an option in parentheses that the scheme does not have.
    """
    names: list[str] = []
    options: dict[str, Any] = {}
    for text in _PLUS.split(expression):
        if (term := _TERM.fullmatch(text.strip())) is None:
            raise FieldError(f"`positions` {expression!r}: write names of schemes with + between, options as in rope(base=1e4)")
        if (name := term[1]) not in REGISTRY:
            raise FieldError(
                f"unknown positional encoding {name!r} in `positions` {expression!r}: {suggestion(name, REGISTRY)}"
                f"Known are {', '.join(sorted(REGISTRY))}, sums of them such as absolute+tisa, and your own after --user-dir"
            )
        if name in names:
            raise FieldError(f"`positions` {expression!r} names {name!r} twice; name each scheme once")
        names.append(name)
        for setting in filter(None, (term[2] or "").replace(" ", "").split(",")):
            option, _, value = setting.partition("=")
            full = option if option == WINDOW else f"{name}_{option}"
            if full in options:
                raise FieldError(f"`positions` {expression!r} gives {option} twice")
            options[full] = _value(expression, REGISTRY[name], full, value)
    if "none" in names and len(names) > 1:
        raise FieldError(f"`positions` {expression!r}: 'none' means no position information and cannot be part of a sum")
    return Sum(tuple(REGISTRY[name] for name in names), options, window=options.pop(WINDOW, None))


def _value(expression: str, scheme: type[Scheme], name: str, text: str) -> Any:
    """The value of an option in parentheses."""
    declared = scheme_options(scheme)
    known: dict[str, tuple[Any, Any]] = {full: (field.type, field.metadata) for full, field in declared.items()}
    known[WINDOW] = int, {"minimum": 0}
    if name not in known:
        raise FieldError(f"`positions` {expression!r}: there is no option {name}; {suggestion(name, known)}")
    kind, limits = known[name]
    try:
        value = {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
        check_value(name, value, (kind,), limits)
    except FieldError as error:
        raise FieldError(f"`positions` {expression!r}: {error}") from None
    except (KeyError, ValueError):
        raise FieldError(f"`positions` {expression!r}: {name} must be {kind.__name__}, got {text!r}") from None
    return value


class Positions(nn.Module):
    """The sum of the schemes of an expression. ``positions.tisa`` is the scheme of that name.

    Args:
        expression: names of schemes joined by ``+``.
        settings: the model around it; its ``options`` are replaced by ``options``.
        options: values by full name (``max_relative_position``, ``tisa_kernels``, …); ``None`` means the default.
        refuse_idle: whether an option that means nothing to these schemes is an error.

    Raises:
        InputError: an unknown scheme or option, an option that means nothing to these schemes, a bad value, or a composition
            without meaning.
    """

    def __init__(
        self, expression: str, settings: Settings, options: Mapping[str, Any] | None = None, *, refuse_idle: bool = True
    ) -> None:
        super().__init__()
        self.expression = expression
        self._sum = read_sum(expression)
        classes, values = self._sum.classes, _check_options(options or {})
        if "position_log_n" in values:
            classes = tuple(dict.fromkeys((*classes, LogN)))
        general = GeneralOptions(**{f.name: values[f.name] for f in dataclasses.fields(GeneralOptions) if f.name in values})
        factor = general.position_scale_factor or max(scheme.scale_factor for scheme in classes)
        names = frozenset(scheme.name for scheme in classes)
        self.settings = dataclasses.replace(settings, options=general, factor=factor, schemes=names, window=self._sum.window)
        for scheme in classes:
            chosen = {**values, **self._sum.options}
            own_values = {f.name: chosen[full] for full, f in scheme_options(scheme).items() if full in chosen}
            made = scheme(self.settings, scheme.Options(**own_values))
            if made.keeps_float32 and torch.get_default_dtype().itemsize == 2:
                made.float()
            self.add_module(scheme.name, made)
        probe = self._join()
        self._has_content = probe.content
        changes = [change for change in probe.transforms if not isinstance(change, (Convolution, Scale))]
        rotates = any(isinstance(change, Rotation) for change in changes)
        self._rotates_others = rotates and (len(changes) > 1 or bool(probe.vectors))
        if refuse_idle:
            require_meaning(values, self)

    @property
    def schemes(self) -> list[Scheme]:
        return list(self.children())  # type: ignore[arg-type]

    @property
    def alternatives(self) -> list[Positions]:
        """The sums that layers have in turn, of which there is one here."""
        return [self]

    @property
    def inductive(self) -> bool:
        return all(scheme.takes_any_length for scheme in self.schemes)

    @property
    def max_length(self) -> int | None:
        """The number of tokens of the longest sequence; None if any length is possible."""
        return None if self.inductive else self.settings.max_positions

    @property
    def terms_are_invariant(self) -> bool:
        """Whether the scores stay the same where all positions are moved by the same amount.

        They do not where one scheme rotates what another multiplies, shifts or rotates: ``(R_i q)·A_r`` depends on i, and so do
        two rotations that do not commute, as those of adjacent features and of halves.
        """
        return not self._rotates_others and all(
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
        options = self._own_options
        for name, by_scheme in general.items():
            first, *others = by_scheme.values()
            options[name] = first if all(other == first for other in others) else by_scheme
        return options

    @property
    def complete_options(self) -> dict[str, Any]:
        """Options that make the same positions again, whatever the defaults become: the schemes' own, and what was given."""
        given = dataclasses.asdict(self.settings.options)
        return {name: given[name] for name in self.effective_options if given.get(name) is not None} | self._own_options

    @property
    def _own_options(self) -> dict[str, Any]:
        """Those of the schemes, but for what the expression has in parentheses."""
        own = {name: value for scheme in self.schemes for name, value in scheme.own_options.items()}
        return {name: value for name, value in own.items() if name not in self._sum.options}

    def embed(self, window: Window, tokens: Tensor | None) -> Tensor | None:
        """(B or 1, Q, D): the sum of what the schemes add to the word embeddings of the tokens (B, Q), if there are any."""
        with exact(window.device):
            embedded = [scheme.embed(window, tokens) for scheme in self.schemes]
        parts = [e for e in embedded if e is not None]
        return sum(parts[1:], start=parts[0]) if parts else None

    def terms(self, window: Window) -> LayerTerms:
        """The terms of the layers in one forward pass."""
        return LayerTerms(self.alternatives, window, [part.fixed_terms(window) for part in self.alternatives])

    def fixed_terms(self, window: Window) -> list[Terms]:
        """What the schemes have that do not read a layer's input: the terms of every layer, or one for all."""
        with exact(window.device):
            parts = [scheme.layer_terms(window) for scheme in self.schemes if not scheme.reads_input]
        layers = max([1, *map(len, parts)])
        return [self._total([part[layer if len(part) > 1 else 0] for part in parts]) for layer in range(layers)]

    def probes(self) -> list[Terms]:
        """Terms of made-up tokens, of each alternative, to see which kinds there are."""
        return [part._total(part._probe_schemes()) for part in self.alternatives]

    def _total(self, parts: Sequence[Terms]) -> Terms:
        try:
            return Terms.sum([*parts, Terms(window=self._sum.window)], self.settings.factor)
        except ValueError as error:
            raise FieldError(f"`positions` {self.expression!r}: {error}") from error

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
        except InputError as error:
            raise FieldError(f"`positions` {self.expression!r}: {error}") from error
        return self.probes()[0]


def require_meaning(given: Mapping[str, Any], positions: Any) -> None:
    """Refuse options that mean nothing to any scheme of an encoding.

    Raises:
        FieldError: the message names the option.
    """
    for name, value in given.items():
        if name not in positions.effective_options:
            owner = next((scheme.name for scheme in REGISTRY.values() if name in scheme_options(scheme)), None)
            elsewhere = f", only to {owner}" if owner and owner not in {scheme.name for scheme in positions.schemes} else ""
            raise FieldError(
                f"`{name}` {value} means nothing to `positions` {positions.expression}{elsewhere}: leave it out, or correct "
                "`positions`"
            )


Change = Callable[[Tensor], Tensor]
Keep = Callable[[Tensor], tuple[Tensor, ...]]


class LayerTerms:
    """The terms of the layers in one forward pass: layer i has those of the (i mod number)-th sum."""

    def __init__(self, sums: Sequence[Positions], window: Window, fixed: Sequence[list[Terms]]) -> None:
        self._sums = sums
        self._window = window
        self._fixed = fixed  # as fixed_terms of each sum

    def shared(self, terms: Terms) -> bool:
        """Whether other layers may have the same terms, the same object, so that they can share what is computed from it."""
        return any(len(fixed) == 1 and fixed[0] is terms for fixed in self._fixed)

    def of(self, layer: int, x: Tensor, normalise: Change | None = None, at_keys: Keep | None = None) -> Terms:
        """The terms of one layer.

        Args:
            layer: its number.
            x: (B, Q, D), its input at the queries.
            normalise: what it does to its input before attention.
            at_keys: returns the normalised input at the keys, (B, K, D), for that at the queries; by default, they are the same.
        """
        own, number = divmod(layer, len(self._sums))
        positions, fixed = self._sums[number], self._of_layer(layer)
        readers = [scheme for scheme in positions.schemes if scheme.reads_input]
        if not readers:
            return fixed
        x = sum(fixed.inputs, start=x if normalise is None else normalise(x))
        keys = x
        if at_keys is not None and any(scheme.reads_past for scheme in readers):
            (keys,) = at_keys(x)
        parts = []
        for scheme in readers:
            read = keys if scheme.reads_past else x
            if autocasts(x.device):
                read = read.to(next(scheme.parameters(), read).dtype)
            with exact(x.device):
                parts.append(scheme.input_terms(own, self._window, read))
        return positions._total([fixed, *parts])

    def projected(self, projections: Sequence[Callable[[Terms], Terms]]) -> LayerTerms:
        """The same after each layer's own projection, :meth:`Terms.project`, where there is anything to project."""
        fixed = list(self._fixed)
        for number, part in enumerate(fixed):
            if not all(terms.projected for terms in part):
                layers = range(number, len(projections), len(fixed))
                fixed[number] = [projections[layer](self._of_layer(layer)) for layer in layers]
        return LayerTerms(self._sums, self._window, fixed)

    def cut(self, window: Window) -> LayerTerms:
        """The terms within a smaller window, as :meth:`Terms.cut`."""
        return LayerTerms(self._sums, window, [[terms.cut(window) for terms in part] for part in self._fixed])

    def _of_layer(self, layer: int) -> Terms:
        own, number = divmod(layer, len(self._sums))
        return self._fixed[number][own if len(self._fixed[number]) > 1 else 0]


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    known = option_fields()
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            raise FieldError(f"unknown position option {name!r}: {suggestion(name, known)}fairseq-train --help lists all")
        check_value(name, value, (known[name].type,), known[name].metadata)
    return given
