"""Vocabularies: a tokenizer, and the fairseq dictionary that numbers its pieces.

``kinds`` is the table of the kinds of tokenizers, in the one order in which a folder is searched for them: ``sentencepiece``,
then the two of the tokenizers ``library``, GPT-2's byte-level BPE and any other tokenizer.json. ``dictionary`` reads
dict.txt, ``lines`` turns lines into the ids of a data-bin, ``vocabulary`` turns a text into ids with their spans in it,
``learning`` trains a tokenizer. Importing the room imports neither PyTorch nor fairseq nor the tokenizers library.
"""

from .dictionary import DICTIONARY, EOS_ID, GIVEN_DICTIONARY, MASK, SPECIALS, UNK_ID, load_dictionary
from .fingerprint import differing, fingerprint
from .kinds import TOKENIZER_FILES, read_files
from .library import GPT2, TokenizerJson, library_errors, take_over
from .lines import LineEncoder
from .sentencepiece import SENTENCEPIECE, Sentencepiece
from .tokenizer import Encoding
from .vocabulary import Vocabulary

__all__ = ["DICTIONARY", "EOS_ID", "GIVEN_DICTIONARY", "GPT2", "MASK", "SENTENCEPIECE", "SPECIALS", "TOKENIZER_FILES", "UNK_ID"]
__all__ += ["Encoding", "LineEncoder", "Sentencepiece", "TokenizerJson", "Vocabulary"]
__all__ += ["differing", "fingerprint", "library_errors", "load_dictionary", "read_files", "take_over"]
