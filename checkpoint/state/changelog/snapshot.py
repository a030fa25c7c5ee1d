"""A snapshot that writes what has changed, and lists the files that hold the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from threading import Condition
from typing import Any

from checkpoint.counted import counted
from checkpoint.state.changelog.log import ChangeLog, LoggedChanges, Merge
from checkpoint.state.changelog.merge import Group
from checkpoint.state.contents import ContentNotes
from checkpoint.state.files import load_contents, load_groups
from checkpoint.state.keyed_snapshot import FrozenChanges, KeyedSnapshot, NewFile
from checkpoint.state.snapshot_format import CHANGES_VERSION, Compression, SnapshotFooter
from checkpoint.state.snapshot_rows import packed
from checkpoint.state.snapshot_writer import SnapshotAbandoned, write_batches
from checkpoint.storage.errors import StorageError
from checkpoint.storage.handles import StateFile
from checkpoint.storage.storage import CheckpointStorage

_LOG = logging.getLogger(f"weir.{__name__}")


@dataclass(frozen=True)
class LogFolder:
    """Where the files of a log lie."""

    storage: CheckpointStorage
    """The job's folder."""
    create: Callable[[], NewFile]
    """Makes a file that several checkpoints may refer to."""
    compression: Compression


class LoggedState:
    """The log of one subtask's keyed state. `barrier` belongs to the task thread, all else to threads of pools."""

    def __init__(
        self,
        operator: str,
        key_groups: range,
        max_parallelism: int,
        folder: LogFolder,
        merges: Executor,
        files: Sequence[StateFile] = (),
        on_merge: Callable[[int, bool], object] = lambda size, done: None,
        condition: Callable[[], Condition] = Condition,
    ) -> None:
        """
        Args:
            operator: as messages and footers name it.
            merges: merges files beside the snapshots, which don't wait for it.
            files: what the state was restored from, oldest first; empty if all of it counts as changed.
            on_merge: told of each merge: the bytes of its file, and whether it came to its end.
        """
        self._operator = operator
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._folder = folder
        self._merges = merges
        self._on_merge = on_merge
        self._log = ChangeLog(files)
        self._changed = condition()
        self._closed = False

    def close(self) -> None:
        """Merges that are under way end without a result."""
        self._closed = True

    def barrier(self, content: FrozenChanges) -> ChangesSnapshot:
        with self._changed:
            return ChangesSnapshot(self, self._log.barrier(content, content.over, content.since))

    def write(self, changes: LoggedChanges) -> tuple[list[StateFile], int]:
        """Make the changes durable.

        Returns:
            The list of the barrier, and the bytes of those of its files that were there before.

        Raises:
            SnapshotAbandoned: they were given up before.
            EncodingError, StorageError: they can't be written now; the next ones take them along.
        """
        with self._changed:
            # Earlier ones are in the hands of another thread of the pool by now, or done.
            while (older := self._log.before(changes)) is None:
                self._changed.wait()
            if changes.settled:
                raise SnapshotAbandoned(f"this snapshot of {self._operator} was written or released before")
            changes.writing = True
        try:
            rows = changes.content.batches([each.content for each in older])
            file = self._write(rows, changes.content.clocks, changes.content.notes)
        except BaseException:
            with self._changed:
                self._log.not_written(changes)
                self._changed.notify_all()
            raise
        released = [each.content for each in (*older, changes)]
        with self._changed:
            listed = self._log.written(changes, file)
            self._changed.notify_all()
            merge = self._log.begin_merge()
        for content in released:
            content.release()
        if merge is not None:
            self._merges.submit(self._run_merge, merge)
        new = None if file is None else file.file
        return list(listed), sum(each.file.size for each in listed if each.file is not new)

    def give_up(self, changes: LoggedChanges) -> None:
        """The changes are not written now; does nothing if they were, or just are."""
        with self._changed:
            if not changes.settled and not changes.writing:
                self._log.not_written(changes)
                self._changed.notify_all()

    def _run_merge(self, merge: Merge) -> None:
        made: StateFile | None = None
        done = False
        try:
            storage = self._folder.storage
            notes = ContentNotes(known=load_contents(storage, merge.files))
            clocks: dict[str, str] = {}
            made = self._write(packed(_noting(load_groups(storage, merge.files, merge.older), clocks)), clocks, notes)
            done = True
        except SnapshotAbandoned:
            pass  # nobody is there any more who could use it
        except Exception as error:  # of a thread that nobody waits for
            _LOG.warning(
                "%s of the state of %s not merged; they stay, and the next checkpoint tries again: %s",
                counted(len(merge.files), "file"),
                self._operator,
                error,
                exc_info=not isinstance(error, StorageError),
            )
        finally:
            with self._changed:
                if done:
                    self._log.end_merge(made)
                else:
                    self._log.give_up_merge()
            self._on_merge(0 if made is None else made.file.size, done)

    def _write(self, batches: Iterator[Any], clocks: Mapping[str, str], notes: ContentNotes) -> StateFile | None:
        """A file with these rows; `None` if there are none.

        Args:
            batches: as `write_batches` takes them.
            clocks: has, at the end, which states have a time to live, and by which clock.
            notes: has, at the end, what their values are.
        """
        names: set[str] = set()
        missing = 0
        footer = SnapshotFooter(self._operator, self._max_parallelism, ttl=clocks, version=CHANGES_VERSION)

        def counted() -> Iterator[Any]:
            nonlocal missing
            for batch in batches:
                names.update(batch.column("state").unique().to_pylist())
                missing += batch.column("value").null_count
                yield batch

        file = self._folder.create()
        try:
            written = write_batches(
                counted(), file.write, self._folder.compression, footer, names, lambda: self._closed, notes
            )
            if not written.groups:
                file.abort()
                return None
            return StateFile(file.close(), self._key_groups, written.rows, missing)
        except BaseException:
            file.abort()
            raise


def _noting(groups: Iterator[Group], clocks: dict[str, str]) -> Iterator[list[Any]]:
    """The batches of key groups; `clocks` gets which states have a time to live."""
    for _, batches, ttl in groups:
        clocks.update(ttl)
        yield batches


class ChangesSnapshot(KeyedSnapshot):
    """What has changed up to a barrier."""

    def __init__(self, state: LoggedState, changes: LoggedChanges) -> None:
        self._state = state
        self._changes = changes

    def files(self, create: Callable[[str], NewFile], compression: Compression = "lz4") -> list[StateFile]:
        """As the log's folder has it, whatever `create` and `compression` are."""
        listed, self.reused_bytes = self._state.write(self._changes)
        return listed

    def release(self) -> None:
        self._state.give_up(self._changes)
