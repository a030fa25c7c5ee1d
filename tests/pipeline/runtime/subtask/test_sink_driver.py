"""A sink step in a subtask: slices, epochs, the committing thread, and how it is held back."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from deadlines import PATIENCE

from checkpoint.codec import encode_key
from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.storage.handles import FileHandle
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.mail import CommittersOpened, Failure
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.sink_driver import SinkDriver
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.testing import ManualClock
from sinks import Committer, SinkWriter
from sinks.sink import SinkBatch


class ListWriter(SinkWriter):
    """One committable an epoch, if there was a record."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.closed = False

    def write(self, value: Any, ctx: Any) -> None:
        self.rows.append(value)

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        rows, self.rows = self.rows, []
        return [rows] if rows else []

    def close(self) -> None:
        self.closed = True


class BatchWriter(ListWriter):
    """Takes slices, each of which takes as long as the clock is told to advance for a row."""

    def __init__(self, clock: ManualClock, seconds_a_row: float) -> None:
        super().__init__()
        self.clock, self.seconds_a_row = clock, seconds_a_row
        self.slices: list[SinkBatch] = []

    def write_batch(self, batch: SinkBatch) -> None:
        self.slices.append(batch)
        self.rows += batch.values
        self.clock.advance(self.seconds_a_row * len(batch))


@dataclass
class Store:
    """What committers of one sink share."""

    committed: list[tuple[int, int, list[Any]]] = field(default_factory=list)
    """(writer, checkpoint id, payloads), in order."""
    opened: dict[int, list[CommittableName]] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)
    gate: threading.Semaphore | None = None
    """If given, each commit takes a permit first."""
    highest: dict[int, int] = field(default_factory=dict)
    """The largest checkpoint that a committer knows of, by writer."""
    still_pending: Callable[[Sequence[Committable]], Sequence[Committable]] = lambda restored: restored
    refresh_interval: float | None = None
    refreshed: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    """Writers."""


class StoreCommitter(Committer):
    def __init__(self, store: Store, writer: int) -> None:
        self.store, self.writer = store, writer

    def open(self, restored: Sequence[Committable]) -> Sequence[Committable]:
        self.store.opened[self.writer] = [one.name for one in restored]
        return self.store.still_pending(restored)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        if self.store.gate is not None:
            assert self.store.gate.acquire(timeout=PATIENCE)
        self.store.committed.append((self.writer, checkpoint_id, [one.payload for one in committables]))

    @property
    def refresh_interval(self) -> float | None:
        return self.store.refresh_interval

    def refresh(self) -> None:
        self.store.refreshed.put(self.writer)

    def highest_checkpoint(self) -> int:
        return self.store.highest.get(self.writer, 0)

    def snapshot(self) -> Any:
        return {"committed": len(self.store.committed)}

    def close(self) -> None:
        self.store.closed.append(self.writer)


class Subtask:
    """A driver with what surrounds it. Everything that it reports is in lists and can be awaited."""

    def __init__(
        self,
        writer: SinkWriter | None = None,
        store: Store | None = None,
        make_committer: Callable[[int], Committer | None] | None = None,
        pending: dict[int, list[Committable]] | None = None,
        states: dict[int, Any] | None = None,
        own: int = 0,
    ) -> None:
        self.clock = ManualClock()
        self.store = store or Store()
        self.writer = writer or ListWriter()
        self.record = RecordInProgress()
        self.mailbox = Mailbox()
        self.metrics = TaskMetrics(self.clock)
        self.reports: list[tuple[int, int, bool]] = []
        self.epochs_out: list[int] = []
        self._change = threading.Condition()
        self.driver = SinkDriver(
            "out",
            own,
            self.writer,
            make_committer or (lambda writer: StoreCommitter(self.store, writer)),
            SinkState(pending or {}, states or {}),
            Context(self.record, own, 4),
            self.record,
            self.mailbox,
            self.metrics,
            self._committed,
            self._epoch_out,
        )

    def _committed(self, step: str, checkpoint_id: int, waiting: int, records: bool) -> None:
        with self._change:
            self.reports.append((checkpoint_id, waiting, records))
            self._change.notify_all()

    def _epoch_out(self, step: str, epoch: int) -> None:
        with self._change:
            self.epochs_out.append(epoch)
            self._change.notify_all()

    def wait(self, wanted: Callable[[], bool]) -> None:
        with self._change:
            assert self._change.wait_for(wanted, PATIENCE)

    def next_mail(self) -> Any:
        """The next mail that the committing thread posts."""
        while not self.mailbox.mail:
            self.mailbox.wait(PATIENCE)
        return self.mailbox.mail.popleft()

    def start(self, release_new: bool = True) -> CommittersOpened:
        self.driver.start()
        opened = self.next_mail()
        assert isinstance(opened, CommittersOpened), opened
        if release_new:
            self.driver.release_new()
        return opened

    def write(self, *values: Any) -> None:
        for value in values:
            self.driver.push(value)


