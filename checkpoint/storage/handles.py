"""References to files in the checkpoint storage."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class FileHandle:
    """A file that a checkpoint refers to."""

    path: str
    """Relative to the job's folder: `chk-5-2/totals-1-state.arrow`, `shared/2-out-0-17.arrow`."""
    size: int
    """Bytes."""
    checksum: str
    """xxh3_128 of the content, hexadecimal."""
    content: bytes | None = field(default=None, repr=False)
    """What would be in the file, if it is so small that it is kept here, and so in `_metadata`: nothing lies at `path`
    then (see `checkpoint.storage.inline_files`)."""

    @property
    def shared(self) -> bool:
        """Whether several checkpoints may refer to it."""
        return self.path.startswith("shared/")

    @property
    def inline(self) -> bool:
        """Whether there is no file, and the content is here."""
        return self.content is not None

    def to_wire(self) -> list[Any]:
        return [self.path, self.size, self.checksum, *([] if self.content is None else [self.content])]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> FileHandle:
        path, size, checksum, *content = wire
        return cls(path, size, checksum, *map(_bytes, content))


_LONGEST_HANDLE: Final = 4
"""Members of a handle on the wire, at most."""
_SINCE: Final = " since"
"""Behind a state's name, where the wire has one map for two. No name has a space in it, so versions of Weir that don't
know of it read the rest."""


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of keyed state in the list of a checkpoint's subtask, oldest first, in which later files win."""

    file: FileHandle
    groups: range | None = None
    """The key groups that it counts for in this list, whatever else it holds. Two subtasks may list one file after
    scaling out, and what one of them merges, the other still reads there. `None`: all that it holds. A file of changes
    has a range, and only that has what follows."""
    rows: int = 0
    missing: int = 0
    """How many of its rows say that a key has no value any more."""
    over: tuple[tuple[str, int], ...] = ()
    """For states with a time to live: stamps up to here were over at the barrier of this list, so entries that have
    them aren't there, whatever a clock says that is behind."""
    since: tuple[tuple[str, int], ...] = ()
    """For some of these states: what entries have that have no time of their own."""

    def within(self, groups: range) -> StateFile | None:
        """As part of a list for these key groups; `None` if it has nothing to say about them."""
        if self.groups is not None:
            groups = range(max(self.groups.start, groups.start), min(self.groups.stop, groups.stop))
        return replace(self, groups=groups) if groups else None

    def to_wire(self) -> list[Any]:
        if self.groups is None:
            return self.file.to_wire()
        times = {**dict(self.over), **{name + _SINCE: at for name, at in self.since}}
        return [*self.file.to_wire(), self.groups.start, self.groups.stop, self.rows, self.missing, times]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> StateFile:
        if len(wire) <= _LONGEST_HANDLE:
            return cls(FileHandle.from_wire(wire))
        *file, first, stop, rows, missing, times = wire
        over = tuple((name, at) for name, at in times.items() if not name.endswith(_SINCE))
        since = tuple((name.removesuffix(_SINCE), at) for name, at in times.items() if name.endswith(_SINCE))
        return cls(FileHandle.from_wire(file), range(first, stop), rows, missing, over, since)


def _bytes(content: bytes | str) -> bytes:
    """Of JSON, which has no bytes, too."""
    return base64.b64decode(content, validate=True) if isinstance(content, str) else content
