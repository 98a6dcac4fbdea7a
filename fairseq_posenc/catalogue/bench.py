"""A training step of each architecture beside one of fairseq's stock RoBERTa, in the same run.

Steps of the two models alternate, so that what else the machine does falls on both; printed are the median time, the
median ratio over the pairs, and memory: on a GPU the peak of a step, elsewhere what the forward pass keeps for the
backward pass. Layers have the width of the base size; a ratio hardly depends on their number.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from ..architectures import EXPRESSIONS

STOCK = "roberta_base"
SIZE = dict(encoder_embed_dim=768, encoder_ffn_embed_dim=3072, encoder_attention_heads=12)
SYMBOLS = 1000
MASKED = 0.15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schemes", metavar="A,B", default=",".join(EXPRESSIONS), help="architectures without roberta_")
    parser.add_argument("--layers", type=int, default=2, metavar="L")
    parser.add_argument("--tokens", type=int, default=512, metavar="n", help="length of a sequence")
    parser.add_argument("--batch-size", type=int, default=2, metavar="B", help="sequences a step")
    parser.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="pairs of steps that are timed, after one that is not"
    )
    parser.add_argument("--attention-backend", default="auto")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bf16", action="store_true", help="parameters and activations in bfloat16")
    parser.add_argument("--markdown", action="store_true", help="as a table for a Markdown file")


def main(args: argparse.Namespace) -> None:
    names = args.schemes.split(",")
    for name in names:
        if name not in EXPRESSIONS:
            raise ValueError(f"--schemes: there is no roberta_{name}; there are {', '.join(EXPRESSIONS)}")
    stock = Step(STOCK, args)
    rows = [(STOCK, "", *_describe([stock.run() for _ in range(args.repeats + 1)][1:], None), stock.memory() / 2**20)]
    for name in tqdm(names, desc="benchmark", unit="scheme"):
        step = Step(f"roberta_{name}", args)
        pairs = [(step.run(), stock.run()) for _ in range(args.repeats + 1)][1:]
        own = _describe([mine for mine, _ in pairs], [mine / reference for mine, reference in pairs])
        rows.append((f"roberta_{name}", step.backend, *own, step.memory() / 2**20))
    memory = "peak MiB" if args.device.startswith("cuda") else "kept for backward, MiB"
    width = SIZE["encoder_embed_dim"]
    print(f"{args.layers} layers, D = {width}, batch {args.batch_size} × {args.tokens} tokens, {args.device}, {_kind(args)}")
    header = ("architecture", "backend", "ms a step", "÷ stock", memory)
    print(tabulate(rows, header, "github" if args.markdown else "simple", floatfmt=("", "", ".0f", ".2f", ".0f")))


class Step:
    """One model, its optimizer and a batch: a masked-language-model training step, to be run again and again."""

    def __init__(self, arch: str, args: argparse.Namespace) -> None:
        torch.manual_seed(1)
        self.device = torch.device(args.device)
        self.model = _build(arch, args).to(self.device, torch.bfloat16 if args.bf16 else torch.float32).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.tokens = torch.randint(4, SYMBOLS, (args.batch_size, args.tokens), device=self.device)
        self.masked = torch.rand(self.tokens.shape, device=self.device) < MASKED
        self.masked[:, 0] = True

    @property
    def backend(self) -> str:
        return self.model.encoder.sentence_encoder.backend.name

    def run(self) -> float:
        """One step; its time in milliseconds."""
        self._synchronize()
        start = time.perf_counter()
        self.optimizer.zero_grad()
        self._loss().backward()
        self.optimizer.step()
        self._synchronize()
        return 1e3 * (time.perf_counter() - start)

    def memory(self) -> int:
        """Bytes: the peak of a step on a GPU, elsewhere the distinct storages kept for the backward pass."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.run()
            return torch.cuda.max_memory_allocated(self.device)
        parameters = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in parameters:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self._loss().backward()
        return sum(kept.values())

    def _loss(self) -> Tensor:
        logits, _ = self.model(self.tokens, masked_tokens=self.masked)
        return F.cross_entropy(logits.float(), self.tokens[self.masked])

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _build(arch: str, args: argparse.Namespace) -> nn.Module:
    from fairseq.data import Dictionary
    from fairseq.models import build_model
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

    dictionary = Dictionary()
    for i in range(SYMBOLS):
        dictionary.add_symbol(str(i))
    sizes = dict(SIZE, arch=arch, encoder_layers=args.layers, max_positions=args.tokens)
    own = {} if arch == STOCK else {"attention_backend": args.attention_backend}
    task = MaskedLMTask(MaskedLMConfig(data="", tokens_per_sample=args.tokens), dictionary)
    return build_model(argparse.Namespace(**sizes, **own), task)


def _describe(times: list[float], ratios: list[float] | None) -> tuple[float, float]:
    return statistics.median(times), statistics.median(ratios) if ratios else 1.0


def _kind(args: argparse.Namespace) -> str:
    threads = "" if args.device.startswith("cuda") else f", {torch.get_num_threads()} threads"
    return f"{'bfloat16' if args.bf16 else 'float32'}{threads}, median of {args.repeats}"
