"""The source contract: a definition built by the user on the driver, and a reader created in each subtask."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pyarrow as pa

from checkpoint.metrics import MetricSink
from checkpoint.waiting import Waiting

if TYPE_CHECKING:
    # With a default, a plain `Source` is one of anything; Python 3.11 has no such variables at run time.
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=Any, covariant=True)
else:
    T = TypeVar("T", covariant=True)

MAX_FETCH_RECORDS: Final = 10_000
"""The most that one `SourceReader.poll` is asked for."""


class End:
    """The type of `END`, which `SourceReader.poll` returns once nothing will ever come again."""

    def __repr__(self) -> str:
        return "END"

    def __reduce__(self) -> str:
        return "END"  # there is one, in every process


END: Final = End()
"""What `SourceReader.poll` returns once nothing will ever come again."""


@dataclass(slots=True)
class SourceBatch:
    """Records as a reader hands them over, column-wise. All lists given have the length of `values`.

    Attributes:
        values: decoded records: values of Python's plain types (docs/state.md); or a batch with a row for each, which
            reaches `map_batches` steps as it is, and others row by row.
        timestamps: milliseconds since the epoch; `None` = the source knows none.
        size: bytes of the records as fetched; counts towards `max_span_bytes`. 0 = unknown: the runtime estimates.
        context: one object a record, whose public attributes operators chained to the source see on `ctx`
            (`KafkaSource`: headers, topic, partition, offset, kafka_key).
        splits: what each record was read from (of Kafka: its partition), as `SourceReader.splits` names it: a list with
            one id a record, or the id for all of them. Needed only if `SourceContext.track_splits`. An id is a string,
            a number or a tuple of these.
    """

    values: list[Any] | pa.RecordBatch
    timestamps: list[int | None] | None = None
    size: int = 0
    context: Sequence[Any] | None = None
    splits: Any = None

    def __len__(self) -> int:
        return len(self.values)  # of a record batch: its rows


@dataclass(frozen=True)
class SourceContext:
    """What a reader knows of its place in the job.

    Attributes:
        pipeline: its name.
        source_id: the source step's id in the pipeline.
        subtask: index of this subtask, 0 <= subtask < parallelism.
        parallelism: subtasks of the source.
        metrics: where a reader counts.
        restored: `None` at a start without restore; else what `snapshot` returned, one entry for each old subtask whose
            state comes here (several, or none, after rescaling; every new subtask may be given all of them).
        max_fetch_records: the most that one `poll` is asked for.
        track_splits: watermarks are made split by split, so batches must say what splits their records are from.
        waiting: where a reader says what it waits for that lies outside of the job, such as brokers that are down.
    """

    pipeline: str
    source_id: str
    subtask: int
    parallelism: int
    metrics: MetricSink
    restored: Sequence[Any] | None = None
    max_fetch_records: int = MAX_FETCH_RECORDS
    track_splits: bool = False
    waiting: Waiting = field(default_factory=Waiting)


class SourceReader(ABC):
    """Reads in one subtask. All methods are called by the task thread, so none needs a lock."""

    @abstractmethod
    def poll(self, max_records: int, timeout: float) -> SourceBatch | list[Any] | pa.RecordBatch | End | None:
        """The next records, at most `max_records`; waits at most `timeout` seconds (10 ms as a rule).

        Returns what is there as soon as anything is there, `None` when there is nothing yet, `END` when nothing
        will ever come (then on every later call, too). Is not called while an earlier batch isn't wholly emitted.

        Raises:
            Exception: anything raised fails the attempt; nothing polled before is lost.
        """

    @abstractmethod
    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        """The position after the first `emitted` records of the batch last polled, of plain types (docs/state.md).

        A barrier may fall in the middle of a polled batch: the records behind it have not left the source, so they
        must be read again after a restore of this checkpoint.
        """

    def splits(self) -> Sequence[Any] | None:
        """Ids of the splits from which records may still come, those of the batch last polled among them; a split that
        ended or went to another subtask is not. `None`: the reader has no splits, or doesn't tell them apart.

        The watermark waits for each of them, so one that is missing may make its records late.
        """
        return None

    def waiting_splits(self) -> Collection[Any]:
        """Those of `splits` of which records are there that have not been polled, as far as the reader knows. Those of
        the batch last polled may be among them.

        They don't fall idle (`WatermarkStrategy(idle_after=…)`), however long records of others come first.
        """
        return ()

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is durable. May be called late, twice, or (after a crash) never."""

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint won't complete."""

    def pause(self) -> None:
        """The source gate closed: fetch no more until `resume`; `poll` goes on being called and returns `None`."""

    def resume(self) -> None:
        """The source gate opened."""

    def close(self) -> None:
        """Release everything. Called exactly once, also after a failure."""


