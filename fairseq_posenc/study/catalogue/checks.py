"""What is checked of a scheme: functions that yield counter-examples, for small models of random weights."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ...base.errors import FieldError, InputError, first_line, lacking
from ...core.attention import BACKENDS, Mask
from ...core.attention.bias import additive_bias
from ...core.attention.call import Call
from ...core.terms import Window
from ...core.transformer import Decoder, DecoderConfig, Encoder, EncoderConfig
from ...core.transformer.cache import Cache

N, LONGER = 11, 600
"""Tokens of a row, and of one that is longer than the tables of the model and than every block of computation."""
SIZES: dict[str, Any] = dict(vocab_size=16, layers=2, dim=32, ffn_dim=32, heads=4)
PAD = 1
EXACT, EXPORTED, HALF = 1e-9, 1e-4, 0.02
"""Greatest differences, as a share of the outputs: in float64, of an export in float32, and in bfloat16."""
CALL = Call(torch.device("cpu"), torch.float64, SIZES["dim"] // SIZES["heads"], N, N)


class NotApplicable(Exception):
    """Raised by a check of what a scheme does not claim; the message is the reason."""


class Remark(str):
    """What a check yields, in place of a counter-example, where the property holds with an exception."""


@dataclass(frozen=True)
class Subject:
    """An expression, the options of its schemes by full name, and how far parameters are moved from their start."""

    expression: str
    options: Mapping[str, Any]
    spread: float = 0.3

    def encoder(self, **sizes: Any) -> Encoder:
        """Return an encoder as :meth:`made`."""
        return self.made(Encoder, EncoderConfig, **sizes)

    def made(self, model: Any, config: Any, **sizes: Any) -> Any:
        """Return a model in float64 for evaluation, always the same; every parameter of its positions is moved at random."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = model(config(**SIZES, **sizes, positions=self.expression, position_options=dict(self.options)))
            for name, parameter in made.double().eval().named_parameters():
                noise = torch.randn_like(parameter)
                parameter.data = parameter.data + self.spread * noise if name.startswith("positions.") else 0.2 * noise
        return made


Check = Callable[[Subject], Iterator[str | None]]
CHECKS: dict[str, Check] = {}
"""By the property: what yields counter-examples; where a scheme has the property None, or a Remark."""


def _check(name: str) -> Callable[[Check], Check]:
    """Register a function as the check of a property; a decorator."""
    return lambda function: CHECKS.setdefault(name, function)


def run(subject: Subject) -> Iterator[tuple[str, bool | None, str]]:
    """Yield each property, whether it holds (None: it need not), and the counter-example or the reason.

    Raises:
        InputError: there is no such scheme or option, or their sum has no meaning.
    """
    try:
        subject.encoder()
    except InputError:
        raise
    except Exception as error:  # of any kind, as schemes may raise
        yield "can be built", False, f"{type(error).__name__}: {first_line(error)}"
        return
    for name, function in CHECKS.items():
        try:
            fault = next(filter(None, function(subject)), None)
            yield name, fault is None or isinstance(fault, Remark), fault or ""
        except NotApplicable as reason:
            yield name, None, str(reason)
        except Exception as error:  # of any kind, as schemes may raise
            yield name, False, f"{type(error).__name__}: {first_line(error)}"


def tokens(n: int = N, rows: int = 3, real: int | None = None) -> Tensor:
    """(rows, n) symbols, ``<s>`` first, and no end of a sentence; from the place ``real`` on, the first row is padding."""
    words = torch.randint(3, SIZES["vocab_size"], (rows, n), generator=torch.Generator().manual_seed(n))
    words[:, 0] = 0
    words[0, n if real is None else real :] = PAD
    return words


def difference(found: Tensor, expected: Tensor, what: str, tolerance: float = EXACT) -> str | None:
    """Return ``what`` and by how much two outputs differ; None if they do not."""
    distance = (found.double() - expected.double()).abs().nan_to_num(torch.inf).max().item() if expected.numel() else 0.0
    return f"{what}: they differ by {distance:.2g}" if distance > tolerance * max(1.0, expected.abs().max().item()) else None


