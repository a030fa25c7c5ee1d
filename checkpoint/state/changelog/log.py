"""The files that make up a subtask's keyed state (no I/O).

Invariants:

- The state at a barrier is what its list says, read from the front, where later files win. A list names files that are
  durable, so a checkpoint costs what has changed since the barrier before, whatever became of that one's checkpoint.
- Changes whose file could not be written are part of the next file.
- What a merge has made replaces what it was made of at a barrier, and for good: no later list has the old files again,
  so those who count references (`checkpoint.storage.shared_files`) may delete them with the last one that did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from checkpoint.storage.handles import StateFile

MOST_FILES: Final = 32
"""More files are merged whatever their sizes are, since each costs a restore a request."""


class Weight(NamedTuple):
    """Of a file."""

    size: int
    """Bytes."""
    rows: int
    missing: int
    """How many of its rows say that a key has no value any more: such a row is small, and makes another one void."""


def next_merge(files: Sequence[Weight]) -> slice | None:
    """The neighbours that are to become one file, up to the newest; `None`: none.

    A file is merged once those behind it are together as large as it is, or have as many rows, where a key that has no
    value any more counts twice. So each file is larger than all behind it together: a list has at most about
    log₂(oldest / newest) + 2 files, a restore reads at most twice what the oldest has, at least half of whose rows
    count, and a byte is written again about as often as the list has files.

    Args:
        files: oldest first.
    """
    size = rows = 0
    first = None
    for i in range(len(files) - 1, -1, -1):
        if i < len(files) - 1 and (size >= files[i].size or rows >= files[i].rows > 0):
            first = i
        size += files[i].size
        rows += files[i].rows + files[i].missing
    if first is None and len(files) > MOST_FILES:
        first = len(files) - MOST_FILES // 2
    return None if first is None else slice(first, len(files))


@dataclass(eq=False)
class LoggedChanges:
    """What has changed between two barriers."""

    content: Any
    """As the backend keeps it; `None` once it is in a file, or was given up."""
    over: Mapping[str, int]
    """For states with a time to live: stamps up to here are over at the barrier."""
    since: Mapping[str, int]
    """For the same states: from when on entries count that have no time of their own."""
    writing: bool = False
    failed: bool = False
    """It could not be written; the next changes have it with them."""
    settled: bool = False
    """It is in a file, needs none since nothing has changed, or has failed."""


@dataclass(frozen=True, eq=False)
class Merge:
    """Neighbours in the list that become one file."""

    files: tuple[StateFile, ...]
    older: tuple[StateFile, ...]
    """Those in front of them."""


class ChangeLog:
    """Not thread-safe; its owner has a lock."""

    def __init__(self, files: Sequence[StateFile] = ()) -> None:
        """
        Args:
            files: what the state was restored from, oldest first.
        """
        self._entries: list[StateFile | LoggedChanges] = list(files)
        self._merge: Merge | None = None
        """Under way."""
        self._merged: StateFile | None = None
        """What it has made, to be taken over at the next barrier; `None` until then."""
        self._made = False

    def barrier(self, content: Any, over: Mapping[str, int] = {}, since: Mapping[str, int] = {}) -> LoggedChanges:
        """The next barrier: what has changed since the last one."""
        if self._made:
            self._take_over()
        changes = LoggedChanges(content, over, since)
        self._entries.append(changes)
        return changes

    def before(self, changes: LoggedChanges) -> list[LoggedChanges] | None:
        """The earlier changes that go into the same file, oldest first; `None` while earlier ones are still on their
        way."""
        earlier = [entry for entry in self._entries[: self._place(changes)] if isinstance(entry, LoggedChanges)]
        if not all(entry.settled for entry in earlier):
            return None
        return [entry for entry in earlier if entry.failed]

    def written(self, changes: LoggedChanges, file: StateFile | None) -> tuple[StateFile, ...]:
        """The changes, with those of `before`, are in a file, or there were none.

        Returns:
            The list of the barrier.
        """
        place = self._place(changes)
        kept: list[StateFile | LoggedChanges] = [
            entry for entry in self._entries[:place] if isinstance(entry, StateFile) or not entry.failed
        ]
        changes.settled, changes.content = True, None
        files = [*kept, *([] if file is None else [file])]
        listed = [_at_barrier(entry, changes) if isinstance(entry, StateFile) else entry for entry in files]
        self._entries[: place + 1] = listed
        return tuple(entry for entry in listed if isinstance(entry, StateFile))

    def not_written(self, changes: LoggedChanges) -> None:
        """The file could not be written, or nobody wants it."""
        changes.settled = changes.failed = True

    # -- merging ------------------------------------------------------------------------------------------------

    def begin_merge(self) -> Merge | None:
        """What to merge now; `None` if there is nothing to gain, or a merge is under way."""
        if self._merge is not None:
            return None
        files = []
        for entry in self._entries:
            if isinstance(entry, LoggedChanges):
                break
            files.append(entry)
        part = next_merge([Weight(listed.file.size, listed.rows, listed.missing) for listed in files])
        if part is not None:
            self._merge = Merge(tuple(files[part]), tuple(files[: part.start]))
        return self._merge

    def end_merge(self, made: StateFile | None) -> None:
        """The merge is done; `None`: nothing was left of what was merged."""
        self._merged, self._made = made, True

    def give_up_merge(self) -> None:
        """It could not be done. What was to be merged stays."""
        self._merge = None

    def _take_over(self) -> None:
        assert self._merge is not None
        start, count = len(self._merge.older), len(self._merge.files)
        merged = [entry.file for entry in self._entries[start : start + count] if isinstance(entry, StateFile)]
        assert merged == [listed.file for listed in self._merge.files]
        self._entries[start : start + count] = [] if self._merged is None else [self._merged]
        self._merge, self._merged, self._made = None, None, False

    def _place(self, changes: LoggedChanges) -> int:
        return next(i for i, entry in enumerate(self._entries) if entry is changes)


def _at_barrier(listed: StateFile, changes: LoggedChanges) -> StateFile:
    """What was over once in a file stays so, also where the clock of a later attempt is behind, or not known yet; and
    what has no time of its own counts from when a clock was known first, not from each restart."""
    if not changes.over:
        return listed
    known = dict(listed.over)
    known.update((name, max(at, known.get(name, at))) for name, at in changes.over.items())
    since = {**changes.since, **dict(listed.since)}
    return replace(listed, over=tuple(known.items()), since=tuple(since.items()))
