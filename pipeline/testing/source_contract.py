"""`check_source_contract`: whether a source loses or doubles records, without Spark, in one test function."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa

from checkpoint.codec import decode
from pipeline.testing.contract import (
    ContractBroken,
    NoMetrics,
    Watchdog,
    canonical,
    check_unchanged,
    lost_and_doubled,
    pickled_copy,
    shown,
    wire,
)
from sources.source import End, Source, SourceBatch, SourceContext, SourceReader

_POLL_S: Final = 0.01
_SLOW_S: Final = 1.0
"""A poll without records that takes longer blocks; told only if the fastest of several does, which noise can't do."""
_IDLE_POLLS: Final = 5
_MOST: Final = 5
"""Records asked for at once: few, so that there are many positions."""
_RESCALES: Final = ((1, 2), (2, 1), (2, 3), (3, 2))
_SNAPSHOT_ADVICE: Final = (
    "let snapshot(checkpoint_id, emitted) return where to read on after the first `emitted` records of the batch last "
    "polled, and create_reader begin there; a poll that returns None or END begins an empty batch"
)


def check_source_contract(
    factory: Callable[[], Source],
    expected: Iterable[Any] | None = None,
    *,
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once",
    split_of: Callable[[Any], Any] | None = None,
    wait: float = 30.0,
) -> None:
    """Run a source's readers through everything that a job may do to them, and see that every record comes once.

    Args:
        factory: makes the definition, anew for every check; each one must give the same records. A few dozen are best
            (at least 12), and they should lie in several splits if the source has splits.
        expected: the records, in any order. Needed if the source is unbounded; by default what a first reader reads.
        delivery: "at_least_once" allows that records come again after a restore.
        split_of: a function of the record; records of one split must keep their order. By default the ids that the
            batches name, if the reader has `splits()`.
        wait: seconds within which the next records, or the end, must come.

    Raises:
        ContractBroken: a rule is broken: which, what was observed and what to do.
        ValueError: the source can't be checked with these arguments.
    """
    records = None if expected is None else list(expected)
    watchdog = Watchdog()
    watchdog.run(lambda: _Suite(factory, records, delivery == "exactly_once", split_of, wait, watchdog).run())


@dataclass
class _Position:
    """What a snapshot stands for."""

    state: Any
    """As `snapshot` returned it."""
    data: bytes
    """The same, encoded at once."""
    emitted: list[Any]
    """The records in front of it."""
    what: str


@dataclass
class _Tape:
    """What was read, in order."""

    values: list[Any] = field(default_factory=list)
    splits: dict[Any, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, values: Sequence[Any], splits: Sequence[Any] | None) -> None:
        self.values.extend(values)
        if splits is not None:
            for value, split in zip(values, splits, strict=True):
                self.splits[canonical(split)].append(canonical(value))