@pytest.fixture
def subtask() -> Iterator[Callable[..., Subtask]]:
    made: list[Subtask] = []

    def make(*args: Any, **kwargs: Any) -> Subtask:
        made.append(Subtask(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        if one.store.gate is not None:
            one.store.gate.release(100)
        one.driver.close()


def segment(epoch: int, payload: Any, index: int = 0, files: tuple[FileHandle, ...] = ()) -> Committable:
    return Committable(CommittableName(epoch, index), payload, files)


# -- records --------------------------------------------------------------------------------------------------


def test_a_writer_without_batches_gets_each_record_with_its_context(subtask: Any) -> None:
    seen: list[Any] = []

    class Noting(ListWriter):
        def write(self, value: Any, ctx: Any) -> None:
            seen.append((value, ctx.timestamp, ctx.key))

    one = subtask(Noting())
    one.record.timestamp, one.record.key_bytes = 5, encode_key("k")
    one.write("a")
    assert seen == [("a", 5, "k")]
    assert one.driver.records == 1


def test_slices_grow_while_they_are_quick_and_shrink_to_what_fits_the_time(subtask: Any) -> None:
    clock = ManualClock()
    writer = BatchWriter(clock, seconds_a_row=1 / 1024)
    one = subtask(writer)
    one.driver._metrics = one.metrics = TaskMetrics(clock)
    one.write(*range(60))
    assert [len(batch) for batch in writer.slices[:6]] == [1, 2, 4, 8, 10, 10]
    writer.seconds_a_row = 1 / 64
    writer.slices.clear()
    one.write(*range(20))
    assert len(writer.slices[-1]) == 1


def test_a_slice_carries_timestamps_and_keys_record_by_record(subtask: Any) -> None:
    clock = ManualClock()
    writer = BatchWriter(clock, 0.0)
    one = subtask(writer)
    one.write("first")
    for value, timestamp, key in (("a", 1, "x"), ("b", None, 7)):
        one.record.timestamp, one.record.key_bytes = timestamp, encode_key(key)
        one.write(value)
    batch = writer.slices[-1]
    assert (batch.values, batch.timestamps, batch.keys) == (["a", "b"], [1, None], ["x", 7])


def test_leaving_the_record_loop_hands_over_what_is_buffered(subtask: Any) -> None:
    writer = BatchWriter(ManualClock(), 0.0)
    one = subtask(writer)
    one.write(1, 2)
    assert writer.rows == [1]
    one.driver.write_slice()
    one.driver.write_slice()
    assert writer.rows == [1, 2]
    assert one.driver.records == 2


def test_a_record_that_the_writer_refuses_fails_in_the_task_thread(subtask: Any) -> None:
    class Refusing(ListWriter):
        def write(self, value: Any, ctx: Any) -> None:
            raise ValueError(f"too large: {value}")

    with pytest.raises(ValueError, match="too large: x"):
        subtask(Refusing()).write("x")


# -- epochs ---------------------------------------------------------------------------------------------------


def test_what_lies_before_a_barrier_is_committed_once_its_checkpoint_is_complete(subtask: Any) -> None:
    one = subtask()
    one.start()
    one.write("a", "b")
    one.driver.snapshot(1)
    one.write("c")
    one.driver.snapshot(2)
    assert one.store.committed == []
    one.driver.complete(1)
    one.driver.complete(2)
    one.wait(lambda: len(one.reports) == 2)
    assert one.store.committed == [(0, 1, [["a", "b"]]), (0, 2, [["c"]])]
    assert [(id, records) for id, _, records in one.reports] == [(1, True), (2, True)]


def test_rows_in_a_half_filled_slice_belong_to_the_epoch_before_the_barrier(subtask: Any) -> None:
    """They left the operator before the barrier."""
    one = subtask(BatchWriter(ManualClock(), 0.0))
    one.start()
    one.write(1, 2)
    wire, _ = one.driver.snapshot(1)
    assert wire["pending"] == [[0, [[[1, 0], [1, 2], []]]]]


def test_an_empty_epoch_is_committed_too_so_that_a_marker_can_advance(subtask: Any) -> None:
    one = subtask()
    one.start()
    one.driver.snapshot(1)
    one.driver.complete(1)
    one.wait(lambda: len(one.reports) == 1)
    assert one.store.committed == [(0, 1, [])]
    assert one.reports == [(1, 0, False)]


def test_what_an_aborted_checkpoint_held_goes_out_with_the_next_one(subtask: Any) -> None:
    one = subtask()
    one.start()
    one.write("a")
    one.driver.snapshot(1)
    one.write("b")
    wire, _ = one.driver.snapshot(2)
    assert [name for name, _, _ in wire["pending"][0][1]] == [[1, 0], [2, 0]]
    one.driver.complete(2)
    one.wait(lambda: len(one.reports) == 1)
    assert one.store.committed == [(0, 2, [["a"], ["b"]])]


def test_a_snapshot_holds_all_that_is_not_committed_the_files_and_the_committers_states(subtask: Any) -> None:
    file = FileHandle("shared/1-out-0.arrow", 10, "c")

    class Staging(ListWriter):
        def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
            return [({"n": checkpoint_id}, [file]), (["a", "pair"], ["of lists"]), "plain"]

    one = subtask(Staging())
    one.start()
    wire, files = one.driver.snapshot(3)
    assert files == [file]
    assert wire == {
        "pending": [
            [
                0,
                [
                    [[3, 0], {"n": 3}, [file.to_wire()]],
                    [[3, 1], (["a", "pair"], ["of lists"]), []],
                    [[3, 2], "plain", []],
                ],
            ]
        ],
        "committers": [[0, {"committed": 0}]],
    }


# -- backpressure ---------------------------------------------------------------------------------------------


def test_two_completed_epochs_that_wait_hold_records_back_but_not_barriers(subtask: Any) -> None:
    one = subtask(store=Store(gate=threading.Semaphore(0)))
    one.start()
    for id in (1, 2):
        one.write(id)
        one.driver.snapshot(id)
        assert one.driver.accepts_records
        one.mailbox.interrupt = False
        one.driver.complete(id)
        assert one.metrics.report()["pendingCommits"] == id  # while the first of them is being committed
    assert not one.driver.accepts_records
    assert one.mailbox.interrupt  # the record loop has to look
    one.driver.snapshot(3)
    assert one.store.gate is not None
    one.store.gate.release()
    one.wait(lambda: len(one.reports) == 1)
    assert one.driver.accepts_records
    assert one.metrics.report()["pendingCommits"] == 1
    assert one.reports == [(1, 1, True)]


def test_epochs_of_no_completed_checkpoint_hold_nothing_back(subtask: Any) -> None:
    """Their segments wait for a completion that a standstill could keep from coming."""
    one = subtask(store=Store(gate=threading.Semaphore(0)))
    one.start()
    for id in range(1, 10):
        one.write(id)
        one.driver.snapshot(id)
    assert one.driver.accepts_records


def test_the_task_thread_is_woken_by_each_commit(subtask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, woken = subtask(), threading.Semaphore(0)
    monkeypatch.setattr(one.mailbox, "wake", woken.release)
    one.start()
    for id in (1, 2):
        one.driver.snapshot(id)
        one.driver.complete(id)
        assert woken.acquire(timeout=PATIENCE)
        assert one.reports == [(n, 0, False) for n in range(1, id + 1)]


# -- restored -------------------------------------------------------------------------------------------------


def test_restored_epochs_go_out_one_after_the_other_as_they_are_released_and_before_anything_new(subtask: Any) -> None:
    """After rescaling, a key's older records may lie with another writer than its newer ones."""
    pending = {0: [segment(3, "a"), segment(5, "b")], 4: [segment(3, "c")]}
    one = subtask(pending=pending)
    opened = one.start(release_new=False)
    assert opened.restored_epochs == (3, 5)
    one.write("new")
    one.driver.snapshot(6)
    one.driver.complete(6)
    assert one.store.committed == []
    one.driver.release_epoch(3)
    one.wait(lambda: one.epochs_out == [3])
    assert one.store.committed == [(0, 3, ["a"]), (4, 3, ["c"])]
    one.driver.release_epoch(5)
    one.wait(lambda: one.epochs_out == [3, 5])
    one.driver.release_new()
    one.wait(lambda: len(one.reports) == 4)
    assert one.store.committed[2:] == [(0, 5, ["b"]), (0, 6, [["new"]])]


def test_an_epoch_of_which_nothing_was_restored_here_is_reported_at_once(subtask: Any) -> None:
    one = subtask(pending={0: [segment(5, "b")]})
    one.start(release_new=False)
    one.driver.release_epoch(3)
    assert one.epochs_out == [3]
    assert one.store.committed == []


def test_every_writer_with_something_restored_has_a_committer(subtask: Any) -> None:
    one = subtask(own=1, pending={5: [segment(2, "x")]}, states={9: "state"})
    one.start(release_new=False)
    assert one.store.opened == {1: [], 5: [CommittableName(2, 0)], 9: []}


def test_what_a_committer_knows_to_be_out_is_not_committed_again(subtask: Any) -> None:
    store = Store(still_pending=lambda restored: restored[1:])
    one = subtask(store=store, pending={0: [segment(2, "out"), segment(4, "not out")]})
    opened = one.start(release_new=False)
    assert opened.restored_epochs == (4,)
    wire, _ = one.driver.snapshot(5)
    assert wire["pending"] == [[0, [[[4, 0], "not out", []]]]]


def test_restored_committables_travel_with_snapshots_until_they_are_committed(subtask: Any) -> None:
    """A checkpoint that left them out would lose them, should it be restored."""
    file = FileHandle("shared/1-out.arrow", 10, "c")
    one = subtask(pending={0: [segment(3, "a", files=(file,))]})
    one.start(release_new=False)
    wire, files = one.driver.snapshot(4)
    assert (wire["pending"], files) == ([[0, [[[3, 0], "a", [file.to_wire()]]]]], [file])
    one.driver.release_epoch(3)
    one.wait(lambda: one.epochs_out == [3])
    wire, files = one.driver.snapshot(5)
    assert (wire["pending"], files) == ([], [])


def test_the_largest_checkpoint_that_any_committer_knows_is_told(subtask: Any) -> None:
    store = Store(highest={1: 3, 5: 17, 9: 8})
    one = subtask(store=store, own=1, pending={5: [segment(2, "x")]}, states={9: "state"})
    assert one.start(release_new=False).highest_checkpoint == 17


# -- without committers, failures, end ------------------------------------------------------------------------


def test_a_sink_without_committers_reports_its_checkpoints_as_committed(subtask: Any) -> None:
    one = subtask(make_committer=lambda writer: None, writer=ListWriter())
    one.start()
    one.driver.snapshot(1)
    one.driver.complete(1)
    one.wait(lambda: one.reports == [(1, 0, False)])


def failure(one: Subtask) -> BaseException:
    mail = one.next_mail()
    assert isinstance(mail, Failure), mail
    return mail.error


def test_committables_that_no_committer_takes_are_an_error(subtask: Any) -> None:
    one = subtask(make_committer=lambda writer: None)
    one.start()
    one.write("x")
    one.driver.snapshot(1)
    one.driver.complete(1)
    error = failure(one)
    assert isinstance(error, TypeError)
    assert "sink 'out': the writer's prepare_commit returned committables" in str(error)
    assert "return a Committer" in str(error)


@pytest.mark.parametrize("method", ["open", "commit", "highest_checkpoint"])
def test_a_committers_failure_reaches_the_task_thread_and_all_committers_are_closed(
    subtask: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError(f"{method} failed")

    monkeypatch.setattr(StoreCommitter, method, fail)
    one = subtask()
    one.driver.start()
    if method == "commit":
        assert isinstance(one.next_mail(), CommittersOpened)
        one.driver.release_new()
        one.driver.snapshot(1)
        one.driver.complete(1)
    error = failure(one)
    assert str(error) == f"{method} failed"
    one.driver.close()
    assert one.store.closed == [0]
    assert one.reports == []


def test_closing_ends_the_committing_thread_and_drops_what_is_in_no_completed_checkpoint(subtask: Any) -> None:
    one = subtask()
    one.start()
    one.write("x")
    one.driver.snapshot(1)
    one.driver.close()
    assert isinstance(one.writer, ListWriter)
    assert one.writer.closed
    assert one.store.closed == [0]
    assert one.store.committed == []


def test_committers_are_closed_also_if_the_writers_close_fails(subtask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = subtask()
    one.start()
    with monkeypatch.context() as patch:
        patch.setattr(one.writer, "close", lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            one.driver.close()
    assert one.store.closed == [0]


def test_closing_before_the_start_closes_the_writer() -> None:
    one = Subtask()
    one.driver.close()
    assert isinstance(one.writer, ListWriter)
    assert one.writer.closed


# -- refreshing -----------------------------------------------------------------------------------------------


def test_a_committer_without_commits_is_refreshed_and_one_that_commits_is_not(subtask: Any) -> None:
    """After rescaling a subtask hosts writers that never commit again, and idle sinks complete no checkpoints."""
    one = subtask(store=Store(refresh_interval=100.0), states={1: {"committed": 7}})
    one.start()
    one.clock.advance(99.0)
    one.driver.snapshot(1)
    one.driver.complete(1)
    one.wait(lambda: len(one.reports) == 1)
    one.clock.advance(2.0)
    one.driver.snapshot(2)
    one.driver.complete(2)
    assert one.store.refreshed.get(timeout=PATIENCE) == 1
    one.wait(lambda: len(one.reports) == 2)
    one.clock.advance(100.0)
    one.driver.release_new()  # wakes the committing thread, which the clock of a test doesn't
    assert {one.store.refreshed.get(timeout=PATIENCE) for _ in range(2)} == {0, 1}
    assert one.store.refreshed.empty()


def test_waiting_for_a_refresh_ends_by_itself(subtask: Any) -> None:
    one = subtask(store=Store(refresh_interval=0.05))
    one.metrics.clock = time.monotonic
    one.start()
    assert one.store.refreshed.get(timeout=PATIENCE) == 0
    assert one.store.refreshed.get(timeout=PATIENCE) == 0


def test_a_refresh_that_fails_fails_the_subtask(subtask: Any) -> None:
    class Failing(StoreCommitter):
        def refresh(self) -> None:
            raise OSError("no broker")

    store = Store(refresh_interval=100.0)
    one = subtask(store=store, make_committer=lambda writer: Failing(store, writer))
    one.start()
    one.clock.advance(100.0)
    one.driver.release_new()
    failure = one.next_mail()
    assert isinstance(failure, Failure)
    assert "no broker" in str(failure.error)
