"""``python -m fairseq_posenc.quickstart`` is ``fairseq-posenc quickstart``."""

import sys

from fairseq_posenc.cli import main

sys.exit(main(["quickstart", *sys.argv[1:]]))
