"""A data-bin's tokenizer as a fast tokenizer of transformers: the same text gives the ids that the model was trained on.

Ids are the dictionary's. The tokenizers library has equivalents of sentencepiece's normalisation, its unigram and BPE models and
its treatment of spaces, and of GPT-2's byte-level BPE. :func:`disagreement` compares the result with the original.
"""

import json
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import AddedToken, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..base.errors import InputError
from ..text.vocabulary import MADE_UP, MASK, Sentencepiece, Vocabulary, library_errors

RAW = unicodedata.normalize(
    "NFD",
    "tiếng Việt ngữ|garçon été Ångström|한국어 값 각|שָׁלוֹם עֲלֵיכֶם|اَلسَّلَامُ عَلَيْكُمْ|हिन्दी क़लम ज़्यादा|กำลังน้ำ|ガギパ|ё Й İSTANBUL ẞ ǅ|"
    "ά ᾳ ᾯ|e\u0301\u0323 e\u0323\u0301 \u0301x|ｆｕｌｌ ｶﾞ ﬁ ½ ™ ㌔|👩\u200d👩\u200d👧 🇩🇪 ✍🏽 ©\u200d ½\ufe0f|"
    "a  b\tc\u00a0d\u3000e|a   b    c     d      |a\u200bb\u200cc\ufeff \u00ad|\ue000 \U000f0000 \x01x \x7f|▁ a▁b ▁▁|"
    "<0x41> ##s Ġa @@|A, b. (C) 'd' \"e\" 1,234.5%",
).split("|")
"""Decomposed letters, marks in several orders, compatibility characters, emoji, white space and control characters."""

TEMPLATES = {"CausalLM": ("{first} $A", "{first} $A {eos} $B"), "Seq2SeqLM": ("$A {eos}", "$A {eos} $B {eos}")}
"""What a text and a pair become for the heads of models that have a decoder."""


def build(vocabulary: Vocabulary, max_length: int, kind: str = "MaskedLM", start: int = 0) -> PreTrainedTokenizerFast:
    """Return the fast tokenizer of a data-bin.

    Args:
        vocabulary: the data-bin's.
        max_length: tokens to which ``truncation=True`` cuts a text.
        kind: of the model's head. Encoders read sentences and pairs between ``<s>`` and ``</s>``, causal models write after
            the symbol ``start``, and models of translation read a sentence and ``</s>``.

    Raises:
        InputError: the tokenizers library has no equivalent of this kind of tokenizer.
    """
    dictionary = vocabulary.dictionary
    try:
        tokenizer = vocabulary.tokenizer.renumbered(dictionary.symbols)
    except InputError as error:
        raise InputError(f"{vocabulary.folder}: {error}: export with --no-tokenizer") from None
    bos, pad, eos, unk = (dictionary[i] for i in (dictionary.bos(), dictionary.pad(), dictionary.eos(), dictionary.unk()))
    first = dictionary[start] if kind == "CausalLM" else bos
    # As fairseq's tasks put sentences and pairs together.
    single, pair = TEMPLATES.get(kind, ("{bos} $A {eos}", "{bos} $A {eos} {eos} $B {eos}"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single.format(bos=bos, eos=eos, first=first),
        pair=pair.format(bos=bos, eos=eos, first=first),
        special_tokens=[(bos, dictionary.bos()), (eos, dictionary.eos())],
    )
    whole = isinstance(vocabulary.tokenizer, Sentencepiece)  # whose normaliser reads a text with the names of these tokens
    mask = AddedToken(MASK, lstrip=True, normalized=whole, special=True)  # which replaces a word and the space before it
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=first,
        eos_token=eos,
        pad_token=pad,
        unk_token=AddedToken(unk, normalized=whole, special=True),
        **({} if kind in TEMPLATES else {"cls_token": bos, "sep_token": eos, "mask_token": mask}),
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


def raw_texts(added: Iterable[str], pieces: Iterable[str | None]) -> list[str]:
    """Return texts that tokenizers tend to cut differently, with these added tokens and pieces of a vocabulary among them."""
    texts = [*RAW, *(unicodedata.normalize("NFC", text) for text in RAW), *(f"  {text}\t" for text in RAW)]
    texts += [text for token in added for text in (f"a {token} b", f"x{token}y", f"a{token}{token},", f" {token.swapcase()} .")]
    words = [piece for piece in pieces if piece is not None]  # a model may have more embeddings than tokens
    return texts + [f"a {joint.join(words[i : i + 20])}" for i in range(0, len(words), 20) for joint in ("", " ")]


def disagreement(tokenizer: PreTrainedTokenizerBase, encode: Callable[[str], list[int]], texts: Iterable[str]) -> str | None:
    """Return the first text of which a tokenizer of transformers gives other ids than ``encode``, with both; None if they agree.

    Texts that contain the name of a special token are left out: transformers reads the token, and fairseq the text.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = backend.normalizer if backend else None
    for text in texts:
        forms = [text, unicodedata.normalize("NFKC", text), normalizer.normalize_str(text) if normalizer else ""]
        if any(token in form for token in (*tokenizer.all_special_tokens, MADE_UP) for form in forms):
            continue
        expected = encode(text)
        with library_errors(f"the tokenizer cannot cut {text[:80]!r}"):
            fast = tokenizer(text, add_special_tokens=False)["input_ids"]
        if expected != fast:
            names = (" ".join(map(str, tokenizer.convert_ids_to_tokens(ids))) for ids in (expected, fast))
            return "{!r} is {} and becomes {}".format(text, *names)
    return None
