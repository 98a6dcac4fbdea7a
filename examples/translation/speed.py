"""Compare time and memory of training and translating with fairseq's own transformer of the same size, in turn in one process.

    python examples/translation/speed.py --size _iwslt --schemes sinusoidal shaw rope

Parameters and sentences are random, and every translation is --length tokens long. Times are the best of --rounds. Memory is the
peak of an update on CUDA, and elsewhere what the forward pass keeps for the backward pass.
"""

from __future__ import annotations

import argparse
import time
from argparse import Namespace
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig

from fairseq_posenc.core.saved_tensors import saved_bytes
from fairseq_posenc.plugin.models.building import dictionary_of

STOCK = {"": "transformer", "_big": "transformer_wmt_en_de_big", "_iwslt": "transformer_iwslt_de_en", "_tiny": "transformer_tiny"}
FLAGS = {"shaw": {"max_relative_position": 16}}
TINY = {f"{side}_{name}": value for side in ("encoder", "decoder")
        for name, value in dict(layers=2, embed_dim=128, ffn_embed_dim=256, attention_heads=4).items()}  # fmt: skip


def build(arch: str, symbols: int, device: torch.device, options: dict[str, Any]) -> Any:
    """Return the model of an architecture."""
    words = dictionary_of(symbols)
    args = Namespace(share_all_embeddings=True, **options)
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(cfg=TranslationConfig(), source_dictionary=words, target_dictionary=words)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task).to(device)


def loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return a number that depends on all scores of a batch."""
    scores, _ = model.train()(**batch)
    return scores.float().logsumexp(-1).mean()


def train(model: Any, batch: dict[str, torch.Tensor]) -> None:
    """Run a forward and a backward pass."""
    loss(model, batch).backward()
    model.zero_grad(set_to_none=True)


def translate(model: Any, sentences: torch.Tensor, length: int, symbols: int) -> None:
    """Run beam search with a beam of 4, to exactly so many tokens."""
    generator = SequenceGenerator([model], dictionary_of(symbols), beam_size=4, max_len_b=length, min_len=length)
    lengths = torch.full((len(sentences),), sentences.shape[1])
    generator.generate([model], {"net_input": {"src_tokens": sentences, "src_lengths": lengths}})


def seconds(run: Callable[[], None], device: torch.device) -> float:
    """Return the time that a function takes on the device."""
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def memory(model: Any, batch: dict[str, torch.Tensor], device: torch.device) -> float:
    """Return the MB of an update."""
    if device.type != "cuda":
        return saved_bytes(model.parameters(), lambda: loss(model, batch)) / 1e6
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()  # all models' parameters
    train(model, batch)
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="", choices=STOCK)
    parser.add_argument("--schemes", nargs="+", default=["sinusoidal", "shaw", "rope", "t5", "tisa"])
    parser.add_argument("--symbols", type=int, default=8000)
    parser.add_argument("--length", type=int, default=30, help="tokens per sentence (default: %(default)s)")
    parser.add_argument("--sentences", type=int, default=64, help="per batch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models = {"fairseq": build(STOCK[args.size], args.symbols, device, TINY if args.size == "_tiny" else {})}
    for scheme in args.schemes:
        models[scheme] = build(f"transformer_{scheme}{args.size}", args.symbols, device, FLAGS.get(scheme, {}))
    tokens = torch.randint(4, args.symbols, (args.sentences, args.length), device=device)
    batch = {"src_tokens": tokens, "src_lengths": torch.full((args.sentences,), args.length), "prev_output_tokens": tokens}
    taken = {name: memory(model, batch, device) for name, model in models.items()}
    found: dict[str, list[list[float]]] = {name: [] for name in models}
    for _ in range(args.rounds + 1):  # the first warms up
        for name, model in models.items():
            runs = [lambda m=model: train(m, batch)]
            runs += [lambda m=model, n=n: translate(m.eval(), tokens[:n], args.length, args.symbols) for n in (1, args.sentences)]  # type: ignore[misc]
            found[name].append([seconds(run, device) for run in runs])
    print(f"{device.type}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}; ms, and the ratio to fairseq's own\n")
    print(f"| | training, batch of {tokens.numel()} tokens | MB | sentence, alone | sentence, {args.sentences} at once |")
    print("|---|---|---|---|---|")
    best = {name: [min(times) for times in zip(*rounds[1:], strict=True)] for name, rounds in found.items()}
    for name, measured in best.items():
        shown = []
        for time_taken, stock_time, sentences in zip(measured, best["fairseq"], (1, 1, args.sentences), strict=True):
            shown.append(f"{1000 * time_taken / sentences:.1f} ({time_taken / stock_time:.2f})")
        kept = f"{taken[name]:.0f} ({taken[name] / taken['fairseq']:.2f})"
        print(f"| {name} | {shown[0]} | {kept} | {shown[1]} | {shown[2]} |")


if __name__ == "__main__":
    main()
