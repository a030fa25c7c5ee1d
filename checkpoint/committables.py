"""Committables: what a sink's writer has prepared and a committer makes visible.

They live here because checkpoints carry them; `sinks.sink` is where users meet them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from checkpoint.storage.handles import FileHandle


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """A committable's name for good: it never changes, whatever is aborted, merged or subsumed in between."""

    epoch: int
    """Id of the first barrier behind it."""
    index: int
    """Place among the committables that the writer returned at that barrier, from 0."""

    def to_wire(self) -> list[int]:
        return [self.epoch, self.index]

    @classmethod
    def from_wire(cls, wire: list[int]) -> SegmentName:
        return cls(*wire)


@dataclass(frozen=True, slots=True)
class Committable:
    name: SegmentName
    payload: Any
    """What `SinkWriter.prepare_commit` returned: msgpack-able. `FileHandle`s are listed in `files`."""
    files: tuple[FileHandle, ...] = ()
    """Files in the checkpoint storage that the payload refers to; kept while a checkpoint refers to them."""

    def to_wire(self) -> list[Any]:
        return [self.name.to_wire(), self.payload, [file.to_wire() for file in self.files]]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> Committable:
        name, payload, files = wire
        return cls(SegmentName.from_wire(name), payload, tuple(FileHandle.from_wire(file) for file in files))


def with_files(pending: Iterable[list[Any]], files: Mapping[FileHandle, FileHandle]) -> list[list[Any]]:
    """What a sink's snapshot holds as pending, `[owner, [committable, …]]` in wire form, with other files in place of
    those that it refers to: copies of the same content."""
    return [
        [
            owner,
            [
                replace(one, files=tuple(files[file] for file in one.files)).to_wire()
                for one in map(Committable.from_wire, committables)
            ],
        ]
        for owner, committables in pending
    ]
