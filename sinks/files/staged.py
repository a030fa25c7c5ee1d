"""A part on its way: staged in the checkpoint storage, in pieces that fit into memory when they are copied."""

from __future__ import annotations

import io
from typing import Any, Final

from checkpoint.storage.handles import FileHandle
from sinks.sink import StagedFile, Staging

PIECE_BYTES: Final = 8 * 1024 * 1024
"""The committer holds one piece in memory, and so do object stores while it is written."""


class StagedPart(io.RawIOBase):
    """Where the encoder of a part writes to."""

    def __init__(self, staging: Staging, hint: str, piece_bytes: int = PIECE_BYTES) -> None:
        self.size = 0
        """Bytes so far."""
        self._staging = staging
        self._hint = hint
        self._piece_bytes = piece_bytes
        self._piece: StagedFile | None = None
        self._piece_size = 0
        self._pieces: list[FileHandle] = []
        self._aborted = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._aborted:
            return view.nbytes  # an encoder that is forgotten writes its end
        for start in range(0, view.nbytes, self._piece_bytes):
            self._write(view[start : start + self._piece_bytes])
        self.size += view.nbytes
        return view.nbytes

    def seal(self) -> list[FileHandle]:
        """Make all of it durable."""
        self._end_piece()
        return self._pieces

    def abort(self) -> None:
        """Whole pieces are left to the storage's clean-up: no checkpoint refers to them."""
        self._aborted = True
        if self._piece is not None:
            self._piece.abort()
            self._piece = None

    def _write(self, data: memoryview) -> None:
        if self._piece is None:
            self._piece = self._staging.create(self._hint)
        self._piece.write(data)
        self._piece_size += data.nbytes
        if self._piece_size >= self._piece_bytes:
            self._end_piece()

    def _end_piece(self) -> None:
        if self._piece is not None:
            piece, self._piece, self._piece_size = self._piece, None, 0
            self._pieces.append(piece.close())