@_check("gradients reach every parameter")
def gradients(subject: Subject) -> Iterator[str | None]:
    """Yield each parameter that no gradient reaches, in all layers and heads."""
    encoder = subject.encoder()
    states = encoder(tokens()).last_hidden_state
    (states * torch.randn(states.shape, generator=torch.Generator().manual_seed(2), dtype=states.dtype)).sum().backward()
    for name, parameter in encoder.positions.named_parameters():
        if parameter.grad is None or not parameter.grad.any():
            yield f"the gradient of {name} is {'missing' if parameter.grad is None else '0'}"
            continue
        for dim, what in enumerate(("layer", "head")):  # where the first dimensions are these, or the first is 1
            sizes = [(SIZES["layers"], SIZES["heads"])[: dim + 1], (1, SIZES["heads"])[: dim + 1]]
            if parameter.shape[: dim + 1] not in sizes:
                continue
            if unused := [k for k, of in enumerate(parameter.grad.movedim(dim, 0)) if not of.any()]:
                yield f"the gradient of {name} is 0 in {what} {unused[0]}"


@_check("equals its reading, pair by pair")
def reading(subject: Subject) -> Iterator[str | None]:
    """Yield the pairs whose bias is not that of the method ``reading`` of a scheme."""
    schemes: list[Any] = [scheme for scheme in subject.encoder().positions.schemes if hasattr(scheme, "reading")]
    if not schemes:
        raise NotApplicable("it has no method reading(layer, i, j)")
    for scheme, layer in itertools.product(schemes, range(SIZES["layers"])):
        terms = list(scheme.layer_terms(Window(N)))
        bias = additive_bias(terms[layer % len(terms)], CALL)
        for i, j in itertools.product(range(N), range(N)):
            found = torch.zeros(()) if bias is None else bias.expand(-1, SIZES["heads"], N, N)[0, :, i, j]
            yield difference(found, scheme.reading(layer, i, j), f"{scheme.name}, layer {layer}, i = {i}, j = {j}")


@_check("padding changes nothing")
def padding(subject: Subject) -> Iterator[str | None]:
    """Yield how states differ beside padding, on either side."""
    encoder, rows = subject.encoder(), tokens()
    for length in (7, 1):
        alone = encoder(rows[:1, :length]).last_hidden_state
        for side, visible in (("right", slice(0, length)), ("left", slice(N - length, N))):
            padded = torch.full_like(rows, PAD)
            padded[:, visible] = rows[:, :length]
            found = encoder(padded).last_hidden_state[:1, visible]
            yield difference(found, alone, f"{length} tokens, alone and with padding on the {side}")


@_check("other documents of a row change nothing")
def documents(subject: Subject) -> Iterator[str | None]:
    """Yield the documents whose states are others in a packed row."""
    encoder, rows = subject.encoder(), tokens()
    rows[:, 4] = 0
    starts = torch.tensor([0] * 4 + [4] * (N - 4)).expand(len(rows), -1)
    whole = encoder(rows, mask=Mask(documents=starts)).last_hidden_state
    for first, last in ((0, 4), (4, N)):
        alone = encoder(rows[:, first:last]).last_hidden_state
        yield difference(whole[:, first:last], alone, f"tokens {first} to {last - 1}, alone and in a packed row")


@_check("half precision stays near")
def half_precision(subject: Subject) -> Iterator[str | None]:
    """Yield how far the states in bfloat16 are from those in float64, if it is far."""
    expected = subject.encoder()(tokens()).last_hidden_state
    found = subject.encoder().bfloat16()(tokens()).last_hidden_state.double()
    share = ((found - expected).square().mean() / expected.square().mean()).sqrt().item()
    yield None if share < HALF else f"in bfloat16, the states differ by {share:.0%} of their size"