class Source(ABC, Generic[T]):
    """A source's definition: serialisable, holds no clients or open files. Of records of type T, for type checkers."""

    active_backpressure: bool = True
    """Whether the runtime's source gate may stop this source (see docs/backpressure.md)."""
    span_window: bool = True
    """Whether the gate also learns how many records a checkpoint may span, and asks for checkpoints to do so; `False` =
    it goes by time and the limits here only."""
    max_span_records: int | None = None
    """The most records between two barriers of one subtask, `None` = no limit of yours."""
    max_span_bytes: int | None = None
    bounded: bool = False
    """Whether the reader ends by itself."""
    skips_ahead: bool = False
    """Whether a start without restore begins behind what an earlier run has read (the offsets of a consumer group), so
    that whatever that run had read and not delivered would be skipped."""

    fresh_records: bool = False
    """Whether each record is made anew, of nothing but None, bool, numbers, str, bytes, lists, and dicts with str keys,
    and kept by nobody: the step behind the source then gets it without a copy."""

    def validate(self) -> None:
        """Check on the driver, before anything starts, what can be checked (a broker answers, a topic exists).

        Raises:
            ValueError | RuntimeError: with what to do about it.
        """

    def resolve(self) -> Source:
        """Fix what must be the same in every attempt of a run, such as where "latest" is: a copy of the definition
        that says so, or itself. Called once on the driver, at a start for which no checkpoint has state of the source.

        Until the first checkpoint every attempt starts from nothing. Would each look for "latest" itself, what the
        last one had read and not delivered would be skipped. For the same reason what it has settled is recorded in the
        job's folder before the first record is read: a later start that finds no checkpoint with the source calls
        `with_resolution` in place of this.

        Raises:
            ValueError | RuntimeError: with what to do about it.
        """
        return self

    def resolution(self, resolved: Source) -> Any:
        """What `resolve` has settled: a value that state can hold (see docs/state.md), from which `with_resolution`
        makes `resolved` again, perhaps in another process. By default all attributes of it that aren't this
        definition's own.

        Raises:
            TypeError: it can't be told. The job runs, but a start after one that had no checkpoint begins anew.
        """
        if type(resolved) is not type(self):
            raise TypeError(f"resolve() has made a {type(resolved).__name__} of a {type(self).__name__}")
        mine, settled = _attributes(self), _attributes(resolved)
        if gone := mine.keys() - settled.keys():
            raise TypeError(f"resolve() has removed the attribute {min(gone)!r}")
        return {name: value for name, value in settled.items() if name not in mine or not _same(value, mine[name])}

    def with_resolution(self, resolution: Any) -> Source:
        """A copy of the definition that begins and ends where an earlier start has settled it.

        Args:
            resolution: what `resolution` has returned then.

        Raises:
            ValueError | RuntimeError: that can't be gone on from, with what to do about it.
        """
        resolved = copy.copy(self)
        for name, value in resolution.items():
            if isinstance(getattr(type(self), name, None), MemberDescriptorType):  # one of its __slots__
                object.__setattr__(resolved, name, value)  # frozen dataclasses allow no other way
            else:
                vars(resolved)[name] = value
        return resolved

    def start_settings(self) -> Mapping[str, Any]:
        """The settings that `resolve` depends on, by name: if one is another at a later start, the source begins anew
        there, and the job's log says so. Only salted hashes of them are kept. By default all attributes."""
        return _attributes(self)

    @abstractmethod
    def create_reader(self, ctx: SourceContext) -> SourceReader:
        """Called in the subtask, after the fork; create clients here."""


def _attributes(source: Source) -> dict[str, Any]:
    """Those in `__slots__` among them, but not the type that it was made with, as in `MySource[Order](…)`."""
    state = object.__getstate__(source)
    plain, slots = state if isinstance(state, tuple) else (state, None)
    return {name: value for name, value in {**(plain or {}), **(slots or {})}.items() if name != "__orig_class__"}


def _same(one: Any, other: Any) -> bool:
    """Whether an attribute is still what it was; of what can't be compared only the same object is."""
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:
        return False


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source has read one of its splits, in terms that its user knows (`sources.positions`)."""

    split: str
    """What is read, such as `topic[partition]` of Kafka."""
    next: int
    """What comes next: for Kafka the next offset to read, for a sequence the next id."""
    end: int | None = None
    """The first one not to read; `None` = unbounded, or not part of the snapshot."""
    ended: bool = False
    """Nothing is left to read."""
