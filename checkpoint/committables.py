"""Committables: what a sink's writer has prepared and a committer makes visible.

They live here because checkpoints carry them; `sinks.sink` is where users meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from checkpoint.storage.handles import FileHandle


@dataclass(frozen=True, slots=True, order=True)
class CommittableName:
    """A committable's name for good: it never changes, whatever is aborted, merged or subsumed in between.

    Attributes:
        epoch: id of the first barrier behind it.
        index: place among the committables that the writer returned at that barrier, from 0.
    """

    epoch: int
    index: int

    def to_wire(self) -> list[int]:
        return [self.epoch, self.index]

    @classmethod
    def from_wire(cls, wire: list[int]) -> CommittableName:
        return cls(*wire)


@dataclass(frozen=True, slots=True)
class Committable:
    """Output that a writer has prepared, and a committer makes visible once its checkpoint is complete.

    Attributes:
        name: its name for good.
        payload: what `SinkWriter.prepare_commit` returned: msgpack-able. `FileHandle`s are listed in `files`.
        files: files in the checkpoint storage that the payload refers to; kept while a checkpoint refers to them.
    """

    name: CommittableName
    payload: Any
    files: tuple[FileHandle, ...] = ()

    @classmethod
    def of(cls, name: CommittableName, prepared: Any) -> Committable:
        """From what `SinkWriter.prepare_commit` returned: a payload, or a pair of it and the files it refers to."""
        if isinstance(prepared, tuple) and len(prepared) == 2 and isinstance(prepared[1], list):
            payload, files = prepared
            if all(isinstance(file, FileHandle) for file in files):
                return cls(name, payload, tuple(files))
        return cls(name, prepared)

    def to_wire(self) -> list[Any]:
        return [self.name.to_wire(), self.payload, [file.to_wire() for file in self.files]]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> Committable:
        name, payload, files = wire
        return cls(CommittableName.from_wire(name), payload, tuple(FileHandle.from_wire(file) for file in files))


@dataclass(frozen=True, slots=True)
class SinkState:
    """What a checkpoint holds of a sink, or of those of its writers that one subtask hosts."""

    pending: Mapping[int, Sequence[Committable]] = field(default_factory=dict)
    """Committables not known to be committed, by writer, in order."""
    committers: Mapping[int, Any] = field(default_factory=dict)
    """What the writers' committers kept, by writer; a missing writer had none."""

    @property
    def writers(self) -> list[int]:
        return sorted({*self.pending, *self.committers})

    @property
    def files(self) -> list[FileHandle]:
        """Those that the pending committables refer to, each once."""
        return list(
            dict.fromkeys(file for of_writer in self.pending.values() for one in of_writer for file in one.files)
        )

    def of_writers(self, hosts: Callable[[int], bool]) -> SinkState:
        """Only what belongs to some writers."""
        return SinkState(
            {writer: pending for writer, pending in self.pending.items() if hosts(writer)},
            {writer: state for writer, state in self.committers.items() if hosts(writer)},
        )

    def with_files(self, files: Mapping[FileHandle, FileHandle]) -> SinkState:
        """The same with other files in place of those that it refers to: copies of the same content."""
        pending = {
            writer: [replace(one, files=tuple(files[file] for file in one.files)) for one in committables]
            for writer, committables in self.pending.items()
        }
        return replace(self, pending=pending)

    def to_wire(self) -> dict[str, Any]:
        return {
            "pending": [[writer, [one.to_wire() for one in of_writer]] for writer, of_writer in self.pending.items()],
            "committers": [[writer, state] for writer, state in self.committers.items()],
        }

    @classmethod
    def from_wire(cls, *wires: Mapping[str, Any]) -> SinkState:
        """What several subtasks hold, together."""
        pending: dict[int, list[Committable]] = {}
        committers: dict[int, Any] = {}
        for wire in wires:
            for writer, committables in wire["pending"]:
                pending.setdefault(writer, []).extend(map(Committable.from_wire, committables))
            committers.update(wire["committers"])
        return cls(pending, committers)
