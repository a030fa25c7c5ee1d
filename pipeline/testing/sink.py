"""`TestingSink`: a two-phase sink whose committed records the test can read."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint import failpoints
from checkpoint.codec import decode, encode
from checkpoint.options import named_options
from pipeline.testing.directory import shared_directory
from sinks.sink import (
    Committable,
    Committer,
    CommitterContext,
    RecordContext,
    Sink,
    SinkWriter,
    WriterContext,
)


@dataclass(frozen=True, slots=True)
class CommittedRecord:
    value: Any
    timestamp: int | None
    """Milliseconds since the epoch."""
    key: Any
    """The stream's key; `None` on a stream without."""
    writer: int
    """Sink subtask that wrote it."""
    checkpoint: int
    """Checkpoint whose completion made it visible."""


@named_options
class TestingSink(Sink):
    """Collects records; they are in `records` once the checkpoint behind them is complete and they are committed.

    Commits go to a folder that all subtasks share (so they must run on this machine), exactly once however often a
    commit is repeated.
    """

    __test__ = False  # pytest: not a test class

    needs_checkpoints = True

    def __init__(self, directory: Path | str | None = None) -> None:
        """
        Args:
            directory: keeps what is committed; given where it shall outlive this object. `None` = a temporary one.
        """
        self._directory = shared_directory(self, directory, "weir-testing-sink-")

    @property
    def records(self) -> list[Any]:
        """The values committed so far, in the order of the commits."""
        return [record.value for record in self.committed]

    @property
    def committed(self) -> list[CommittedRecord]:
        """The records committed so far, with what is known of them."""
        found: list[CommittedRecord] = []
        for path in sorted(self._directory.glob("*.out")):
            writer, checkpoint, rows = decode(path.read_bytes())
            found += [CommittedRecord(value, timestamp, key, writer, checkpoint) for value, timestamp, key in rows]
        return found

    def clear(self) -> None:
        """Forget what is committed (between two runs; not while a job runs)."""
        for path in self._directory.glob("*.out"):
            path.unlink()

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        return _Writer()

    def create_committer(self, ctx: CommitterContext) -> Committer:
        return _Committer(self._directory, ctx)


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._rows: list[list[Any]] = []

    def write(self, value: Any, ctx: RecordContext) -> None:
        self._rows.append([value, ctx.timestamp, ctx.key])

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        rows, self._rows = self._rows, []
        return [rows] if rows else []


class _Committer(Committer):
    def __init__(self, directory: Path, ctx: CommitterContext) -> None:
        self._directory = directory
        self._writer = ctx.writer
        self._check_owner = ctx.check_owner
        identity = f"{ctx.pipeline}\0{ctx.sink_id}\0{ctx.lineage.id}"
        self._origin = f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}-{ctx.writer}"

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        self._check_owner()
        failpoints.hit("committer.before_commit", subtask=self._writer)
        for committable in committables:
            self._commit(checkpoint_id, committable)
        failpoints.hit("committer.after_commit", subtask=self._writer)

    def _commit(self, checkpoint_id: int, committable: Committable) -> None:
        name = f"-{self._origin}-{committable.name.epoch}-{committable.name.index}.out"
        content = encode([self._writer, checkpoint_id, committable.payload])
        with _locked(self._directory):
            present = sorted(path.name for path in self._directory.glob("[0-9]*.out"))
            if any(each.endswith(name) for each in present):
                return
            number = int(present[-1].partition("-")[0]) + 1 if present else 1
            staged = self._directory / f"staged{name[:-4]}"
            staged.write_bytes(content)
            staged.rename(self._directory / f"{number:08d}{name}")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    fd = os.open(directory / "lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
