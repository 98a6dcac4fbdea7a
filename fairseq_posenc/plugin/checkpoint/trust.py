"""What is built because a checkpoint's configuration names it.

fairseq builds the model, task, criterion and tokenizer that a file names, from values in the same file, and many of its models
evaluate such values as Python, or open or fetch further files. So each name is looked up here first: in :data:`OURS` by the
commands of this package, in :data:`STOCK` by those of fairseq.
"""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from importlib import import_module, util
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ...base.errors import InputError
from .stand_ins import has_fairseq

TRUSTED = "FAIRSEQ_POSENC_TRUST"
"""The environment variable that names files, or folders of files, from which fairseq's commands may build anything."""

OURS = frozenset({"roberta"})
"""Models that the commands of this package build, in addition to its own."""

STOCK: dict[str, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        "model": """
            bart camembert cmlm_transformer convtransformer fastspeech2 gottbert hf_gpt2 insertion_transformer
            iterative_nonautoregressive_transformer levenshtein_transformer lightconv lstm lstm_lm masked_lm
            model_parallel_roberta model_parallel_transformer model_parallel_transformer_lm multilingual_transformer
            nacrf_transformer nonautoregressive_transformer roberta s2spect_transformer s2t_berard s2t_conformer
            s2t_transformer s2ut_conformer s2ut_transformer tacotron_2 transformer transformer_align transformer_lm
            tts_transformer xlmr xmod
        """,
        "task": """
            cross_lingual_lm denoising language_modeling legacy_masked_lm masked_lm multilingual_denoising
            multilingual_language_modeling multilingual_masked_lm multilingual_translation online_backtranslation
            semisupervised_translation sentence_prediction sentence_prediction_adapters sentence_ranking speech_to_speech
            speech_to_text text_to_speech translation translation_from_pretrained_bart translation_from_pretrained_xlm
            translation_lev translation_multi_simple_epoch
        """,
        "criterion": """
            adaptive_loss cross_entropy fastspeech2 label_smoothed_cross_entropy label_smoothed_cross_entropy_with_alignment
            label_smoothed_cross_entropy_with_ctc latency_augmented_label_smoothed_cross_entropy legacy_masked_lm_loss masked_lm
            nat_loss sentence_prediction sentence_prediction_adapters sentence_ranking speech_to_spectrogram speech_to_unit
            tacotron2 vocab_parallel_cross_entropy
        """,
        "bpe": "bert byte_bpe bytes characters fastbpe gpt2 hf_byte_bpe sentencepiece subword_nmt",
        "tokenizer": "moses nltk space",
    }.items()
}
"""Classes of fairseq 0.12.2 that only compute with the values in the file, except for :data:`SIDE_EFFECTS`."""

SIDE_EFFECTS = {
    "character_embeddings": "evaluates character_filters as Python",
    "dataset_impl": "has a shell read the data",
    "save_predictions": "overwrites a file",
    "use_plasma_view": "starts a program",
    **dict.fromkeys(
        (
            *("embed_path", "encoder_embed_path", "decoder_embed_path", "pretrained_mlm_checkpoint", "w2v_path"),
            *("load_pretrained_encoder_from", "load_pretrained_decoder_from"),
        ),
        "loads a further file",
    ),
}
"""Options with which listed classes do more than compute, if they are set; of dataset_impl, only fasta does."""

PACKAGE = __name__.partition(".")[0]  # all models, tasks and criterions of this package are listed
FETCHED = ("http", "https", "s3")  # schemes of addresses that fairseq fetches

USER_DIR = "--user-dir"
_IMPORTED: set[str] = set()  # where fairseq is not installed


class Untrusted(InputError):
    """A file names a class that is not built because a file names it."""


def require_ours(model: Any, file: str | os.PathLike) -> None:
    """Raise Untrusted unless these options describe a model of this package or fairseq's RoBERTa that only computes."""
    if reason := _refusal("model", model, OURS):
        raise Untrusted(f"{file} {reason}, so nothing was built: that could run code from the file")


def import_user_dir(path: str | None) -> None:
    """Import the package at ``path``, if any, as fairseq does for ``--user-dir``.

    Raises:
        InputError: there is no such folder, or another package has its name.
    """
    if path is None:
        return
    if not (folder := Path(path).resolve()).is_dir() or "." in folder.name:
        raise InputError(f"--user-dir {path}: there is no such folder, or its name has a dot")
    found = util.find_spec(folder.name)
    if found is not None and folder not in {Path(place).resolve() for place in found.submodule_search_locations or ()}:
        raise InputError(f"--user-dir {path}: another module is called {folder.name}: rename the folder")
    if has_fairseq():
        from fairseq import utils

        utils.import_user_module(Namespace(user_dir=path))
    else:
        sys.path.insert(0, str(folder.parent))
        import_module(folder.name)
        _IMPORTED.add(str(folder))


