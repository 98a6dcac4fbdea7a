"""What a scheme is, how it is registered, and which options it has."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType, NoneType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...base.errors import MAX_POSITIONS, FieldError, InputError, value_types
from ..terms import Terms, Window, is_captured

REGISTRY: dict[str, type[Scheme]] = {}
OPTION_TYPES = (int, float, str, bool)
LEAST_TABLE = 512  # whole numbers that a function is computed of
TABLES = 16  # of a scheme, that are kept: one for each function, length (a power of two), device and type


def option(help: str, default: Any, **limits: Any) -> Any:
    """Declare an option of a scheme, and thereby a flag: a field of its ``Options``.

    ``limits`` are ``minimum``, ``maximum`` and ``choices`` as for :func:`check_value`, and the flag's ``metavar``.
    """
    return dataclasses.field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class GeneralOptions:
    """Options of all schemes for which they have a meaning. ``None`` leaves the choice to the scheme."""

    position_share_heads: bool | None = option("one set of position parameters for all heads", None)
    position_share_layers: bool | None = option("one set of position parameters for all layers", None)
    max_relative_position: int | None = option("clip offsets at -k and k", None, minimum=0, maximum=MAX_POSITIONS, metavar="k")
    position_scale_factor: float | None = option(
        "f of the scale 1/sqrt(f d) of the attention scores", None, minimum=1e-6, maximum=1e6, metavar="f"
    )
    position_log_n: str | None = option(
        "multiply queries by s ln n, with n keys and a learned s (ssmax), or by 1 + beta ln(1 + floor(n / n0)) (floor)", None,
        choices=("ssmax", "floor"),
    )  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The sizes and options of the model that a scheme is part of."""

    layers: int
    heads: int
    dim: int  # D, of the layers: heads times the head dimension
    max_positions: int
    separator: int | None = None  # the token that ends a sentence, for schemes that count within one
    embed_dim: int | None = None  # of the word embeddings, where that is not D
    options: GeneralOptions = GeneralOptions()
    factor: float = 1.0  # f of the scale s = 1/sqrt(f·d); set by the composition
    schemes: frozenset[str] = frozenset()  # the names of all schemes of the expression; set by the composition
    window: int | None = None  # how many places to either side a query sees; set by the composition

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def reset(self) -> bool:
        """Whether [CLS] has rows of its own in relative tables."""
        return "reset" in self.schemes

    @property
    def embedding_dim(self) -> int:
        """Width of what is added to word embeddings."""
        return self.dim if self.embed_dim is None else self.embed_dim

    @property
    def scale(self) -> float:
        """s = 1/sqrt(f·d)."""
        return 1 / math.sqrt(self.factor * self.head_dim)


