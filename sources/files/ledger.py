"""What one subtask of a file source has read, reads, and will read. Pure.

A file belongs to a subtask by its path alone, so every subtask lists all files and keeps its own. Files that have been
read are remembered for good, as hashes: no time of modification tells whether a file that appears is new, since files
may arrive late, and be moved or copied with the time they had.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import xxhash

from sources.files.errors import FileChanged
from sources.files.folder import FoundFile
from sources.source import Position

Order = Literal["name", "mtime"]

_STATE_VERSION: Final = 1
_PART: Final = 4
_KEY: Final = 16 + _PART
_ENTRY: Final = _KEY + 8
"""Bytes that a checkpoint keeps of each split that was read: hash of the path, part, hash of size and time."""


@dataclass(slots=True)
class Split:
    """A file, or one of the parts of a large Parquet file, and how far it is read."""

    path: str
    size: int
    modified: int
    part: int
    offset: int = 0
    """JSON lines: bytes of the (uncompressed) content in front of the next record. Parquet: its row group."""
    row: int = 0
    """JSON lines: lines in front of the next record. Parquet: rows in front of it in its row group."""

    @property
    def file(self) -> FoundFile:
        return FoundFile(self.path, self.size, self.modified)

    @property
    def key(self) -> bytes:
        return _key(_hash(self.path), self.part)

    @property
    def begun(self) -> bool:
        return bool(self.offset or self.row)

    def to_wire(self) -> list[Any]:
        return [self.path, self.size, self.modified, self.part, self.offset, self.row]


class Ledger:
    """
    Args:
        split_bytes: files above this size are read in parts; `None` = files are read as a whole. A restored ledger
            goes on with what it was first made with.
    """

    def __init__(self, subtask: int, parallelism: int, split_bytes: int | None, order: Order = "name") -> None:
        self.split_bytes = split_bytes
        self._subtask = subtask
        self._parallelism = parallelism
        self._order = order
        self._done: dict[bytes, bytes] = {}
        """Hash of size and time, by key."""
        self._entries = bytearray()
        """The same in the form of a checkpoint."""
        self._open: dict[bytes, Split] = {}
        """To be read, or being read, by key."""
        self._queue: list[tuple[bool, tuple[Any, ...], Split]] = []

    # -- files come ---------------------------------------------------------------------------------------------------

    def unknown(self, files: Iterable[FoundFile]) -> list[Split]:
        """Splits of this subtask that are new; may be called in another thread than everything else.

        Raises:
            FileChanged: a file that was read, or of which one part was begun, is another now.
        """
        new = []
        for file in files:
            hashed = _hash(file.path)
            parts = self.parts_of(file.size)
            for part in range(parts):
                if _owner(hashed, part, self._parallelism) == self._subtask:
                    key = _key(hashed, part)
                    done = self._done.get(key)
                    if done is not None and done != _version(file):
                        raise FileChanged(
                            f"{file.path} was read, and has changed since: it has {file.version} now. Files must "
                            "not be changed once they are there. Move what is new to a file of another name"
                        )
                    if done is None and key not in self._open:
                        new.append(Split(file.path, file.size, file.modified, part))
        return new

    def add(self, splits: Iterable[Split]) -> None:
        """They are to be read; those that are known already are left out."""
        for split in splits:
            key = split.key
            if key not in self._open and key not in self._done:
                self._open[key] = split
                place = (split.path, split.part) if self._order == "name" else (split.modified, split.path, split.part)
                heapq.heappush(self._queue, (not split.begun, place, split))

    def parts_of(self, size: int) -> int:
        return 1 if self.split_bytes is None else max(1, -(-size // self.split_bytes))

    # -- files go -----------------------------------------------------------------------------------------------------

    def next(self) -> Split | None:
        """The split to be read next; it stays open until `finish`."""
        return heapq.heappop(self._queue)[2] if self._queue else None

    def finish(self, split: Split) -> None:
        """All of it was emitted."""
        key, version = split.key, _version(split.file)
        del self._open[key]
        self._done[key] = version
        self._entries += key + version

    def drop(self, split: Split) -> None:
        """It isn't there any more."""
        del self._open[split.key]

    @property
    def waiting(self) -> int:
        """Splits that are not read wholly."""
        return len(self._open)

    @property
    def open_splits(self) -> list[Split]:
        return list(self._open.values())

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def snapshot(self, current: Split | None) -> dict[str, Any]:
        """
        Args:
            current: the split being read, as far as it is emitted.
        """
        open_splits = [current if current and split.key == current.key else split for split in self._open.values()]
        return {
            "version": _STATE_VERSION,
            "source": "files",
            "subtask": self._subtask,
            "parallelism": self._parallelism,
            "split_bytes": self.split_bytes,
            "open": [split.to_wire() for split in open_splits],
            "done": bytes(self._entries),
        }

    def restore(self, states: Sequence[Any], source_id: str) -> None:
        """
        Raises:
            ValueError: it is not the state of a file source.
            RuntimeError: the state of an old subtask is missing, or a split is in two of them.
        """
        present = [_checked(state, source_id)["subtask"] for state in states]
        if sorted(present) != list(range(states[0]["parallelism"])):
            raise RuntimeError(
                f"source {source_id}: the restored state has subtasks {sorted(present)} of {states[0]['parallelism']}. "
                "A subtask needs the state of all old ones, or it would read files again"
            )
        self.split_bytes = states[0]["split_bytes"]
        for state in states:
            entries = memoryview(state["done"])
            for start in range(0, len(entries), _ENTRY):
                key = bytes(entries[start : start + _KEY])
                part = int.from_bytes(key[16:])
                if _owner(key, part, self._parallelism) == self._subtask:
                    if key in self._done:
                        raise RuntimeError(f"source {source_id}: a file is in the restored state of two subtasks")
                    self._done[key] = bytes(entries[start + _KEY : start + _ENTRY])
                    self._entries += entries[start : start + _ENTRY]
        for state in states:
            own = [split for split in (Split(*row) for row in state["open"]) if self._owns(split)]
            for split in own:
                if split.key in self._open or split.key in self._done:
                    raise RuntimeError(f"source {source_id}: {split.path} is in the restored state of two subtasks")
                self.add([split])

    def _owns(self, split: Split) -> bool:
        return _owner(_hash(split.path), split.part, self._parallelism) == self._subtask