def user_dir() -> list[str]:
    """Return the flag ``--user-dir`` of this process, if it has imported one, for the processes that it starts."""
    imported = getattr(sys.modules.get("fairseq.utils"), "import_user_module", None)
    packages = (getattr(imported, "memo", set()) | _IMPORTED) - {str(Path(__file__).parents[2])}
    return [part for package in sorted(packages) for part in (USER_DIR, package)]


def require_no_user_dir(words: Iterable[str], file: str | os.PathLike) -> None:
    """Raise Untrusted if flags that a file names include ``--user-dir``, abbreviated or within the value of another flag."""
    for word in (part for given in words for part in (given, given.partition("=")[2])):
        if len(word) > len("--u") and USER_DIR.startswith(word.partition("=")[0]):
            raise Untrusted(
                f"{file} names {word}, which runs the Python of a folder: give {USER_DIR} on the command line, before the command"
            )
        inner = [word]
        with suppress(ValueError):  # a quote is missing
            inner = shlex.split(word)
        if inner != [word]:
            require_no_user_dir(inner, file)


def require_stock(cfg: Any, file: str | os.PathLike, given: Collection[str] = (), trains: bool = False) -> None:
    """Check everything that fairseq will build from a file.

    Args:
        file: where it comes from.
        given: kinds that are not built from the file.
        trains: whether the file has flags of fairseq-train; classes that the user has imported are then allowed.

    Raises:
        Untrusted: something is not listed, or does more than compute; the message explains how to allow it.
    """
    path = Path(file).resolve()
    trusted = [Path(name).resolve() for name in os.environ.get(TRUSTED, "").split(os.pathsep) if name]
    if not {path, *path.parents}.isdisjoint(trusted):
        return
    for kind in (kind for kind in (*STOCK, *(("common", "dataset") if trains else ())) if kind not in given):
        if reason := _refusal(kind, getattr(cfg, kind, None), STOCK.get(kind, frozenset()), trains):
            raise Untrusted(
                f"{file} {reason}, so nothing was built: that could run code from the file. If you trust the file, allow it by "
                f"{TRUSTED}={file} in the environment."
            )


def _refusal(kind: str, section: Any, listed: frozenset[str], trains: bool = False) -> str | None:
    """Return why a section of a configuration is not built; None if it is."""
    from fairseq.data.encoders.gpt2_bpe import DEFAULT_ENCODER_JSON, DEFAULT_VOCAB_BPE

    options = ("_name", "arch" if kind == "model" else kind)  # where fairseq looks for a name
    names = [section] if isinstance(section, str) else [getattr(section, option, None) for option in options]
    names = [str(name) for name in names if name is not None]
    if kind == "model" and not names:
        return "names no model"  # fairseq would look for one in other places
    for name in names:
        if not _is_listed(kind, name, listed, trains):
            return f"names the {kind} {name!r}, which is not on the list of what a file may have built"
    for name, value in _values(section):
        if name in SIDE_EFFECTS and value and (name != "dataset_impl" or value == "fasta"):
            return f"sets {name} of the {kind}, with which fairseq {SIDE_EFFECTS[name]}"
        if isinstance(value, str) and value not in (DEFAULT_ENCODER_JSON, DEFAULT_VOCAB_BPE):
            with suppress(ValueError):  # which fairseq would raise as well
                if urlparse(value).scheme in FETCHED:
                    return f"has the {kind} fetch {value}"
    return None


def _is_listed(kind: str, name: str, listed: frozenset[str], trains: bool) -> bool:
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    if kind == "model":
        name, classes = ARCH_MODEL_NAME_REGISTRY.get(name, name), MODEL_REGISTRY
    else:
        classes = TASK_REGISTRY if kind == "task" else REGISTRIES[kind]["registry"]
    if name not in classes or name in listed:
        return name in classes
    package = classes[name].__module__.partition(".")[0]
    return package == PACKAGE or (trains and package != "fairseq")


def _values(section: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over all options and their values, nested ones included."""
    from omegaconf import OmegaConf

    if OmegaConf.is_config(section):
        section = OmegaConf.to_container(section)
    if isinstance(section, Namespace):
        section = vars(section)
    if isinstance(section, dict):
        for name, value in section.items():
            yield name, value
            yield from _values(value)
    elif isinstance(section, (list, tuple)):
        for value in section:
            yield "", value
            yield from _values(value)
