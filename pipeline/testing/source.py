"""`TestingSource`: a list as a source, with places in it where the source crashes, ends or waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from checkpoint.options import named_options, whole_number
from pipeline.testing.directory import shared_directory
from pipeline.testing.jobs import await_in_job, jobs_here
from sources.source import END, Source, SourceBatch, SourceContext, SourceReader

_POLL_S: Final = 0.01


class AbortError(RuntimeError):
    """What `TestingSource.ABORT` raises: a crash, as far as the job is concerned."""


@dataclass(frozen=True, slots=True)
class _Abort:
    pass


@dataclass(frozen=True, slots=True)
class End:
    pass


@dataclass(frozen=True, slots=True)
class _Pause:
    pass


_SENTINELS: Final = (_Abort, End, _Pause)


@named_options
class TestingSource(Source):
    """Emits the values of a list in order, and between them does what these say:

    - `TestingSource.ABORT()`: once everything before it was emitted, raise `AbortError`, so that the attempt fails
      with no further checkpoint. Once: an attempt that comes here again goes on behind it.
    - `TestingSource.EOF()`: the list ends here, for this execution. A restore of a checkpoint taken at this end (the
      job's final one) goes on behind it.
    - `TestingSource.PAUSE()`: emit nothing more until `release` was called as often as there are pauses up to here.

    One list is read by subtask 0; several (`partitions`) by subtask *k* mod parallelism each. Positions are kept by
    partition, so restores may have another parallelism. What was aborted and released lies in files: all subtasks
    must run on this machine.
    """

    __test__ = False  # pytest: not a test class

    ABORT: ClassVar[type[_Abort]] = _Abort
    EOF: ClassVar[type[End]] = End
    PAUSE: ClassVar[type[_Pause]] = _Pause

    bounded = True

    def __init__(
        self,
        values: Iterable[Any] = (),
        *,
        partitions: Sequence[Iterable[Any]] | None = None,
        batch_size: int | None = None,
        timestamp: Callable[[Any], int | None] | None = None,
        directory: Path | str | None = None,
    ) -> None:
        """
        Args:
            values: the values of the only partition.
            partitions: the values of each of several, instead.
            batch_size: the most that one poll returns; `None` = as many as asked for.
            timestamp: a function of the value, in milliseconds since the epoch.
            directory: remembers what was aborted and released; given where it shall outlive this object.

        Raises:
            ValueError: both `values` and `partitions` were given, or an argument has a value that it can't have.
        """
        lists = [list(each) for each in _lists(values, partitions)]
        if partitions is not None and list(values):
            raise ValueError("give TestingSource either values or partitions")
        if batch_size is not None:
            whole_number(batch_size, "batch_size", 1)
        if timestamp is not None and not callable(timestamp):
            raise ValueError(f"timestamp must be a function of the value, not {timestamp!r}")
        self._partitions = lists
        self._batch_size = batch_size
        self._timestamp = timestamp
        self._directory = shared_directory(self, directory, "weir-testing-source-")

    def release(self) -> None:
        """Let the next `PAUSE` of each partition pass, whether it was reached yet or not."""
        with (self._directory / "releases").open("ab") as file:
            file.write(b".")

    def wait_until_paused(self, timeout: float = 30.0) -> None:
        """Return once a subtask waits at a `PAUSE` that was not released.

        Args:
            timeout: seconds.

        Raises:
            JobEnded: all jobs of this process that read the source have ended; says how.
            TimeoutError: none does.
        """
        await_in_job(
            lambda: (self._directory / f"paused-{_releases(self._directory) + 1}").exists(),
            timeout,
            lambda: [job for job in jobs_here() if job.runs(self)],
            lambda when: f"no TestingSource.PAUSE() was reached{when}",
        )

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        mine = {k: v for k, v in enumerate(self._partitions) if k % ctx.parallelism == ctx.subtask}
        restored: dict[int, int] = {}
        for entry in ctx.restored or ():
            restored.update((k, position) for k, position in entry if k in mine)
        splits = [_Split(k, values, restored.get(k, 0), self._directory) for k, values in mine.items()]
        return _Reader(splits, self._batch_size, self._timestamp)


class _Split:
    """A partition and the place that it was read to."""

    def __init__(self, index: int, items: list[Any], position: int, directory: Path) -> None:
        self.index = index
        self.position = position
        self.ended = False
        self._items = items
        self._directory = directory

    def take(self, most: int) -> list[Any]:
        """Up to `most` values; a sentinel ends the batch, and is dealt with once it comes first."""
        values: list[Any] = []
        while len(values) < most and not self.ended:
            if self.position == len(self._items):
                self.ended = not values
                break
            item = self._items[self.position]
            if isinstance(item, _SENTINELS):
                if values or not self._pass(item):
                    break
            else:
                values.append(item)
            self.position += 1
        return values

    def _pass(self, sentinel: _Abort | End | _Pause) -> bool:
        """Whether the sentinel lets us by now."""
        match sentinel:
            case _Abort():
                if _create(self._directory / f"aborted-{self.index}-{self.position}"):
                    raise AbortError(f"TestingSource.ABORT() at item {self.position} of partition {self.index}")
            case End():
                self.ended = True
            case _Pause():
                number = sum(isinstance(item, _Pause) for item in self._items[: self.position + 1])
                if _releases(self._directory) < number:
                    _create(self._directory / f"paused-{number}")
                    return False
        return True


class _Reader(SourceReader):
    def __init__(
        self, splits: list[_Split], batch_size: int | None, timestamp: Callable[[Any], int | None] | None
    ) -> None:
        self._splits = splits
        self._batch_size = batch_size
        self._timestamp = timestamp
        self._paused = False
        self._turn = 0
        self._batch_of: _Split | None = None
        self._batch_start = 0

    def poll(self, max_records: int, timeout: float) -> Any:
        self._batch_of = None
        if self._paused:
            time.sleep(timeout)
            return None
        most = max_records if self._batch_size is None else min(max_records, self._batch_size)
        for _ in self._splits:
            split = self._splits[self._turn % len(self._splits)]
            self._turn += 1
            values = split.take(most)
            if values:
                self._batch_of, self._batch_start = split, split.position - len(values)
                return self._batch(split.index, values)
        if all(split.ended for split in self._splits):
            return END
        time.sleep(timeout)
        return None

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        return [
            [split.index, self._batch_start + emitted if split is self._batch_of else split.position]
            for split in self._splits
        ]

    def splits(self) -> list[int]:
        return [split.index for split in self._splits if not split.ended]

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def _batch(self, split: int, values: list[Any]) -> SourceBatch:
        timestamps = None if self._timestamp is None else [self._timestamp(value) for value in values]
        return SourceBatch(values, timestamps, splits=split)


def _releases(directory: Path) -> int:
    path = directory / "releases"
    return path.stat().st_size if path.exists() else 0


def _create(path: Path) -> bool:
    """Whether the file did not exist before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _lists(values: Any, partitions: Any) -> Sequence[Iterable[Any]]:
    """
    Raises:
        ValueError: one isn't what it should be.
    """
    if not isinstance(values, Iterable):
        raise ValueError(f"values must be a list, not {values!r}")
    if partitions is None:
        return [values]
    if not isinstance(partitions, Sequence) or not all(isinstance(one, Iterable) for one in partitions):
        raise ValueError(f"partitions must be a list of lists, not {partitions!r}")
    return partitions
