"""A data-bin's tokenizer as a fast tokenizer of transformers: the same text gives the ids that the model was trained on.

Ids are the dictionary's. The tokenizers library has equivalents of sentencepiece's normalisation, its unigram and BPE models and
its treatment of spaces, and of GPT-2's byte-level BPE. :func:`disagreement` compares the result with the original.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, processors
from transformers import PreTrainedTokenizerFast

from ..errors import InputError
from ..vocabulary import MASK, Sentencepiece, Vocabulary, library_errors


def build(vocabulary: Vocabulary, max_length: int) -> PreTrainedTokenizerFast:
    """Return the fast tokenizer of a data-bin.

    Args:
        vocabulary: the data-bin's.
        max_length: tokens to which ``truncation=True`` cuts a text.

    Raises:
        InputError: the tokenizers library has no equivalent of this kind of tokenizer.
    """
    dictionary = vocabulary.dictionary
    try:
        tokenizer = vocabulary.tokenizer.renumbered(dictionary.symbols)
    except InputError as error:
        raise InputError(f"{vocabulary.folder}: {error}: export with --no-tokenizer") from None
    bos, pad, eos, unk = (dictionary[i] for i in (dictionary.bos(), dictionary.pad(), dictionary.eos(), dictionary.unk()))
    # As fairseq's tasks put sentences and pairs together.
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, dictionary.bos()), (eos, dictionary.eos())],
    )
    whole = isinstance(vocabulary.tokenizer, Sentencepiece)  # whose normaliser reads a text with the names of these tokens
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        cls_token=bos,
        eos_token=eos,
        sep_token=eos,
        pad_token=pad,
        unk_token=AddedToken(unk, normalized=whole, special=True),
        mask_token=AddedToken(MASK, lstrip=True, normalized=whole, special=True),  # which replaces a word and the space before it
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )


def save(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the tokenizer's files in a form that transformers 4 and 5 read."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"  # the only name that transformers 4 has
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


def disagreement(tokenizer: PreTrainedTokenizerFast, vocabulary: Vocabulary, texts: Iterable[str]) -> str | None:
    """Return the first text that the tokenizer and the data-bin's own cut differently, with both results; None if they agree.

    Texts that contain the name of a special token are left out: transformers reads the token, and fairseq the text.
    """
    for text in texts:
        if any(token in text for token in tokenizer.all_special_tokens):
            continue
        expected = vocabulary.encode(text).ids.tolist()
        with library_errors(f"the exported tokenizer cannot cut {text[:80]!r}"):
            fast = tokenizer(text, add_special_tokens=False)["input_ids"]
        if expected != fast:
            symbols = (" ".join(vocabulary.dictionary[i] for i in ids) for ids in (expected, fast))
            return "{!r} is {} and becomes {}".format(text, *symbols)
    return None
