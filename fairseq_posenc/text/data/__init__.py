"""From raw text to what ``fairseq-train`` reads.

``prepare`` is the command. ``text_sources`` finds files, which ``text`` reads; ``split`` holds
documents out, deals them to shards and draws what a tokenizer is trained on; ``shards`` encodes, and ``databin`` writes fairseq's
format. Everything is in a ``folder``, whose manifest records what is complete. None of them imports PyTorch or fairseq.
"""
