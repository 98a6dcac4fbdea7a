"""Vocabularies: a tokenizer, and the fairseq dictionary that numbers its pieces.

``sentencepiece`` and ``library`` are the kinds of tokenizers, with the interface in ``tokenizer``; ``vocabulary`` turns lines and
texts into ids. Importing the package imports neither PyTorch nor fairseq nor the tokenizers library.
"""

from .dictionary import Dictionary, add_from_file, load_dictionary
from .library import TokenizerJson, library_errors, take_over
from .sentencepiece import DEFAULT_SYMBOLS, SENTENCEPIECE, Sentencepiece, train
from .tokenizer import DICTIONARY, GIVEN_DICTIONARY, MADE_UP, MASK, UNK_ID, UNKNOWN, Encoding, symbol_of
from .vocabulary import TOKENIZER_FILES, VOCABULARY, LineEncoder, Vocabulary, differing, fingerprint, load_vocabulary, read_files
