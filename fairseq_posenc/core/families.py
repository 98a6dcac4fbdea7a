"""The families of models: the names of architectures, and the size and the expression of each.

A name consists of the family, the scheme and the size: ``roberta_tisa_large``. A further family is one more entry in
:data:`FAMILIES`, and a model in ``models/`` that is registered for it.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NEUTRAL = "posenc"
"""Replaces the scheme's name in architectures whose expression is ``--positions``."""

NAMED = {
    "absolute_m4m": "absolute+m4m",
    "absolute_tisa": "absolute+tisa",
    "bert_ad": "absolute_untied_projection",
    "bert_r": "absolute+t5",
    "m4_reset": "m4+reset",
    "tupe_a": "untied+reset",
    "tupe_a_tie_cls": "untied",
    "tupe_r": "untied+t5+reset",
    "tupe_r_tie_cls": "untied+t5",
}
"""The papers' names for expressions that are not a single scheme, or not by the scheme's name."""
UNORDERED = {"none", "log_n"}
"""Schemes with which alone all orders of the words of an encoder are the same."""


@dataclass(frozen=True)
class Family:
    """Models of one kind."""

    name: str  # the prefix of its architectures' names
    sizes: Mapping[str, Mapping[str, Any]]  # suffix of the name -> options of the model; "" is the base size, the defaults
    options: Mapping[str, Any] = field(default_factory=dict)  # of the models of every size
    causal: bool = False  # whether its models have a decoder, in which schemes need a causal form
    windows: tuple[int | None, ...] = (None,)  # how many places to either side the layers see, alternating; None: all
    expressions: Mapping[str, str] = field(default_factory=dict)  # of schemes for which it is another than that with the windows

    @property
    def model(self) -> str:
        """fairseq's name of the model: that of the neutral architecture of base size."""
        return self.architecture()

    def architecture(self, scheme: str = NEUTRAL, size: str = "") -> str:
        """The name of an architecture."""
        return f"{self.name}_{scheme}{size}"

    def expression(self, scheme: str) -> str:
        """The expression of the positions of a scheme or a sum, for all layers."""
        sums = expressions().get(scheme, scheme)
        if "|" in sums or len(self.windows) == 1:
            return sums
        layers = (sums if window is None else f"{sums}(window={window})" for window in self.windows)
        return self.expressions.get(scheme) or " | ".join(layers)


def _size(prefix: str, layers: int, dim: int, ffn_dim: int, heads: int) -> dict[str, Any]:
    values = {"layers": layers, "embed_dim": dim, "ffn_embed_dim": ffn_dim, "attention_heads": heads}
    return {f"{prefix}{name}": value for name, value in values.items()}


ROBERTA = Family(
    name="roberta",
    sizes={
        "": _size("encoder_", 12, 768, 3072, 12),
        "_large": _size("encoder_", 24, 1024, 4096, 16),
        "_tiny": _size("encoder_", 2, 128, 512, 4),
    },
)
ALBERT = Family(
    name="albert",
    sizes={
        "": _size("encoder_", 12, 768, 3072, 12),
        "_large": _size("encoder_", 24, 1024, 4096, 16),
        "_xlarge": _size("encoder_", 24, 2048, 8192, 16),
        "_xxlarge": _size("encoder_", 12, 4096, 16384, 64),
        "_tiny": _size("encoder_", 2, 128, 512, 4) | dict(embedding_size=32),
    },
    options=dict(
        embedding_size=128,
        encoder_layer_groups=1,
        activation_fn="gelu_accurate",
        dropout=0.0,
        attention_dropout=0.0,
        layer_norm_eps=1e-12,
    ),
)
"""Lan et al. 2020, with the settings of version 2; version 1 has a dropout of 0.1.

It has factorised embeddings, through which the language model's head goes too, and one layer's weights for all layers, of which
each has positional parameters of its own.
"""

MODERNBERT = Family(
    name="modernbert",
    sizes={
        "": _size("encoder_", 22, 768, 1152, 12),
        "_large": _size("encoder_", 28, 1024, 2624, 16),
        "_tiny": _size("encoder_", 3, 128, 168, 4),
    },
    options=dict(
        gated_ffn=True,
        encoder_normalize_before=True,
        no_first_norm=True,
        no_linear_bias=True,
        no_norm_bias=True,
        no_head_bias=True,
        dropout=0.0,
        attention_dropout=0.0,
        initialization="megatron",
    ),
    windows=(None, 64, 64),
    expressions={"rope": "modernbert"},
)
"""Warner et al. 2024: gated feed-forward networks, LayerNorm before each block, no biases, and windows.

Of three layers, one sees all tokens and two see a window. The layers of ``modernbert_rope`` are ModernBERT's own; other schemes
replace the rotations, and have the same windows. ``_tiny`` is about as large as RoBERTa's.
"""

