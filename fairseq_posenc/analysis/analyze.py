"""Show what models learned about position, as one HTML page with pictures and numbers.

A MODEL is a checkpoint of fairseq-train, the folder of a run (its best checkpoint stands for it, and R² is followed along all),
or a Hugging Face model with learned absolute positions, by name or folder. LABEL=MODEL says what it is called in the pictures.

    fairseq-posenc analyze checkpoints/tisa bert=bert-base-uncased --text some.txt --out analysis

Without --text, what the parameters say is shown: position vectors, their effect on the first layer's attention, and functions of
the offset. With it, also the kinds of heads, correlations of words and positions, and probes of attention and hidden states.
Each model takes minutes with a text. What was found out about it is kept in DIR/findings, and the same command, with other
models too, goes on from there, also after a kill.
Needs matplotlib and, for the probes, scikit-learn: pip install -e '.[plots,glue]'.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import ownership
from ..errors import InputError
from ..files import atomic_write
from ..output import show

if TYPE_CHECKING:
    from .findings import Findings
    from .pictures import Picture
    from .scores import Score

MAKER = "analyze"  # in the folders' record
CHARACTERS = 2_000_000  # of the text that are read
PAGE, JSON, FIGURES, FINDINGS = "index.html", "analysis.json", "figures", "findings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a checkpoint, a run's folder, or a Hugging Face model")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument("--text", type=Path, metavar="FILE", help="text for the models to read, plain, in UTF-8 (the "
                        "first two million characters)")  # fmt: skip
    parser.add_argument("--length", type=int, default=128, metavar="N", help="tokens of a window of text (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=64, metavar="N", help="windows to read, at most (default: %(default)s)")
    parser.add_argument("--data-bin", type=Path, metavar="DIR", help="the vocabulary of checkpoints (default: the data-bin that "
                        "each was trained on)")  # fmt: skip
    parser.add_argument("--scores", type=Path, metavar="CSV", help="scores of the models, to be compared with R²: columns model, "
                        "score and, for arrows between versions, after")  # fmt: skip


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        InputError, OSError: a model, the text or the scores cannot be used, or the folder cannot be written; says what to do.
    """
    from .figure import require_matplotlib
    from .scores import read_scores
    from .subjects import SHORTEST, label_of, name_of

    require_matplotlib()
    if args.text is not None:
        import sklearn  # noqa: F401 - now, not after minutes of reading
    for name, least in (("length", SHORTEST), ("windows", 2)):
        if getattr(args, name) < least:
            raise InputError(f"--{name} {getattr(args, name)}: at least {least} are needed")
    labels = [label_of(model) for model in args.models]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(f"two models are called {twice}: give each a name of its own, LABEL=MODEL")
    text = None if args.text is None else _read_text(args.text)
    scores = [] if args.scores is None else read_scores(args.scores, labels)
    inputs = [("MODEL", Path(name_of(model))) for model in args.models] + [("--text", args.text), ("--scores", args.scores)]
    with ownership.output(args.out, MAKER, [(flag, path) for flag, path in inputs if path is not None and path.exists()]):
        found = _look_at(args, text)
        _write(args.out, found, scores)


def _look_at(args: argparse.Namespace, text: str | None) -> list[Findings]:
    """What there is to find out about each model, or was found out from the same files: a name on the Hub does not say which."""
    from .findings import examine
    from .kept import file_of, kept
    from .subjects import label_of, name_of, read

    folder, found, files = args.out / FINDINGS, [], set()
    ownership.claim(folder, MAKER)
    for model in args.models:

        def find(model: str = model) -> Findings:
            return examine(read(model, args.data_bin, text is not None), args.length, text, args.windows)

        path = Path(name_of(model))
        if not path.exists():
            found.append(find())
            continue
        settings = {"label": label_of(model), "length": args.length, "windows": args.windows}
        file = file_of(folder, [source for source in (path, args.data_bin, args.text) if source is not None], settings)
        found.append(kept(file, find))
        files.add(file)
    for file in set(folder.glob("*.pt")) - files:
        file.unlink()
    ownership.finish(folder, MAKER)
    return found


def _read_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as stream:
            return stream.read(CHARACTERS)
    except UnicodeDecodeError as error:
        raise InputError(f"--text {path} is not UTF-8 ({error}): name a plain text file") from None


def _write(out: Path, found: Sequence[Findings], scores: Sequence[Score]) -> None:
    from tqdm import tqdm

    from ..runs.record import write_json
    from . import numbers, page
    from .pictures import pictures

    write_json(out / JSON, [numbers.as_json(model) for model in found])
    for name, rows in numbers.TABLES.items():
        _write_csv(out / f"{name}.csv", list(rows(found)))
    ownership.renew(out / FIGURES, MAKER)
    drawn = [_draw(picture, out / FIGURES) for picture in tqdm(pictures(found, scores), desc="drawing", leave=False)]
    page.write(out / PAGE, found, drawn)
    ownership.finish(out / FIGURES, MAKER)
    ownership.finish(out, MAKER)
    for model in found:
        show(f"{model.label}: {model.positions}" + ("" if model.r_squared is None else f", R² {model.r_squared:.4f}"))
    show(out / PAGE)


def _draw(picture: Picture, folder: Path) -> tuple[Picture, bytes, bytes]:
    """Draw it into PNG and PDF files; returns it as PNG, light and dark."""
    import matplotlib

    from .figure import save
    from .page import DARK, LIGHT, png

    files = [folder / f"{picture.name}.{form}" for form in ("png", "pdf")]
    with matplotlib.rc_context(LIGHT):
        figure = picture.draw()
        for file in files:
            save(figure, file)
            figure.set_layout_engine("none")  # found once; it takes longer than the drawing
    with matplotlib.rc_context(DARK):
        return picture, files[0].read_bytes(), png(picture.draw())


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """With every column that any row has."""
    columns = dict.fromkeys(name for row in rows for name in row)
    with atomic_write(path) as stream:
        writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