@_check("backends agree")
def backends(subject: Subject) -> Iterator[str | None]:
    """Yield the backends whose states or gradients are not those of ``eager``, and a Remark with those that object, and why."""
    probes = subject.encoder().positions.probes()

    def results(name: str) -> dict[str, Tensor | None]:
        encoder = subject.encoder(attention_backend=name)
        leaves = {"embed_tokens": encoder.embed_tokens.weight, **dict(encoder.positions.named_parameters())}
        states = encoder(tokens(real=6)).last_hidden_state
        gradients = torch.autograd.grad(states.square().sum(), list(leaves.values()), allow_unused=True)
        return {"the states": states, **dict(zip(map("the gradient of {}".format, leaves), gradients, strict=True))}

    objections, expected = [], results("eager")
    for name, backend in BACKENDS.items():
        if objection := backend.missing or next(filter(None, (backend.objection(probe, CALL) for probe in probes)), None):
            objections.append(f"not {name}: {objection}")
            continue
        for what, found in results(name).items():
            if found is not None and (wanted := expected[what]) is not None:
                yield difference(found, wanted, f"{what} by {name} and by eager")
    yield Remark("; ".join(objections))


@_check("a decoder sees no future, with and without a cache")
def causal(subject: Subject) -> Iterator[str | None]:
    """Yield what depends on later tokens, or on whether keys are kept in a cache."""
    if unsuited := [scheme.name for scheme in subject.encoder().positions.schemes if not scheme.has_causal_form]:
        raise NotApplicable(f"{' and '.join(unsuited)} has no causal form")
    decoder, rows = subject.made(Decoder, DecoderConfig, cross_attention=False), tokens()
    whole, changed, cache = decoder(rows), rows.clone(), Cache()
    changed[:, 6:] = changed[:, 6:].flip(0).roll(1, 1)
    yield difference(decoder(changed)[:, :6], whole[:, :6], "the first 6 tokens, before different ones")
    steps = torch.cat([decoder(rows[:, :n], cache=cache) for n in (4, 5, N)], dim=1)
    yield difference(steps, whole, "steps with a cache, and the whole")


@_check("takes the lengths that it claims")
def lengths(subject: Subject) -> Iterator[str | None]:
    """Yield the length that fails, or changes the states of the first tokens, or should be refused and is not."""
    short, rows = subject.encoder(max_positions=N), tokens(LONGER, rows=2, real=N)
    if short.positions.max_length is None:
        long, alone = (short(x).last_hidden_state[:1, :N] for x in (rows, rows[:1, :N]))
        yield difference(long, alone, f"in a batch of {LONGER} tokens")
        return
    with suppress(FieldError):
        short(rows[1:, : N + 1])
        yield f"it claims at most {N} positions, and takes {N + 1} tokens"


@_check("depends on offsets alone, if it claims so")
def translation(subject: Subject) -> Iterator[str | None]:
    """Yield how much the states change where all positions are moved."""
    encoder, rows = subject.encoder(max_positions=4 * N), tokens()
    if not encoder.positions.terms_are_invariant or not all(scheme.translation_invariant for scheme in encoder.positions.schemes):
        raise NotApplicable("it does not claim so")
    places = torch.arange(N)[None]
    found, expected = (encoder(rows, position_ids=places + shift).last_hidden_state for shift in (2 * N, N))
    yield difference(found, expected, f"positions from {2 * N} and from {N} on")


@_check("an export for transformers gives equal outputs")
def export(subject: Subject) -> Iterator[str | None]:
    """Yield how much the states of an export, run by the code that was written, differ."""
    if reason := lacking("hf"):
        raise NotApplicable(reason)
    from transformers.utils.logging import disable_progress_bar

    from ...huggingface.assemble import load_exported
    from ...huggingface.modeling import PosencConfig, PosencModel

    disable_progress_bar()
    encoder = subject.encoder().float()
    model = PosencModel(PosencConfig(**vars(encoder.config))).eval()
    model.encoder.load_state_dict(encoder.state_dict())
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        exported = load_exported(Path(folder), PosencModel)
    rows = tokens(real=6)
    real = rows.ne(PAD)
    found, expected = (model(rows, mask).last_hidden_state[real] for model, mask in ((exported, real.long()), (encoder, ~real)))
    yield difference(found, expected, "the exported model and the original", EXPORTED)