class _Run:
    """A reader and what a task would do with it."""

    def __init__(self, suite: _Suite, source: Source, subtask: int, parallelism: int, states: list[Any] | None) -> None:
        self._suite = suite
        suite.opens()
        ctx = SourceContext("contract", "source", subtask, parallelism, NoMetrics(), states, track_splits=True)
        self.reader: SourceReader = suite.call(
            "create_reader-returns", "create_reader", lambda: source.create_reader(ctx)
        )
        self.name = f"reader {subtask} of {parallelism}"
        self.tape = _Tape()
        """What it has emitted; the batch in hand counts up to `emitted`."""
        self.batch: list[Any] = []
        self.ended = False
        self._batch_splits: list[Any] | None = None
        self.emitted = 0
        self._last_id = 0

    def poll(self, most: int = _MOST, timeout: float = _POLL_S) -> bool:
        """Emit what is in hand and take the next batch; whether anything came."""
        self.emit_all()
        polled = self._suite.call(
            "poll-returns-in-time", f"poll of {self.name}", lambda: self.reader.poll(most, timeout)
        )
        self.batch, self._batch_splits, self.emitted = [], None, 0
        if self.ended and not isinstance(polled, End):
            raise ContractBroken(
                "end-is-for-ever",
                f"{self.name} returned {type(polled).__name__} from a poll after END",
                "return END from every poll once nothing will ever come; None if something may",
            )
        if isinstance(polled, End):
            self.ended = True
            return False
        if polled is None:
            return False
        batch = self._as_batch(polled)
        values = batch.values if isinstance(batch.values, list) else batch.values.to_pylist()
        if len(values) > most:
            raise ContractBroken(
                "poll-keeps-max-records",
                f"poll(max_records={most}) of {self.name} returned {len(values)} records",
                "return at most max_records; keep the rest for the next poll, behind the position that snapshot tells",
            )
        for name, column in (("timestamps", batch.timestamps), ("context", batch.context)):
            if column is not None and len(column) != len(values):
                self._bad_batch(f"{len(values)} values and {len(column)} {name}")
        wire(values, "batch-is-well-formed", "a record")
        splits = self._suite.call("splits-are-told", "splits", self.reader.splits)
        if splits is not None:
            if values and batch.splits is None:
                self._bad_splits(
                    f"splits() returned {list(splits)!r:.200}, but a batch doesn't say what it was read from"
                )
            ids = list(batch.splits) if isinstance(batch.splits, list) else [batch.splits] * len(values)
            if len(ids) != len(values):
                self._bad_batch(f"{len(values)} values and {len(ids)} splits")
            missing = {canonical(each) for each in ids} - {canonical(each) for each in splits}
            if missing:
                self._bad_splits(f"a batch has records of the splits {sorted(missing)}, splits() only {list(splits)!r}")
            self._batch_splits = ids
        self.batch = values
        return bool(values)

    def snapshot(self, emitted: int | None = None) -> _Position:
        """Emit the first records of the batch in hand (by default all) and take a snapshot, as a barrier does."""
        self.emit(len(self.batch) if emitted is None else emitted)
        self._last_id += 1
        state = self._suite.call(
            "snapshot-returns", "snapshot", lambda: self.reader.snapshot(self._last_id, self.emitted)
        )
        data = wire(state, "snapshot-is-plain", "what snapshot returned")
        what = f"{self.name} emitted {len(self.tape.values)} records, {self.emitted} of {len(self.batch)} of its batch"
        return _Position(state, data, list(self.tape.values), what)

    def emit(self, upto: int) -> None:
        if upto > self.emitted:
            splits = None if self._batch_splits is None else self._batch_splits[self.emitted : upto]
            self.tape.add(self.batch[self.emitted : upto], splits)
            self.emitted = upto

    def emit_all(self) -> None:
        self.emit(len(self.batch))

    def close(self) -> None:
        try:
            self._suite.call("close-releases", "close", self.reader.close)
        except Exception as error:
            raise ContractBroken(
                "close-releases",
                f"close() of {self.name} raised {error!r}",
                "let close() release whatever there is, also before the first poll and after a failure",
            ) from error
        self._suite.closed(self.name)

    def _as_batch(self, polled: Any) -> SourceBatch:
        if isinstance(polled, SourceBatch):
            return polled
        if isinstance(polled, list | pa.RecordBatch):
            return SourceBatch(polled)
        raise ContractBroken(
            "batch-is-well-formed",
            f"poll of {self.name} returned a {type(polled).__name__}",
            "return a SourceBatch, a list, a record batch, END or None",
        )

    def _bad_batch(self, observed: str) -> None:
        raise ContractBroken(
            "batch-is-well-formed", f"a batch has {observed}", "give all columns of a SourceBatch the same length"
        )

    def _bad_splits(self, observed: str) -> None:
        raise ContractBroken(
            "splits-are-told",
            observed,
            "return every split from which records may still come, those of the batch last polled among them, and name "
            "them in SourceBatch.splits; else the watermark passes records, which are then dropped as late",
        )


