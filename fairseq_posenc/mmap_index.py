"""The ``.idx`` file of fairseq's memory-mapped data set: the size of each item in the ``.bin`` file beside it, and its place.

========== =============== ====================================================
bytes      type            content
========== =============== ====================================================
9          bytes           ``MMIDIDX\\0\\0``
8          little uint64   version, 1
1          uint8           code of the ids' type: 8 for uint16, 9 for uint32
8          little uint64   number of items, N
4 N        int32           size of each item, in ids
8 N        int64           offset of each item in the ``.bin`` file, in bytes
========== =============== ====================================================
"""

import struct

MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
HEADER = struct.Struct("<9sQBQ")
"""The first four rows."""


def length(items: int) -> int:
    """Bytes of the whole file."""
    return HEADER.size + 12 * items
