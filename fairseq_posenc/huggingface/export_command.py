"""Export a checkpoint to Hugging Face: config, safetensors weights, tokenizer, modelling code and model card.

The folder loads with transformers 4.57 and later, 5 included, where neither fairseq nor this package is installed:

    fairseq-posenc export-hf checkpoints/checkpoint_best.pt --data data-bin --out my-model
    python -c 'from transformers import pipeline
    print(pipeline("fill-mask", "my-model", trust_remote_code=True)("The <mask> is blue."))'

Where one of transformers' own classes has the same equation, the export is of that class and needs no modelling code: RoBERTa,
ALBERT, MPNet, Jina Embeddings v3, ESM, ModernBERT, DeBERTa v2 and others; OPT, GPT-NeoX, Llama and BLOOM for language models; and
Marian, Pegasus, M2M100, BART, mBART and Blenderbot for translation. The releases of transformers that have the class load it.
Before the folder gets its name, both models are run on text of the data-bin. If their outputs differ by more than --tolerance,
nothing is exported.
"""

from dataclasses import dataclass
from pathlib import Path

from ..base.commands import checkpoint_file, existing, option
from ..base.errors import require_extras
from . import TOLERANCE


@dataclass(kw_only=True)
class Options:
    """The flags of ``export-hf``."""

    path: Path = option(
        "a fairseq checkpoint (.pt), or a run's folder", names=("path",), parse=checkpoint_file, metavar="CHECKPOINT"
    )
    out: Path = option("the folder to write", metavar="DIR")
    data: Path | None = option("a data-bin with its dictionary and tokenizer (default: that of the checkpoint's training)", None,
                               names=("--data", "--data-bin"), parse=existing, metavar="DATA_BIN")  # fmt: skip
    head: str | None = option("the classification head to export, or lm for the language model's (default: the only one, "
                              "classification first)", None, metavar="NAME")  # fmt: skip
    tolerance: float = option("greatest allowed difference of an output", TOLERANCE, metavar="D")
    language: str | None = option("the data's languages for the model card, such as en,de", None, metavar="CODES")
    license: str | None = option("the model's licence for the model card, such as mit or cc-by-4.0", None, metavar="NAME")
    remote_code: bool = option("export this project's own class, also where one of transformers is the same model", False)
    no_tokenizer: bool = option("export no tokenizer", False)
    overwrite: bool = option("replace an existing export", False)


def main(options: Options) -> None:
    """Export a checkpoint, and print how much its outputs differ; raises what :func:`.export.export` raises."""
    require_extras("hf")
    from .export import export

    export(options)
