"""fairseq's hub interface to a checkpoint, with its vocabulary."""

from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from ...base.errors import InputError
from ...text.vocabulary import DICTIONARY, MASK, Vocabulary
from ...text.vocabulary.normalization import JOINT
from ..checkpoint.checkpoint import Checkpoint
from .building import restored


def load_hub_interface(path: Path, data: Path | None = None) -> RobertaHubInterface:
    """Return the result of :meth:`PosencRobertaModel.from_pretrained`; raises what :class:`.Checkpoint` raises."""
    checkpoint = Checkpoint(path, data)
    vocabulary = checkpoint.vocabulary
    dictionary = Dictionary.load(str(vocabulary.folder / DICTIONARY))  # to which the task adds <mask>
    task = MaskedLMTask(MaskedLMConfig(data=str(vocabulary.folder)), dictionary)
    with suppress(InputError):  # one of several heads is not chosen
        labels, task.label_dictionary = checkpoint.labels, Dictionary()  # as of the task that trained the head
        for label in labels:
            task.label_dictionary.add_symbol(label)
    interface = HubInterface(Namespace(**{**checkpoint.configuration, "bpe": None}), task, restored(checkpoint))
    interface.vocabulary, names = vocabulary, vocabulary.dictionary
    interface.bpe = SimpleNamespace(  # text to symbols, separated by spaces, and back
        encode=lambda text: " ".join(names[number] for number in vocabulary.encode(text).ids.tolist()),
        decode=lambda symbols: vocabulary.decode(map(names.index, symbols.split())),
    )
    return interface.eval()


class HubInterface(RobertaHubInterface):
    """fairseq's, which reads text after ``<mask>`` as the continuation that it is."""

    vocabulary: Vocabulary

    @torch.no_grad()
    def fill_mask(self, masked_input: str, topk: int = 5) -> list[tuple[str, float, str]]:
        """Return the likeliest fillings of the one ``<mask>`` in a text: the filled text, the probability and the filling.

        Raises:
            InputError: the text has none or several.
        """
        vocabulary, spans = self.vocabulary, masked_input.split(MASK)
        if len(spans) != 2:
            raise InputError(f"{masked_input!r} has {len(spans) - 1} {MASK}, and one is filled")
        before, after = spans[0].rstrip(), spans[1]
        following = vocabulary.encode(JOINT + after)  # as after a word of which no piece is a part
        mask = vocabulary.dictionary.index(MASK)
        ids = [*vocabulary.encode(before).ids, mask, *following.ids[following.ends > 1]]
        tokens = torch.from_numpy(vocabulary.join(np.array(ids, np.int64)))
        logits = self.model(tokens[None].to(self.device), features_only=False)[0][0, ids.index(mask) + 1]
        found = logits.softmax(dim=0).topk(min(topk, len(vocabulary.dictionary)))
        fillings = []
        for number, probability in zip(found.indices.tolist(), found.values.tolist(), strict=True):
            spaced = vocabulary.tokenizer.spelling(vocabulary.dictionary[number]).startswith(" ")
            text = vocabulary.decode([number]).strip()
            filling = vocabulary.dictionary[number] if number < vocabulary.dictionary.nspecial else " " * spaced + text
            fillings.append((f"{before}{filling}{after}".strip(), probability, filling))
        return fillings
