"""Data sets of the Hugging Face hub, or of a local folder, streamed row by row.

``hf:NAME[@REVISION][:CONFIG[:SPLIT]]``, for instance ``hf:allenai/c4:en`` or ``hf:allenai/c4:en:validation``.
"""

import hashlib
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import datasets

from ...base.errors import InputError, first_line
from .text import Layout, Line, OnEnd, OnRead, Passage, group, ignore, of_record, parsed

_NAME = re.compile(r"(?P<name>[^@:]+)(@(?P<revision>[^:]+))?(:(?P<config>[^:]*))?(:(?P<split>[^:]+))?")


@dataclass(frozen=True)
class HubShard:
    """One of the files that a data set consists of."""

    data: datasets.IterableDataset
    origin: str  # a hash of the files, and of the hub their commit and place
    name: str
    layout: Layout
    size: None = None

    def likeness(self) -> Hashable:
        return self.origin, self.name.rpartition(":")[2]

    def fingerprint(self) -> dict[str, Any]:
        return {"dataset": self.name, "origin": self.origin, "sha256": None}

    def is_same(self, earlier: dict[str, Any]) -> bool:
        return (earlier.get("dataset"), earlier.get("origin")) == (self.name, self.origin)

    def passages(self, on_read: OnRead = ignore, on_end: OnEnd = ignore) -> Iterator[Passage]:
        digest = hashlib.sha256()

        def lines() -> Iterator[Line]:
            for line in parsed(enumerate(self.data, start=1), partial(of_record, self.name, self.layout), self.layout):
                digest.update(line or b"\n")
                on_read(len(line or b""))
                yield line

        yield from group(lines())
        on_end(digest.hexdigest())


def shards(name: str, layout: Layout) -> list[HubShard]:
    """Return the files of a data set, each streamed when it is read.

    Raises:
        InputError: the name cannot be read, or there is no such configuration, split or field.
        OSError: the hub cannot be reached, or has no such data set.
    """
    parts = _NAME.fullmatch(name)
    if not parts:
        raise InputError(f"hf:{name}: write hf:NAME[@REVISION][:CONFIG[:SPLIT]], for instance hf:allenai/c4:en")
    split = parts["split"] or "train"
    try:
        builder = datasets.load_dataset_builder(parts["name"], parts["config"] or None, revision=parts["revision"])
        data = builder.as_streaming_dataset(split=split)
        fields = data.column_names or list(next(iter(data), {}))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        kind = OSError if isinstance(error, OSError) else InputError
        raise kind(f"hf:{name}: {first_line(error)}") from error
    if not {layout.text_field, layout.text_field.partition(".")[0]} & {*fields}:
        raise InputError(f"hf:{name}: no field {layout.text_field!r} among {', '.join(fields)}; name another with --text-field")
    number, remote = data.num_shards, "://" in str(builder.base_path)
    origin = f"{builder.base_path} {builder.hash}" if remote else builder.hash
    return [HubShard(data.shard(number, index), origin, f"hf:{name}:{split}#{index}/{number}", layout) for index in range(number)]