def positions_in(state: Any) -> list[Position] | None:
    """What one subtask's state says: how many files are read, and where those stand that are begun; `None` if it is not
    the state of a file source."""
    match state:
        case {"version": version, "source": "files", "open": list(rows), "done": bytes(done)} if (
            version == _STATE_VERSION
        ):
            read = len(done) // _ENTRY
            begun = sorted((split for split in (Split(*row) for row in rows) if split.begun), key=_sort_key)
            positions = [Position(_name(split, bool(state["split_bytes"])), split.row) for split in begun]
            return [Position("files read", read, read + len(rows), ended=not rows), *positions]
    return None


def _sort_key(split: Split) -> tuple[str, int]:
    return split.path, split.part


def _name(split: Split, parquet: bool) -> str:
    return f"{split.path} row group {split.offset}" if parquet else split.path


def _checked(state: Any, source_id: str) -> Mapping[str, Any]:
    known = isinstance(state, Mapping) and state.get("source") == "files" and state.get("version") == _STATE_VERSION
    if not known:
        raise ValueError(
            f"source {source_id}: the checkpoint holds the state of another kind or version of source "
            f"({state!r:.200}). Give the source the id it had, or start without restoring"
        )
    checked: Mapping[str, Any] = state
    return checked


def _hash(path: str) -> bytes:
    digest: bytes = xxhash.xxh3_128_digest(path.encode("utf-8", "surrogateescape"))
    return digest


def _key(hashed: bytes, part: int) -> bytes:
    return hashed + part.to_bytes(_PART)


def _owner(hashed: bytes, part: int, parallelism: int) -> int:
    return (int.from_bytes(hashed[:4]) + part) % parallelism


def _version(file: FoundFile) -> bytes:
    digest: bytes = xxhash.xxh3_64_digest(f"{file.size},{file.modified}".encode())
    return digest