class Scheme(nn.Module):
    """A positional-encoding scheme: one way to represent word order in a transformer.

    A subclass is one file: it declares itself by the class attributes below, makes its parameters in ``__init__`` and turns
    them into terms in :meth:`layer_terms` (or :meth:`embed`, or :meth:`input_terms`).

    Of its parameters, those in :attr:`decays` decay also with ``--no-decay positions``: linear maps, as all of a model do, and
    what decays in the source's code. Tables, biases and scales do not.
    """

    name: ClassVar[str]  # in expressions, in parameter names and, with "_", before the names of its options
    equation: ClassVar[str]
    source: ClassVar[str]
    family: ClassVar[str] = "of your own"  # what the scheme is listed with
    advice: ClassVar[str] = ""  # what it is good for, in one line
    inductive: ClassVar[bool] = True  # takes any length at any time, the same parameters agreeing on the common part
    data_driven: ClassVar[bool] = True  # learns its positions
    translation_invariant: ClassVar[bool] = True  # depends on j - i alone
    interpretable: ClassVar[bool] = True  # can be drawn as scores against offsets or positions
    parallelisable: ClassVar[bool] = True  # all positions at once, no recursion along the sequence
    keeps_float32: ClassVar[bool] = False  # rounding parameters once would change far positions much, as in p·θ
    alone: ClassVar[bool] = True  # means something without another scheme
    has_causal_form: bool = True  # with which a cache of keys agrees
    reads_input: bool = False  # has its terms from :meth:`input_terms`
    reads_past: ClassVar[bool] = False  # the input at the keys, not at the queries alone
    decays: ClassVar[tuple[str, ...]] = ()  # names of parameters, and of modules whose weight, that weight decay shrinks
    position_vectors: ClassVar[tuple[str, ...]] = ()  # names of tables (…, n, width) with a vector per position
    share_heads: ClassVar[bool] = False  # the source's own choice, where no option is given
    share_layers: ClassVar[bool] = False
    scale_factor: ClassVar[float] = 1.0  # the source's own f
    honours: ClassVar[tuple[str, ...]] = ("position_share_layers", "position_share_heads")  # general options with a meaning

    @dataclass(frozen=True)
    class Options:
        """Options of this scheme alone; the option ``x`` of the scheme ``tisa`` is called ``tisa_x`` outside."""

    def __init__(self, settings: Settings, options: Any) -> None:
        super().__init__()
        self.settings = settings
        self.options = options
        self._kept_tables: dict[tuple[Any, ...], Tensor] = {}

    @property
    def takes_any_length(self) -> bool:
        """Whether the scheme is inductive, possibly because of its options."""
        return self.inductive

    def embed(self, window: Window, tokens: Tensor | None) -> Tensor | None:
        """(B or 1, Q, D) to be added to the word embeddings of the tokens (B, Q), if there are any, or None."""
        return None

    def layer_terms(self, window: Window) -> Sequence[Terms]:
        """The terms of every layer, or of one layer if all have the same. Called once per forward pass."""
        return (Terms(),)

    def input_terms(self, layer: int, window: Window, x: Tensor) -> Terms:
        """The terms of one layer whose attention's input is ``x``. Called where ``reads_input``.

        Args:
            layer: its number.
            window: the queries and keys.
            x: (B, Q, D), at the queries, or (B, K, D), at the keys, where ``reads_past``.
        """
        raise NotImplementedError

    def join(self, others: Sequence[Terms]) -> None:
        """Take account of the terms that the other schemes of the expression have; called once, at construction.

        Raises:
            InputError: this scheme has no meaning together with them.
        """

    def row_of(self, layer: int) -> int:
        """The place of a layer in the parameters, which all layers may share."""
        return min(layer, self.layer_sets - 1)

    def by_head(self, x: Tensor) -> Tensor:
        """(…, N, D) -> (…, H, N, d)."""
        return x.unflatten(-1, (self.settings.heads, -1)).transpose(-2, -3)

    def parameter(self, *shape: int, std: float | None = None) -> nn.Parameter:
        """A parameter (layers or 1, heads or 1, *shape), shared as the options or the source have it.

        It is drawn from a normal distribution with the standard deviation ``std``, or uninitialised without one.
        """
        parameter = nn.Parameter(torch.empty(self.layer_sets, self.head_sets, *shape))
        if std is not None:
            nn.init.normal_(parameter, std=std)
        return parameter

    def of_positions(self, function: Callable[[Tensor], Tensor], window: Window) -> Tensor:
        """``function`` of the positions of keys: (K, …), or (B or 1, K, …).

        Its values at whole numbers are kept under the function (a method, or another function that lasts: each lambda is a new
        one), so they must depend on nothing that changes. Apply parameters to the result, or use ``window.positions``.

        Raises:
            InputError: the function reads parameters, which would get no gradient.
        """
        if window.span is None or is_captured():
            return function(window.positions)
        table = self._kept_values(function, 0, window.span, window)
        return table if window.contiguous else table[window.positions]

    def of_offsets(self, function: Callable[[Tensor], Tensor], window: Window) -> Tensor:
        """``function`` of the window's offsets, (R, …), kept as by :meth:`of_positions`."""
        if window.bounds is None or is_captured():
            return function(window.offsets)
        return self._kept_values(function, window.bounds[0], window.bounds[1] + 1, window)

    def _kept_values(self, function: Callable[[Tensor], Tensor], start: int, stop: int, window: Window) -> Tensor:
        """``function`` of the whole numbers from ``start`` to below ``stop``, out of a table that is kept."""
        size = max(LEAST_TABLE, 1 << (max(-start, stop) - 1).bit_length())
        first = -size if start < 0 else 0
        own = function.__func__ if isinstance(function, MethodType) and function.__self__ is self else function  # no cycle
        key = own, first, size, window.device, window.dtype
        if key not in self._kept_tables:
            with torch.inference_mode(False), torch.enable_grad():
                table = function(torch.arange(first, size, device="cpu"))  # since not every device has float64
                if table.requires_grad:
                    raise InputError(
                        f"the scheme {self.name!r} gives of_positions or of_offsets a function of its parameters, whose values "
                        "are kept and would get no gradient: apply parameters to the result"
                    )
                table = table.to(window.device, window.dtype if table.is_floating_point() else None)
            if len(self._kept_tables) == TABLES:
                del self._kept_tables[next(iter(self._kept_tables))]
            self._kept_tables[key] = table
        return self._kept_tables[key][start - first : stop - first]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Scheme:
        """Move or cast the parameters, as all methods of modules do, but not to half precision where they keep float32."""

        def kept(x: Tensor) -> Tensor:
            y = fn(x)
            return x.to(y.device, torch.float32) if y.dtype.itemsize == 2 else y

        return super()._apply(kept if self.keeps_float32 else fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept_tables": {}}

    def general(self, name: str) -> Any:
        """Return the value of a general option: the one given, or the scheme's choice."""
        given = getattr(self.settings.options, name)
        defaults = {
            "position_share_heads": self.share_heads,
            "position_share_layers": self.share_layers,
            "max_relative_position": self.settings.max_positions - 1,
            "position_scale_factor": self.settings.factor,
            "position_log_n": "ssmax",
        }
        return defaults[name] if given is None else given

    @property
    def layer_sets(self) -> int:
        """Sets of parameters over the layers: one for each, or one for all."""
        return 1 if self.general("position_share_layers") else self.settings.layers

    @property
    def head_sets(self) -> int:
        """Sets of parameters over the heads: one for each, or one for all."""
        return 1 if self.general("position_share_heads") else self.settings.heads

    @property
    def own_options(self) -> dict[str, Any]:
        """The values of the scheme's own options by full name, given or default."""
        return {name: getattr(self.options, field.name) for name, field in scheme_options(type(self)).items()}

    @property
    def general_options(self) -> dict[str, Any]:
        """The values of the general options that mean something here, given or the scheme's choice."""
        return {name: self.general(name) for name in self.honours}

    def require_whole(self, window: Window) -> int:
        """Refuse positions that are no whole numbers, and return the number that they are below.

        Raises:
            FieldError: some may be between whole numbers.
        """
        if window.span is None:
            raise FieldError(
                f"the scheme {self.name!r} has tables, which have no rows between two positions: it takes whole numbers only"
            )
        return window.span

    def require_rows(self, window: Window) -> int:
        """Refuse positions beyond the tables, and return the number that they are below.

        Raises:
            FieldError: a position is beyond the tables, or no whole number; the message names the field to raise.
        """
        n = self.require_whole(window)
        if n > self.settings.max_positions:
            raise FieldError(
                f"a sequence of {n} {'tokens' if window.contiguous else 'positions'} is longer than the "
                f"{self.settings.max_positions} positions of the scheme {self.name!r}, which learns one vector or scalar for "
                "each: raise `max_positions` (and train again), shorten the sequences, or use an inductive scheme"
            )
        return n

    def rows_of(self, table: Tensor, window: Window) -> Tensor:
        """The rows of all keys: (…, n, d) -> (…, B or 1, K, d)."""
        return table[..., None, : window.keys, :] if window.contiguous else table[..., window.positions, :]

    def extra_repr(self) -> str:
        return f"{self.name}, {sum(p.numel() for p in self.parameters(recurse=False)):,} parameters"


def register(scheme: type[Scheme]) -> type[Scheme]:
    """Register a scheme class under its name, and make its ``Options`` a frozen dataclass; a decorator.

    Raises:
        InputError: another has its name, or an option cannot become a flag.
    """
    if scheme.name in REGISTRY:
        raise InputError(f"two schemes are called {scheme.name!r}: {REGISTRY[scheme.name]} and {scheme}")
    if "__dataclass_fields__" not in vars(scheme.Options):
        dataclass(frozen=True)(scheme.Options)
    scheme_options(scheme)
    REGISTRY[scheme.name] = scheme
    return scheme


def option_fields() -> dict[str, dataclasses.Field[Any]]:
    """Every option of every scheme and the general ones: full name -> dataclass field (default, metadata, plain type)."""
    groups = [_plain_fields(GeneralOptions, ""), *(scheme_options(scheme) for _, scheme in sorted(REGISTRY.items()))]
    return {name: declared for fields in groups for name, declared in fields.items()}


def scheme_options(scheme: type[Scheme]) -> dict[str, dataclasses.Field[Any]]:
    """The options of one scheme, as :func:`option_fields` has them.

    Raises:
        InputError: an option has no help, or is not of a type that a flag can have.
    """
    return _plain_fields(scheme.Options, f"{scheme.name}_")


@functools.cache
def _plain_fields(options: type, prefix: str) -> dict[str, dataclasses.Field[Any]]:
    """A dataclass's fields with the types that their values have: ``int`` for an option declared as ``int | None``."""
    plain, kinds = {}, value_types(options)
    for declared in dataclasses.fields(options):
        name = prefix + declared.name
        types = [kind for kind in kinds[declared.name] if kind is not NoneType]
        if len(types) != 1 or types[0] not in OPTION_TYPES:
            raise InputError(f"the option {name} must be one of int, float, str or bool (or None): {declared.type}")
        if "help" not in declared.metadata:
            raise InputError(f'the option {name} has no help: declare it as option("…", default)')
        plain[name] = copy.copy(declared)
        plain[name].type = types[0]
    return plain