TRANSFORMER = Family(
    name="transformer",
    sizes={
        "": _size("encoder_", 6, 512, 2048, 8) | dict(decoder_layers=6),
        "_big": _size("encoder_", 6, 1024, 4096, 16) | dict(decoder_layers=6, dropout=0.3),
        "_iwslt": _size("encoder_", 6, 512, 1024, 4) | dict(decoder_layers=6),
        "_tiny": _size("encoder_", 2, 128, 256, 4) | dict(decoder_layers=2),
    },
    causal=True,
)
"""Vaswani et al. 2017; ``_iwslt`` is fairseq's size for some hundred thousand sentences."""

TRANSFORMER_LM = Family(
    name="transformer_lm",
    sizes={
        "": _size("decoder_", 6, 512, 2048, 8),
        "_big": _size("decoder_", 12, 1024, 4096, 16),
        "_tiny": _size("decoder_", 2, 128, 256, 4),
    },
    causal=True,
)
FAMILIES = {family.model: family for family in (ROBERTA, ALBERT, MODERNBERT, TRANSFORMER, TRANSFORMER_LM)}
"""By fairseq's name of the model."""


class Architecture(NamedTuple):
    """The family, scheme and size of an architecture."""

    family: Family
    scheme: str
    size: str

    @property
    def name(self) -> str:
        return self.family.architecture(self.scheme, self.size)

    @property
    def expression(self) -> str | None:
        """The expression of its positions; None if it is neutral."""
        return None if self.scheme == NEUTRAL else self.family.expression(self.scheme)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the model."""
        positions = {"positions": self.expression} if self.expression else {}
        return {**self.family.options, **self.family.sizes[self.size], **positions}

    @property
    def has_causal_form(self) -> bool:
        """Whether the scheme can be a decoder's."""
        from .schemes import parse  # here, as it imports PyTorch

        return self.scheme == NEUTRAL or all(part.has_causal_form for part in parse(expressions()[self.scheme]))


def scheme_of(name: str) -> str:
    """Return the scheme of an architecture, as its name has it; other names, such as expressions, are unchanged."""
    known = architectures().get(name)
    return known.scheme if known and known.expression else name


def expression_of(name: str) -> str:
    """Return the expression that an architecture, a scheme in its name, or an expression stands for."""
    scheme = scheme_of(name)
    return expressions().get(scheme, scheme)


def tells_order(expression: str, mask_decoder_steps: int) -> bool:
    """Return whether an encoder with these positions can tell in which order its words are; a decoder always can."""
    names = re.split(r"[+|]", re.sub(r"\([^)]*\)|\s", "", expression))
    return mask_decoder_steps > 0 or "window" in expression or not UNORDERED.issuperset(names)


def known_schemes() -> list[str]:
    """Return the schemes in architectures' names, and those that others have registered and that can be used alone."""
    from .schemes import REGISTRY

    named = {*expressions().values()}
    return [*expressions(), *(name for name, scheme in REGISTRY.items() if scheme.alone and name not in named)]


@functools.cache
def expressions() -> Mapping[str, str]:
    """Return the expression of each scheme in architectures' names, in alphabetical order.

    Every scheme of this package that can be used alone is included, by its own name or by that in :data:`NAMED`.
    """
    from .schemes import REGISTRY  # here, as it imports PyTorch

    derived = {
        name: name
        for name, scheme in REGISTRY.items()
        if scheme.__module__.startswith(f"{__package__}.") and scheme.alone and name not in NAMED.values()
    }
    return dict(sorted((derived | NAMED).items()))


@functools.cache
def architectures() -> Mapping[str, Architecture]:
    """Return every architecture of every family, by its name."""
    return {known.name: known for known in _combinations() if known.has_causal_form or not known.family.causal}


def lacks_causal_form(name: str) -> bool:
    """Return whether an architecture would have this name if its scheme had a causal form."""
    return name not in architectures() and any(known.name == name for known in _combinations())


def _combinations() -> Iterator[Architecture]:
    for family in FAMILIES.values():
        for scheme in (NEUTRAL, *expressions()):
            yield from (Architecture(family, scheme, size) for size in family.sizes)
