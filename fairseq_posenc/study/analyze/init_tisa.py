"""Give a pretrained model TISA, fitted to what its learned positions do, to be fine-tuned without more pretraining.

MODEL is a folder or name of a transformers model (BERT, RoBERTa, ALBERT, ELECTRA's encoder), or a checkpoint of this package,
with learned absolute positions. For each head, F̂_P is what the position vectors add to its scores between average words, and the
S kernels of TISA are fitted to it by least squares, up to a constant (Wennberg & Henter 2021, section 4 and eq. 9-12):

    fairseq-posenc init-tisa albert-base-v2 --kernels 5 --out tisa5/model.pt
    fairseq-posenc init-tisa albert-base-v2 --kernels 5 --replace --out only-tisa5/model.pt
    fairseq-posenc init-tisa albert-base-v2 --kernels 0 --replace --out words/model.pt

The first is the paper's case a), TISA in addition to the position vectors. With --replace, case b), their average is added to
every word embedding instead. The baselines have no kernels: a) the model as it is, b) a bag of words. Fine-tune each with
'fairseq-posenc glue', and compare them with 'fairseq-posenc report'.

The paper's ALBERT has the same weights in all layers. Where each has its own, F̂_P of a layer is that of its queries and keys,
were it the first. In case a) the scores begin with both, the vectors' own effect and its fit. Needs scipy.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.commands import best_checkpoint, existing, option, show
from ...base.errors import InputError, require_extras

if TYPE_CHECKING:
    from torch import Tensor

    from ...core.transformer import Encoder


@dataclass(kw_only=True)
class Options:
    """The flags of ``fairseq-posenc init-tisa``, with their defaults."""

    model: str = option(
        "a checkpoint (.pt), a run's folder, or a transformers model, by folder or name", names=("model",), metavar="MODEL"
    )
    kernels: int = option("per head; 0 for the baseline without TISA", minimum=0, metavar="S")
    replace: bool = option("replace the position vectors by their average", False)
    data_bin: Path | None = option(
        "the folder of a checkpoint's dictionary and tokenizer (default: that of its training)", None, parse=existing
    )
    out: Path = option("the file to write (.pt)", metavar="CHECKPOINT")
    overwrite: bool = option("replace an existing checkpoint", False)


def main(options: Options) -> None:
    """Fit TISA to the model, write the new checkpoint, and print how well each head is fitted.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    require_extras("hf", "glue")
    from ...huggingface.importing import read_encoder, require_free, write_converted
    from ...huggingface.new_positions import convert
    from ...huggingface.source_models import of_checkpoint
    from ...plugin.checkpoint.checkpoint import Checkpoint
    from .embeddings import inseparable

    model, kernels = options.model, options.kernels
    require_free(model, options.out, options.overwrite)
    path = best_checkpoint(Path(model))
    if path.is_file():
        checkpoint = Checkpoint(path, options.data_bin)
        source = of_checkpoint(checkpoint, checkpoint.vocabulary.folder)
        encoder = source.encoder()
    else:
        source, encoder = read_encoder(model)
    if source.config.positions != "absolute":
        raise InputError(f"{model} has the positions {source.config.positions}, and TISA is fitted to learned absolute positions")
    terms = [*([] if options.replace else ["absolute"]), *(["tisa"] if kernels else [])]
    if kernels and (reason := inseparable(encoder)):
        raise InputError(f"{model}: TISA is fitted to the scores of positions alone, and {reason}")
    initial = fitted(encoder, kernels, model) if kernels else {}
    position_options = {**source.config.position_options, **({"tisa_kernels": kernels} if kernels else {})}
    converted = convert(source.config, source.state, "+".join(terms) or "none", position_options, initial=initial)
    write_converted(model, source, converted, options.out, options.overwrite, seed=1)
    show(f"or fine-tune it: fairseq-posenc glue --data GLUE --checkpoint {options.out} --out DIR")


def fitted(encoder: Encoder, kernels: int, name: str) -> dict[str, Tensor]:
    """Return TISA's parameters for an encoder with learned absolute positions, (layers, heads, S) each; print R² per head.

    Args:
        encoder: for evaluation.
        kernels: S, at least 1.
        name: the model's name in messages.

    Raises:
        InputError: the scores are not finite, or have fewer offsets than the kernels have parameters.
    """
    import torch
    from torch import nn
    from tqdm import tqdm

    from .embeddings import positional_scores
    from .regression import fit
    from .toeplitz import r_squared

    n, layers = encoder.config.max_positions, encoder.config.layers
    if 3 * kernels > 2 * n - 1:
        raise InputError(f"--kernels {kernels}: {name} has {n} positions, whose {2 * n - 1} offsets do not determine so many")
    fits = []
    rows = []
    for number, layer in enumerate(tqdm(encoder.layers, desc="layers", dynamic_ncols=True), start=1):
        single = copy.copy(encoder)  # an encoder of that layer alone, which shares its parameters
        single._modules = {**encoder._modules, "layers": nn.ModuleList([layer])}
        single.config = replace(encoder.config, layers=1, layer_groups=0)
        scores: Any = positional_scores(single, n)  # not None, as there are position vectors
        if not scores.isfinite().all():
            raise InputError(f"{name}: in layer {number}, scores of positions are not finite. It is damaged: use another.")
        parameters, r2 = fit(scores, kernels)
        fits.append(parameters)
        pairs = zip(r2.tolist(), r_squared(scores).tolist(), strict=True)
        rows.append(f"  layer {number}: {'  '.join(f'{value:.2f}/{best:.2f}' for value, best in pairs)}")
    show("\n".join([f"R² of f_θ with {kernels} kernels to F̂_P, and of the best function of the offset, per head:", *rows]))
    of_layers = torch.stack([fits[layer * len(fits) // layers] for layer in range(layers)])  # (layers, heads, 3, S)
    return {f"tisa.{name}": of_layers[:, :, i] for i, name in enumerate(("amplitude", "sharpness", "offset"))}