class _Suite:
    def __init__(
        self,
        factory: Callable[[], Source],
        expected: list[Any] | None,
        exact: bool,
        split_of: Callable[[Any], Any] | None,
        wait: float,
        watchdog: Watchdog,
    ) -> None:
        self._factory = factory
        self._exact = exact
        self._split_of = split_of
        self._wait = wait
        self._watchdog = watchdog
        self._expected: list[Any] = expected or []
        self._known = expected is not None
        self._bounded = True
        self._order: dict[Any, list[str]] = {}
        self._as_text: set[str] = set()
        self._open = 0
        """Readers that are open now."""
        self._threads: set[threading.Thread] = set()
        """Those that ran before the first of them was made."""

    def call(self, rule: str, what: str, function: Callable[[], Any]) -> Any:
        return self._watchdog.call(rule, what, "wait for at most the timeout given; never for ever", function)

    def run(self) -> None:
        self._check_definition()
        self._read_all()
        if len(self._expected) < 12:
            raise ValueError(
                f"the source has {len(self._expected)} records; check_source_contract needs at least 12, so that there "
                "are positions to restore"
            )
        self._check_every_attempt_reads_the_same()
        self._check_nothing_to_restore()
        self._check_snapshots()
        self._check_snapshots_stay()
        self._check_empty_batches()
        self._check_pause()
        self._check_notifications()
        for old, new in _RESCALES:
            self._check_rescaling(old, new)
        self._check_rescaling_twice()
        self._check_close()

    # -- definition ---------------------------------------------------------------------------------------------

    def _source(self) -> Source:
        """As the subtasks get it."""
        source = self._factory()
        self.call("validate-changes-nothing", "validate", source.validate)
        resolved: Source = pickled_copy(self.call("resolve-is-stable", "resolve", source.resolve), "the source")[1]
        return resolved

    def _check_definition(self) -> None:
        source = self._factory()
        if not isinstance(source, Source):
            raise TypeError(f"the factory returned a {type(source).__name__}; it must make a Source")
        before, _ = pickled_copy(source, "the source")
        self.call("validate-changes-nothing", "validate", source.validate)
        check_unchanged(source, before, "validate")
        resolved = self.call("resolve-is-stable", "resolve", source.resolve)
        if not isinstance(resolved, Source):
            raise ContractBroken(
                "resolve-is-stable",
                f"resolve() returned a {type(resolved).__name__}",
                "return a copy of the definition, or itself",
            )
        check_unchanged(source, before, "resolve")
        pickled_copy(resolved, "what resolve() returned")
        self._bounded = source.bounded
        if not self._bounded and not self._known:
            raise ValueError("the source is unbounded: tell check_source_contract the records that are `expected`")

    # -- reading ------------------------------------------------------------------------------------------------

    def opens(self) -> None:
        """A reader is about to be made."""
        if not self._open:
            self._threads = set(threading.enumerate())
        self._open += 1

    def closed(self, reader: str) -> None:
        """Once none is open, the threads of all of them must be gone: whose they are can't be told earlier."""
        self._open -= 1
        if self._open:
            return
        deadline = time.monotonic() + 5.0
        while left := [t for t in threading.enumerate() if t not in self._threads and t.is_alive()]:
            if time.monotonic() > deadline:
                raise ContractBroken(
                    "close-releases",
                    f"threads were running 5 s after close() of {reader}, when no reader was open any more: "
                    f"{[t.name for t in left]}",
                    "stop and join them in close()",
                )
            left[0].join(0.1)

    def _reader(
        self, source: Source, subtask: int = 0, parallelism: int = 1, states: Sequence[bytes] | None = None
    ) -> _Run:
        restored = None if states is None else [decode(data) for data in states]
        return _Run(self, source, subtask, parallelism, restored)

    def _finish(self, runs: Sequence[_Run], wanted: int | None) -> None:
        """Read the rest: to the end, or until so many records came and no more do."""
        deadline = time.monotonic() + self._wait
        while not all(run.ended for run in runs):
            came = False
            for run in runs:
                if not run.ended:
                    came |= run.poll()
                    run.emit_all()
                    self._check_end(run)
            now = time.monotonic()
            if came or all(run.ended for run in runs):
                deadline = now + self._wait
            elif not self._bounded and wanted is not None and sum(len(r.tape.values) for r in runs) >= wanted:
                break
            elif now > deadline:
                if self._bounded:
                    waiting = ", ".join(run.name for run in runs if not run.ended)
                    raise ContractBroken(
                        "end-comes-everywhere",
                        f"no record and no END within {self._wait:g} s from {waiting}",
                        "return END once nothing will ever come, in readers without a split at once; or set "
                        "bounded = False",
                    )
                break
        for run in runs:
            self._idle(run)

    def _idle(self, run: _Run) -> None:
        """Nothing is there: polls return in time, and END stays END."""
        fastest = float("inf")
        for _ in range(_IDLE_POLLS):
            started = time.monotonic()
            came = run.poll(1, _POLL_S)
            fastest = fastest if came else min(fastest, time.monotonic() - started)
        if _SLOW_S < fastest < float("inf"):
            raise ContractBroken(
                "poll-returns-in-time",
                f"each of {_IDLE_POLLS} polls with a timeout of {_POLL_S:g} s took {run.name} {fastest:.1f} s",
                "wait for at most `timeout` seconds: a barrier has to wait as long as a poll does",
            )

    def _check_end(self, run: _Run) -> None:
        if run.ended and not self._bounded:
            raise ContractBroken(
                "bounded-tells-the-truth",
                f"{run.name} returned END, but the source says bounded = False",
                "set bounded = True if the readers end by themselves, or return None as long as something may come",
            )

    def _compare(self, rule: str, what: str, advice: str, tapes: Sequence[_Tape], *, again: bool = False) -> None:
        """See that the tapes together have every record once, in the order of their splits.

        Args:
            again: there was a restore in between.
        """
        found = [value for tape in tapes for value in tape.values]
        lost, doubled = lost_and_doubled(self._expected, found)
        if again and not self._exact and not lost:
            doubled = [each for each in doubled if each not in self._as_text]
        if lost or doubled:
            parts = [f"lost: {shown(lost)}"] if lost else []
            parts += [f"too often, or not expected: {shown(doubled)}"] if doubled else []
            raise ContractBroken(rule, f"{what}; {'; '.join(parts)}", advice)
        if self._exact or not again:
            self._compare_order(what, tapes)

    def _compare_order(self, what: str, tapes: Sequence[_Tape]) -> None:
        order: dict[Any, list[str]] = defaultdict(list)
        for tape in tapes:
            if self._split_of is not None:
                for value in tape.values:
                    order[canonical(self._split_of(value))].append(canonical(value))
            else:
                for split, values in tape.splits.items():
                    order[split] += values
        for split, values in order.items():
            first = self._order.setdefault(split, values)
            if values != first and sorted(values) == sorted(first):
                at = next(i for i, pair in enumerate(zip(first, values, strict=True)) if pair[0] != pair[1])
                raise ContractBroken(
                    "order-within-a-split",
                    f"{what}; split {split} came in another order from record {at} on: {values[at]}, not {first[at]}",
                    "read a split by one reader at a time, in the same order every time",
                )

    def _read_all(self) -> None:
        run = self._reader(self._source())
        self._finish([run], len(self._expected))
        run.close()
        if not self._known:
            self._expected = run.tape.values
        self._as_text = {canonical(value) for value in self._expected}
        self._compare(
            "every-record-once",
            "one reader read from the start",
            "hand over each record once; `expected` must list all that the source holds, in the form that poll returns",
            [run.tape],
        )

    def _check_every_attempt_reads_the_same(self) -> None:
        """Until the first checkpoint every attempt starts from nothing."""
        source = self._source()
        for attempt in (1, 2):
            runs = [self._reader(source, subtask, 3) for subtask in range(3)]
            self._finish(runs, len(self._expected))
            for run in runs:
                run.close()
            self._compare(
                "resolve-is-stable" if attempt == 2 else "every-record-once",
                f"three readers read from the start, for the {'first' if attempt == 1 else 'second'} time",
                "deal the splits among the subtasks so that each has one reader; what depends on the moment (where "
                '"latest" is) must be fixed by resolve()',
                [run.tape for run in runs],
            )

    def _check_nothing_to_restore(self) -> None:
        """A checkpoint that is older than the source has nothing of it."""
        source = self._source()
        runs = [self._reader(source, subtask, 2, []) for subtask in range(2)]
        self._finish(runs, len(self._expected))
        for run in runs:
            run.close()
        self._compare(
            "every-record-once",
            "two readers were made with restored=[], of a checkpoint that has nothing of this source",
            "begin at the start where `ctx.restored` is empty, as where it is None",
            [run.tape for run in runs],
        )

    # -- snapshots ----------------------------------------------------------------------------------------------

    def _check_snapshots(self) -> None:
        """Each position in some batches, then a restore of each: exactly the rest."""
        source = self._source()
        positions: list[_Position] = []
        run = self._reader(source)
        positions.append(run.snapshot())
        batches = 0
        deadline = time.monotonic() + self._wait
        while not run.ended and len(run.tape.values) < len(self._expected) and time.monotonic() < deadline:
            if run.poll(_MOST if batches else 3):
                deadline = time.monotonic() + self._wait
                batches += 1
                size = len(run.batch)
                cuts = sorted({0, 1, size // 2, size}) if batches <= 2 else [size // 2]
                positions += [run.snapshot(emitted) for emitted in cuts]
                run.emit_all()
        self._finish([run], len(self._expected))
        positions.append(run.snapshot())
        run.close()
        self._compare(
            "snapshot-changes-nothing",
            "snapshots were taken while one reader read",
            "let snapshot only tell the position; the reader goes on behind the batch it has polled",
            [run.tape],
        )
        middle = positions[8:-1]
        chosen = positions[:8] + middle[:: max(1, len(middle) // 3)] + positions[-1:]
        for position in chosen:
            again = self._reader(source, states=[position.data])
            self._finish([again], len(self._expected) - len(position.emitted))
            again.close()
            self._compare(
                "restore-gives-the-rest",
                f"snapshot after {position.what}, then a restore of it that read {len(again.tape.values)} records",
                _SNAPSHOT_ADVICE,
                [self._prefix(run.tape, len(position.emitted)), again.tape],
                again=True,
            )

    def _prefix(self, tape: _Tape, length: int) -> _Tape:
        """The tape's first records; split by split, too."""
        left = length
        prefix = _Tape(tape.values[:length])
        counts: dict[str, int] = defaultdict(int)
        for value in prefix.values:
            counts[canonical(value)] += 1
        for split, values in tape.splits.items():
            for value in values:
                if left and counts[value]:
                    counts[value] -= 1
                    left -= 1
                    prefix.splits[split].append(value)
        return prefix

    def _check_snapshots_stay(self) -> None:
        run = self._reader(self._source())
        taken = [run.snapshot()]
        while len(run.tape.values) < len(self._expected) // 2 and self._poll_until_some(run):
            taken.append(run.snapshot(len(run.batch) // 2))
            run.emit_all()
        self._finish([run], len(self._expected))
        run.close()
        for position in taken:
            if wire(position.state, "snapshot-stays-as-it-is", "a snapshot, later") != position.data:
                raise ContractBroken(
                    "snapshot-stays-as-it-is",
                    f"what snapshot returned (after {position.what}) was changed by later calls",
                    "return a copy: the checkpoint is written while the reader goes on",
                )

    def _check_empty_batches(self) -> None:
        """A poll that returns nothing has emitted everything in front of it: `emitted` is 0 from then on."""
        source = self._source()
        run = self._reader(source)
        self._poll_until_some(run)
        run.reader.pause()
        self._poll_paused(run)
        position = run.snapshot()
        before = self._prefix(run.tape, len(run.tape.values))
        run.close()
        again = self._reader(source, states=[position.data])
        self._finish([again], len(self._expected) - len(position.emitted))
        again.close()
        self._compare(
            "restore-gives-the-rest",
            "snapshot(…, emitted=0) after a poll that returned None (the reader was paused), then a restore of it",
            _SNAPSHOT_ADVICE,
            [before, again.tape],
            again=True,
        )

    def _poll_until_some(self, run: _Run) -> bool:
        deadline = time.monotonic() + self._wait
        while not run.ended:
            if run.poll():
                return True
            if time.monotonic() > deadline:
                break
        return False

    # -- gate, notifications ------------------------------------------------------------------------------------

    def _poll_paused(self, run: _Run) -> None:
        fastest = float("inf")
        for _ in range(_IDLE_POLLS):
            started = time.monotonic()
            if run.poll(1, 0.0) or run.ended:
                raise ContractBroken(
                    "pause-holds",
                    f"{run.name} returned {'END' if run.ended else 'records'} from a poll between pause() and resume()",
                    "return None from poll while the gate is closed: what is emitted then lies behind a barrier that "
                    "should have come first",
                )
            fastest = min(fastest, time.monotonic() - started)
        if fastest > _SLOW_S:
            raise ContractBroken(
                "poll-returns-in-time",
                f"each of {_IDLE_POLLS} polls with a timeout of 0 s took the paused {run.name} {fastest:.1f} s",
                "wait for at most `timeout` seconds",
            )

    def _check_pause(self) -> None:
        run = self._reader(self._source())
        for _ in range(3):
            # The gate may close while a batch is in hand.
            if not self._poll_until_some(run):
                break
            run.snapshot(len(run.batch) // 2)
            if len(run.tape.values) + len(run.batch) >= len(self._expected):
                break
            run.reader.pause()
            self._poll_paused(run)
            run.reader.resume()
        self._finish([run], len(self._expected))
        run.close()
        self._compare(
            "pause-loses-nothing",
            "a reader was paused and resumed between batches",
            "let resume() go on exactly behind the batch last polled",
            [run.tape],
        )

    def _check_notifications(self) -> None:
        """Completions that come late, twice, never, for unknown checkpoints; aborts."""
        source = self._source()
        run = self._reader(source)
        number = 0
        completed: _Position | None = None
        waiting: list[tuple[int, _Position]] = []
        run.reader.on_checkpoint_complete(987_654)  # of an earlier attempt
        while len(run.tape.values) < len(self._expected) * 2 // 3 and self._poll_until_some(run):
            position = run.snapshot(len(run.batch) // 2)
            number += 1
            if number % 3 == 2:
                run.reader.on_checkpoint_aborted(number)
            elif number % 3 == 1:
                waiting.append((number, position))
            if len(waiting) > 1:
                late, completed = waiting.pop(0)
                run.reader.on_checkpoint_complete(late)
                run.reader.on_checkpoint_complete(late)
            run.emit_all()
        for late, position in waiting:
            completed = position
            run.reader.on_checkpoint_complete(late)
        length = len(completed.emitted) if completed else 0
        self._finish([run], len(self._expected))
        run.close()
        advice = "let on_checkpoint_complete and on_checkpoint_aborted change nothing of what is read"
        self._compare(
            "notifications-change-nothing", "checkpoints completed late, twice, or were aborted", advice, [run.tape]
        )
        if completed is not None:
            again = self._reader(source, states=[completed.data])
            self._finish([again], len(self._expected) - length)
            again.close()
            self._compare(
                "notifications-change-nothing",
                f"restore of a checkpoint that was completed (after {completed.what})",
                "release only what lies in front of the position that the completed checkpoint holds",
                [self._prefix(run.tape, length), again.tape],
                again=True,
            )

    # -- rescaling ----------------------------------------------------------------------------------------------

    def _partly(self, source: Source, parallelism: int, states: Sequence[bytes] | None, most: int) -> list[_Run]:
        """Readers, some of which have emitted a little; the first one nothing."""
        runs = [self._reader(source, subtask, parallelism, states) for subtask in range(parallelism)]
        for run in runs[1 if parallelism > 2 else 0 :]:
            deadline = time.monotonic() + min(self._wait, 2.0)
            while len(run.tape.values) < most and not run.ended and time.monotonic() < deadline:
                if run.poll(3):
                    run.emit(max(1, len(run.batch) // 2))
        return runs

    def _states(self, runs: Sequence[_Run]) -> list[bytes]:
        return [run.snapshot(run.emitted).data for run in runs]

    def _check_rescaling(self, old: int, new: int) -> None:
        source = self._source()
        before = self._partly(source, old, None, len(self._expected) // (3 * old))
        states = self._states(before)
        tapes = [run.tape for run in before]
        for run in before:
            run.close()
        after = [self._reader(source, subtask, new, states) for subtask in range(new)]
        self._finish(after, len(self._expected) - sum(len(tape.values) for tape in tapes))
        for run in after:
            run.close()
        self._compare_rescaled(f"{old} readers read a part, {new} the rest", [*tapes, *(run.tape for run in after)])

    def _check_rescaling_twice(self) -> None:
        """The positions of splits that a reader doesn't have must get through it."""
        source = self._source()
        tapes: list[_Tape] = []
        states: list[bytes] | None = None
        for parallelism in (2, 3, 1):
            runs = self._partly(source, parallelism, states, len(self._expected) // (6 * parallelism))
            states = self._states(runs)
            tapes += [run.tape for run in runs]
            for run in runs:
                run.close()
        last = self._reader(source, 0, 2, states), self._reader(source, 1, 2, states)
        self._finish(last, len(self._expected) - sum(len(tape.values) for tape in tapes))
        for run in last:
            run.close()
        self._compare_rescaled("2, 3 and 1 readers read parts, 2 the rest", [*tapes, *(run.tape for run in last)])

    def _compare_rescaled(self, what: str, tapes: Sequence[_Tape]) -> None:
        self._compare(
            "rescaling-deals-splits-anew",
            what,
            "every new reader is given the snapshots of all old ones: keep positions by split, deal the splits by "
            "`subtask` and `parallelism`, and take over the position of each split that is one's own now",
            tapes,
            again=True,
        )

    # -- end ----------------------------------------------------------------------------------------------------

    def _check_close(self) -> None:
        source = self._source()
        self._reader(source).close()
        polled = self._reader(source)
        self._poll_until_some(polled)
        polled.reader.pause()
        polled.close()
        # Closing must not move anything outside: what was polled and not in a checkpoint comes again.
        run = self._reader(source)
        self._finish([run], len(self._expected))
        run.close()
        self._compare(
            "close-moves-nothing",
            "a reader was closed with a batch in hand and no checkpoint, and another one began",
            "let close() only release; what no checkpoint covers must be read again",
            [run.tape],
        )
