"""References to files in the checkpoint storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileHandle:
    """A file that a checkpoint refers to."""

    path: str
    """Relative to the job's folder: `chk-5-2/totals-1-state.arrow`, `shared/2-out-0-17.arrow`."""
    size: int
    """Bytes."""
    checksum: str
    """xxh3_128 of the content, hexadecimal."""

    @property
    def shared(self) -> bool:
        """Whether several checkpoints may refer to it."""
        return self.path.startswith("shared/")

    def to_wire(self) -> list[Any]:
        return [self.path, self.size, self.checksum]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> FileHandle:
        return cls(*wire)
