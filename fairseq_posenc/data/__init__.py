"""From raw text to what ``fairseq-train`` reads.

``text`` reads files, ``split`` holds documents out, ``tokenizer`` turns lines into ids, ``binarize`` does so over
processes, ``databin`` writes fairseq's format, ``manifest`` remembers what is done, and ``prepare`` is the command.
None of them imports PyTorch or fairseq.
"""
