"""What ZeRO costs against fairseq's own data parallelism (DDP), and how far apart the two train; prints one table.

    python tests/plugin/zero/overhead.py                                   2 processes on a CPU, minutes
    python tests/plugin/zero/overhead.py --processes 8 --bf16 -- --encoder-layers 24 --encoder-embed-dim 1024 \\
        --encoder-ffn-embed-dim 4096 --encoder-attention-heads 16 --tokens-per-sample 512 --max-positions 512 --lr 1e-4

Each way trains the same updates in turn, as often as --repetitions says; times are medians over all updates but the first ten
of each run, and ratios are to DDP. What follows -- goes to fairseq-train, in place of a small model's options. The learning
rate must be one that training is stable with: otherwise rounding grows, and differences say nothing.
"""

import argparse
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from tqdm import tqdm
from training_runs import OPTIONS, SCRIPTS, Training, call, make_english, torchrun

WORDS = 64_000  # what there is
WARM_UP = 10  # updates left out of the times
SMALL = shlex.split("""
    --encoder-layers 4 --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4
    --tokens-per-sample 128 --max-positions 128 --batch-size 4 --lr 5e-4
""")


def ways(processes: int) -> dict[str, tuple]:
    """Name -> the command, up to the data."""
    sharded = {f"ZeRO-{stage}": (*torchrun(processes), "--deepspeed-config", f"zero{stage}") for stage in range(4)}
    return {"DDP": (SCRIPTS / "fairseq-train", "--distributed-world-size", processes), **sharded}


def train(command: tuple, data: Path, updates: int, flags: list[str]) -> Training:
    common = OPTIONS if not torch.cuda.is_available() else [option for option in OPTIONS if option != "--cpu"]
    done = call(*command, data, *common, "--no-save", "--max-update", updates, *flags, timeout=3600)
    if done.returncode:
        sys.exit(done.stdout[-5000:])
    return Training(done.stdout, data)


def difference(found: Training, expected: Training, key: str) -> float:
    """The largest over all updates."""
    return max(abs(found.curve[update][key] - row[key]) for update, row in expected.curve.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("flags", nargs="*", default=SMALL, metavar="-- OPTION", help="of fairseq-train")
    args = parser.parse_args()
    flags = [*args.flags, *(["--bf16"] if args.bf16 else [])]

    runs: dict[str, list[Training]] = {name: [] for name in ways(args.processes)}
    with tempfile.TemporaryDirectory() as folder, tqdm(total=args.repetitions * len(runs), disable=None) as progress:
        data = make_english(Path(folder), WORDS)
        for _ in range(args.repetitions):
            for name, command in ways(args.processes).items():
                progress.set_description(name)
                runs[name].append(train(command, data, args.updates, flags))
                progress.update()

    times = {name: statistics.median(t for run in found for t in run.seconds[WARM_UP:]) for name, found in runs.items()}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{args.processes} processes, {device}, {args.repetitions} × {args.updates} updates: {' '.join(flags)}")
    print(f"{'':8}{'ms per update':>14}{'ratio':>8}{'max |Δ loss|':>14}{'max |Δ gnorm|':>15}")
    for name, (first, *_) in runs.items():
        apart = [difference(first, runs["DDP"][0], key) for key in ("loss", "gnorm")]
        print(f"{name:8}{times[name] * 1000:14.1f}{times[name] / times['DDP']:8.2f}{apart[0]:14.3f}{apart[1]:15.3f}")


if __name__ == "__main__":
    main()
