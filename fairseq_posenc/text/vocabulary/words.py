"""Where words begin: at spaces, and at each piece of a script that is written without them, such as Chinese and Thai.

Pieces of byte-level vocabularies may end within a character. Such a beginning of a character counts to a script if all its
characters, or nearly all, are of scripts without spaces; bytes of parts are ``U+DC00 + byte``, as "surrogateescape" has them.
"""

import re
import unicodedata

# Thai, Lao, Tibetan, Myanmar; Khmer; Tai, Balinese, Javanese; kana, bopomofo and Chinese characters, without Hangul.
SCRIPTS = "\u0e00-\u109f\u1780-\u17ff\u1950-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaadf\u2e80-\u312f\u3190-\u9fff\uf900-\ufaff"
SCRIPTS += "\ufe30-\ufe4f\uff00-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
_PARTS = "\udce0[\udcb8-\udcbf]|\udce1[\udc80-\udc82\udc9e\udc9f]|[\udce3-\udce9]|\udcef[\udcbc\udcbd]"
_PARTS += "|\udcf0[\udca0-\udcbf]"
_WITHOUT_SPACES = f"(?:[{SCRIPTS}]|{_PARTS})"
_BEGINS = re.compile(f" |{_WITHOUT_SPACES}|[\udce0\udce1]$")  # of Thai, Khmer and others, the first byte alone
_ENDS = re.compile(f"{_WITHOUT_SPACES}[\udc80-\udcbf]*$")


def is_continued(spelling: str) -> bool:
    """Return whether a piece begins within a character: with the rest of its bytes, or with a mark that combines with it."""
    return "\udc80" <= spelling[:1] <= "\udcbf" or unicodedata.category(spelling[:1] or " ").startswith("M")


def is_rest(spelling: str) -> bool:
    """Return whether a piece is within one character, so that what holds at the end of the piece before holds at its end."""
    return bool(spelling) and all("\udc80" <= byte <= "\udcbf" for byte in spelling)


def begins_word(spelling: str) -> bool:
    """Return whether a piece begins a word wherever it stands: with a space, or with a character of a script without spaces."""
    return _BEGINS.match(spelling) is not None and not is_continued(spelling)


def ends_word(spelling: str) -> bool:
    """Return whether a piece ends with a character of a script without spaces, so that the next begins a word."""
    return _ENDS.search(spelling) is not None
