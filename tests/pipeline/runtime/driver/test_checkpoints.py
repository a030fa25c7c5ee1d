"""What the driver carries out of a checkpoint coordinator's decisions, over a real folder, without threads."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from attempt_parts import attempt_context
from manual_system import ManualSystem

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.coordination import coordinator_events as events
from checkpoint.coordination.coordinator_events import FailureReason
from checkpoint.storage import fencing, savepoints
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import OperatorSnapshot, SubtaskSnapshot
from checkpoint.storage.naming import CheckpointRef, private_path, subtask_name
from checkpoint.storage.savepoints import SavepointFolder
from pipeline import Pipeline
from pipeline.runtime.driver.attempt_context import CheckpointRequest, NotTriggered, Progress
from pipeline.runtime.driver.attempt_events import Deleted, Fenced, Finalised
from pipeline.runtime.driver.checkpoints import DriverCheckpoints
from pipeline.runtime.driver.peers import Peer, Peers
from pipeline.runtime.driver.start.placement import Slot
from pipeline.runtime.driver.status.checkpoint_stats import ATTEMPT_ENDED
from pipeline.runtime.protocol import (
    Aborted,
    BarrierOptions,
    BarrierPassed,
    Completed,
    EndInput,
    Heartbeat,
    ToSubtask,
    Trigger,
)
from pipeline.testing import TestingSink, TestingSource

M = TypeVar("M")


class Connection:
    """Remembers what is sent."""

    def __init__(self) -> None:
        self.heard_at = 0.0
        self.said: list[ToSubtask] = []

    def send(self, message: ToSubtask) -> None:
        self.said.append(message)


class Driver:
    """`DriverCheckpoints` of a job whose subtasks only remember what they are told."""

    def __init__(self, folder: Path, parallelism: int = 1, **options: Any) -> None:
        p = Pipeline("job", parallelism=parallelism)
        p.source("in", TestingSource()).sink("out", TestingSink())
        self.context = attempt_context(p.plan(), str(folder), **options)
        self.storage = self.context.start.storage
        self._folder = folder
        peers = Peers(p.plan(), lambda connection, reason: None)
        self.connections = [Connection() for _ in range(parallelism)]
        for subtask, connection in enumerate(self.connections):
            peer = Peer(
                connection=connection, partition=subtask, host="here", pid=1, address=("here", 1), slot=Slot("")
            )
            peers.add(peer)
            peers.place(peer, subtask)
        self.system = ManualSystem()
        self.progress = Progress(running_at=self.system.now)
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.answers: list[int | Exception] = []
        self.failures: list[str] = []
        self.final: list[int] = []
        self.replaying = False
        self.checkpoints = DriverCheckpoints(
            self.context,
            peers,
            self.progress,
            self.inbox,
            on_failed=self.failures.append,
            on_final=self.final.append,
            replaying=lambda: self.replaying,
            system=self.system,
        )
        self.writers, self.deleter = (self.system.executors[name] for name in ("weir-finalise", "weir-delete"))
        self.tell(events.SubtasksRunning())

    def tell(self, event: events.Event) -> None:
        self.checkpoints.tell(event)

    def request(self, request: CheckpointRequest | None = None) -> None:
        self.checkpoints.request(request or CheckpointRequest(), self.answers.append)

    def savepoint(self, uri: Path, **options: Any) -> SavepointFolder:
        folder = savepoints.prepare(str(uri))
        self.request(CheckpointRequest(CheckpointKind.SAVEPOINT, folder, **options))
        return folder

    def acknowledge(self, id: int, *files: FileHandle, subtask: int = 0) -> None:
        snapshot = SubtaskSnapshot({"out": OperatorSnapshot(files=files)})
        self.checkpoints.acknowledge(id, subtask, snapshot, {})

    def hear(self) -> list[type]:
        """Hand on what has come to the inbox, as an attempt does; what else came is returned."""
        other = []
        while not self.inbox.empty():
            match self.inbox.get():
                case Finalised(id, error):
                    self.checkpoints.finalised(id, error)
                case Deleted(id):
                    self.checkpoints.deleted(id)
                case event:
                    other.append(type(event))
        return other

    def work(self) -> list[type]:
        """Let all that is begun come to its end."""
        other = []
        while len(self.writers) or len(self.deleter) or not self.inbox.empty():
            self.writers.run()
            self.deleter.run()
            other += self.hear()
        return other

    def checkpoint(self, id: int, *files: FileHandle) -> None:
        """One that completes."""
        self.request()
        self.acknowledge(id, *files)
        self.work()

    def shared_file(self, name: str) -> FileHandle:
        return self.storage.write_file(f"shared/1-{name}.arrow", b"staged")

    def private_file(self, id: int, subtask: int = 0) -> FileHandle:
        path = private_path(
            CheckpointRef(id, self.context.start.ownership.attempt), subtask_name("out", subtask), "state"
        )
        return self.storage.write_file(path, b"state")

    def left(self) -> list[str]:
        """Shared files that are there."""
        return sorted(f"shared/{path.name}" for path in (self._folder / "job" / "shared").iterdir())

    def there(self, handle: FileHandle) -> bool:
        return (self._folder / "job" / handle.path).exists()

    def complete(self) -> list[int]:
        """Ids of the checkpoints that a restore would find."""
        return [ref.id for ref in self.storage.list_checkpoints()]

    def statuses(self) -> list[str]:
        return [row.status for row in self.context.history.rows()]

    def said(self, kind: type[M], subtask: int = 0) -> list[M]:
        return [one for one in self.connections[subtask].said if isinstance(one, kind)]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    one = Driver(tmp_path / "weir")
    yield one
    one.checkpoints.close()


def failing(storage: Any, monkeypatch: pytest.MonkeyPatch, durable: bool = False) -> None:
    """Writing `_metadata` fails from now on, be it after it has become durable."""
    write = storage.write_metadata

    def fail(*args: Any) -> None:
        if durable:
            write(*args)
        raise OSError("disk on fire")

    monkeypatch.setattr(storage, "write_metadata", fail)


# -- from the trigger to the end --------------------------------------------------------------------------------


def test_a_checkpoint_is_triggered_at_sources_written_and_told_to_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    driver = Driver(tmp_path, parallelism=2)
    driver.request()
    assert driver.said(Trigger) == [Trigger(1, CheckpointKind.CHECKPOINT)]
    driver.acknowledge(1, subtask=0)
    assert len(driver.writers) == 0
    driver.system.now += 2
    driver.acknowledge(1, subtask=1)
    driver.writers.run()
    assert (driver.complete(), driver.answers) == ([1], [])
    driver.hear()
    metadata = driver.storage.load(driver.storage.list_checkpoints()[0])
    assert (metadata.trigger_time, metadata.duration) == (1e9 + 1000.0, 2.0)
    assert (metadata.replaying, metadata.ended) == (False, False)
    for subtask in range(2):
        assert driver.said(Completed, subtask) == [Completed(1, CheckpointKind.CHECKPOINT, commits=True)]
    assert (driver.answers, driver.statuses(), driver.final) == ([1], ["completed"], [])
    assert "job job: checkpoint 1 completed in 2.000 s" in caplog.text


def test_metadata_tells_of_replay_and_of_the_end_of_input_as_at_the_trigger(driver: Driver) -> None:
    driver.replaying = True
    driver.request()
    driver.replaying = False
    driver.acknowledge(1)
    driver.work()
    driver.tell(events.AllInputEnded())
    driver.acknowledge(2)
    driver.writers.run()
    driver.hear()
    assert driver.final == [2]
    told = [driver.storage.load(ref) for ref in driver.storage.list_checkpoints()]
    assert [(one.id, one.replaying, one.ended) for one in told] == [(1, True, False), (2, False, True)]


def test_metadata_tells_that_event_time_may_have_ended_since_the_job_was_being_drained(driver: Driver) -> None:
    """Its first source may have ended, and the last not: should the driver die now, the next one reads on."""
    driver.request(CheckpointRequest(CheckpointKind.FINAL, stop=True, drain=True))
    driver.checkpoint(1)
    assert driver.answers == [1], "the ordinary checkpoint; the last one waits for the end of all input"
    (ref,) = driver.storage.list_checkpoints()
    assert driver.storage.load(ref).ended


def test_a_request_that_a_newer_checkpoint_answers_first_gets_that_ones_id(tmp_path: Path) -> None:
    driver = Driver(tmp_path, max_concurrent=2, retained=2)
    for id in (1, 2):
        driver.request()
        driver.acknowledge(id)
    driver.writers.run_last()
    driver.hear()
    assert (driver.answers, driver.statuses()) == ([2, 2], ["subsumed", "completed"])
    driver.work()  # the older one becomes durable all the same
    assert (driver.complete(), driver.answers) == ([2], [2, 2])


def test_one_that_is_subsumed_answers_nobody_later(tmp_path: Path) -> None:
    driver = Driver(tmp_path, max_concurrent=2)
    for _ in range(2):
        driver.request()
    driver.acknowledge(2)
    driver.work()
    driver.checkpoint(3)
    assert driver.answers == [2, 2, 3]


def test_the_newest_is_the_one_restored_until_another_is_complete(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    assert driver.checkpoints.newest is None
    driver.checkpoint(1)
    driver.savepoint(tmp_path / "savepoint")
    driver.acknowledge(2)
    driver.work()
    assert driver.checkpoints.newest == 1
    driver.checkpoint(3)
    assert driver.checkpoints.newest == 3


def test_metadata_says_of_which_job_and_history_it_is(tmp_path: Path) -> None:
    driver = Driver(tmp_path, interval=60.0, retained=4)
    object.__setattr__(driver.context.start, "lineage", ("L2", ("L1", 5)))
    driver.checkpoint(1)
    (ref,) = driver.storage.list_checkpoints()
    metadata = driver.storage.load(ref)
    assert (metadata.lineage, metadata.lineage_parent) == ("L2", ("L1", 5))
    assert (metadata.pipeline, metadata.max_parallelism, metadata.kind) == ("job", 128, CheckpointKind.CHECKPOINT)
    assert metadata.options == {"weir": metadata.weir_version, "interval": 60.0, "retained": 4}
    assert metadata.attempt == driver.context.start.ownership.attempt


def test_barriers_overtake_if_one_of_those_who_asked_wants_it(driver: Driver) -> None:
    driver.request()
    for unaligned in (False, True, False):  # they wait for the first one's end, and get one checkpoint
        driver.request(CheckpointRequest(unaligned=unaligned))
    driver.acknowledge(1)
    driver.work()
    assert [one.options.unaligned for one in driver.said(Trigger)] == [False, True]


def test_a_last_checkpoint_that_is_tried_again_tells_of_the_end_of_input_too(tmp_path: Path) -> None:
    driver = Driver(tmp_path, tolerable_failures=1, interval=60.0)
    driver.tell(events.AllInputEnded())
    driver.tell(events.Declined(1, 0, "no", FailureReason.DECLINED))
    while len(driver.said(Trigger)) < 2:
        driver.system.now += 1.0
        driver.tell(events.Tick())
    driver.acknowledge(2)
    driver.work()
    (ref,) = driver.storage.list_checkpoints()
    assert driver.storage.load(ref).ended


def test_what_earlier_attempts_left_is_deleted_with_the_first_completion_and_once(driver: Driver) -> None:
    assert not driver.checkpoints.completed_one
    cleaned: list[bool] = []
    object.__setattr__(driver.context.start.cleanup, "run", cleaned.append)
    driver.checkpoint(1)
    driver.checkpoint(2)
    assert (cleaned, driver.checkpoints.completed_one) == ([True], True)


def test_a_savepoint_is_no_completion_for_that(driver: Driver, tmp_path: Path) -> None:
    driver.savepoint(tmp_path / "savepoint")
    driver.acknowledge(1)
    driver.work()
    assert driver.answers == [1]
    assert not driver.checkpoints.completed_one


# -- failures ---------------------------------------------------------------------------------------------------


def test_of_one_that_fails_private_files_go_and_shared_ones_stay(tmp_path: Path) -> None:
    driver = Driver(tmp_path, parallelism=2, tolerable_failures=1)
    shared, private = driver.shared_file("a"), [driver.private_file(1, subtask) for subtask in range(2)]
    driver.request()
    driver.acknowledge(1, shared, private[0], subtask=0)
    driver.tell(events.Declined(1, 1, "no", FailureReason.DECLINED))
    driver.work()
    # The other subtask may still be writing; its files go when it acknowledges.
    assert [driver.there(one) for one in (shared, *private)] == [True, False, True]
    assert [str(one) for one in driver.answers] == ["checkpoint 1 failed: subtask 1: no"]
    assert driver.said(Aborted) == [Aborted(1)]
    assert driver.statuses() == ["failed"]
    driver.acknowledge(1, shared, private[1], subtask=1)
    driver.work()
    assert [driver.there(one) for one in (shared, *private)] == [True, False, False]
    assert driver.failures == []


def test_shared_files_of_late_acknowledgements_belong_to_the_checkpoints_that_complete(tmp_path: Path) -> None:
    """The sink has staged them for the failed checkpoint, so they are part of the next one, and go with that."""
    driver = Driver(tmp_path, tolerable_failures=1)
    shared, other = driver.shared_file("a"), driver.shared_file("b")
    driver.request()
    driver.system.now += 600
    driver.tell(events.Tick())
    driver.acknowledge(1, shared)
    driver.work()
    driver.checkpoint(2, shared)
    driver.checkpoint(3, other)
    assert driver.left() == [other.path]


def test_more_failures_than_are_tolerated_fail_the_job(driver: Driver) -> None:
    driver.request()
    driver.tell(events.Declined(1, 0, "no", FailureReason.DECLINED))
    assert len(driver.failures) == 1
    assert "tolerable_failures is 0" in driver.failures[0]


@pytest.mark.parametrize("durable", [False, True])
def test_one_whose_metadata_can_not_be_written_is_deleted_like_a_complete_one(
    tmp_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tmp_path, tolerable_failures=1)
    failing(driver.storage, monkeypatch, durable)
    shared, private = driver.shared_file("a"), driver.private_file(1)
    driver.request()
    driver.acknowledge(1, shared, private)
    driver.writers.run()
    assert driver.complete() == ([1] if durable else [])
    driver.work()
    assert (driver.complete(), driver.there(private), driver.left()) == ([], False, [shared.path])
    assert [str(one) for one in driver.answers] == ["checkpoint 1 failed: OSError: disk on fire"]


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_expires_while_its_metadata_is_written_is_deleted_once_the_writer_has_ended(
    tmp_path: Path, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tmp_path, tolerable_failures=1)
    if fails:
        failing(driver.storage, monkeypatch, durable=True)
    shared, private = driver.shared_file("a"), driver.private_file(1)
    driver.request()
    driver.acknowledge(1, shared, private)
    driver.system.now += 600
    driver.tell(events.Tick())
    assert "_metadata not written 600 s after the trigger" in str(driver.answers[0])
    driver.deleter.run()
    assert driver.there(private)
    assert driver.said(Heartbeat)[-1].facts.in_progress == ()
    driver.acknowledge(1, shared, private)  # a repetition
    driver.writers.run()
    driver.deleter.run()
    assert (driver.complete(), driver.there(private)) == ([1], True)
    driver.work()
    assert (driver.complete(), driver.there(private), driver.left()) == ([], False, [shared.path])


def test_an_expired_one_says_who_held_it_up(driver: Driver) -> None:
    driver.request()
    driver.system.now += 600
    driver.tell(events.Tick())
    (failure,) = [row.failure for row in driver.context.history.rows()]
    assert failure is not None
    assert failure.endswith(
        "600 s after the trigger; in → out[0] has not taken the barrier; 0 bytes queued; storage idle"
    )


def test_an_attempt_that_has_lost_its_job_writes_and_deletes_nothing(driver: Driver) -> None:
    first = driver.shared_file("a")
    driver.checkpoint(1, first)
    driver.request()
    driver.acknowledge(2)
    driver.writers.run()
    fencing.take_ownership(driver.storage)
    driver.hear()  # the first one would be deleted now
    driver.request()
    driver.acknowledge(3)
    assert driver.work() == [Fenced, Fenced]
    assert (driver.complete(), driver.left()) == ([1, 2], [first.path])


# -- shared files -----------------------------------------------------------------------------------------------


def test_shared_files_that_only_a_deleted_checkpoint_had_go_with_it(driver: Driver) -> None:
    first, second = (driver.shared_file(name) for name in "ab")
    driver.checkpoint(1, first)
    driver.checkpoint(2, second)
    assert (driver.left(), driver.complete()) == ([second.path], [2])


def test_they_stay_while_a_savepoint_that_may_copy_them_is_in_progress(driver: Driver, tmp_path: Path) -> None:
    files = [driver.shared_file(name) for name in "abc"]
    driver.checkpoint(1, files[0])
    driver.savepoint(tmp_path / "savepoint")
    for id, file in enumerate(files[1:], start=3):
        driver.checkpoint(id, file)
    assert driver.left() == [file.path for file in files]
    driver.acknowledge(2)
    driver.work()
    assert driver.left() == [files[2].path]
    assert driver.answers == [1, 3, 4, 2]


def test_they_go_when_that_savepoint_fails(driver: Driver, tmp_path: Path) -> None:
    files = [driver.shared_file(name) for name in "ab"]
    driver.checkpoint(1, files[0])
    driver.savepoint(tmp_path / "savepoint")
    driver.checkpoint(3, files[1])
    driver.tell(events.Declined(2, 0, "no", FailureReason.DECLINED))
    driver.work()
    assert driver.left() == [files[1].path]


# -- savepoints and stopping ------------------------------------------------------------------------------------


def test_a_savepoint_is_complete_in_its_folder_and_commits_nothing(driver: Driver, tmp_path: Path) -> None:
    folder = driver.savepoint(tmp_path / "savepoint")
    assert driver.said(Trigger)[0].options.target == folder.uri
    driver.acknowledge(1)
    driver.work()
    assert folder.storage.load_savepoint().id == 1
    assert [one.commits for one in driver.said(Completed)] == [False]
    assert (driver.complete(), driver.answers) == ([], [1])


@pytest.mark.parametrize("written", [False, True])
def test_who_asked_for_a_savepoint_that_failed_is_told_once_its_folder_can_be_used(
    driver: Driver, tmp_path: Path, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = driver.savepoint(tmp_path / "savepoint")
    if written:
        monkeypatch.setattr(savepoints, "write", lambda *args: (_ for _ in ()).throw(OSError("disk on fire")))
        driver.acknowledge(1)
        driver.writers.run()
        driver.hear()
    else:
        driver.tell(events.Declined(1, 0, "no", FailureReason.DECLINED))
    assert driver.answers == []
    driver.work()
    assert [type(one) for one in driver.answers] == [RuntimeError]
    assert savepoints.prepare(folder.uri) is not None
    driver.acknowledge(1)  # too late
    driver.work()


def test_of_a_savepoint_that_expires_half_written_nothing_is_left(driver: Driver, tmp_path: Path) -> None:
    folder = driver.savepoint(tmp_path / "savepoint")
    driver.acknowledge(1)
    driver.system.now += 600
    driver.tell(events.Tick())
    assert [type(one) for one in driver.answers] == [RuntimeError]
    assert driver.said(Heartbeat)[-1].options == {}
    driver.work()
    assert savepoints.prepare(folder.uri) is not None


def test_a_job_stops_behind_its_last_checkpoint(driver: Driver) -> None:
    driver.request(CheckpointRequest(CheckpointKind.FINAL, stop=True))
    assert [one.options.stop for one in driver.said(Trigger)] == [True]
    driver.checkpoints.send_heartbeat()
    assert driver.said(Heartbeat)[-1].options == {1: BarrierOptions(stop=True)}
    driver.acknowledge(1)
    driver.work()
    assert (driver.final, driver.answers) == ([1], [1])


def test_a_job_that_is_drained_ends_its_input_first(driver: Driver) -> None:
    driver.request(CheckpointRequest(CheckpointKind.FINAL, stop=True, drain=True))
    assert (driver.said(EndInput), driver.said(Trigger)) == ([EndInput()], [])


# -- heartbeats -------------------------------------------------------------------------------------------------


def test_heartbeats_tell_where_a_savepoint_in_progress_goes(driver: Driver, tmp_path: Path) -> None:
    folder = driver.savepoint(tmp_path / "savepoint")
    driver.request()
    driver.checkpoints.send_heartbeat()
    beat = driver.said(Heartbeat)[-1]
    assert [one[0] for one in beat.facts.in_progress] == [1, 2]
    assert beat.options == {1: BarrierOptions(folder.uri)}
    driver.acknowledge(1)
    driver.work()
    beat = driver.said(Heartbeat)[-1]
    assert ([one[0] for one in beat.facts.in_progress], beat.options) == ([2], {})


def test_there_are_none_before_all_subtasks_run(driver: Driver) -> None:
    driver.progress.running_at = None
    driver.checkpoints.send_heartbeat()
    assert driver.said(Heartbeat) == []


def test_what_is_about_to_be_triggered_is_not_told_before(driver: Driver) -> None:
    """Else a source would take the barrier without its options."""
    driver.request()
    driver.request()  # waits for the first one's end
    driver.acknowledge(1)
    driver.writers.run()
    driver.hear()
    kinds = [type(one) for one in driver.connections[0].said if not isinstance(one, BarrierPassed)]
    assert kinds == [Trigger, Completed, Heartbeat, Trigger]
    assert driver.said(Heartbeat)[0].facts.in_progress == ()


# -- the attempt's end ------------------------------------------------------------------------------------------


def test_requests_that_are_not_answered_are_refused(driver: Driver, tmp_path: Path) -> None:
    folders = [savepoints.prepare(str(tmp_path / name)) for name in "ab"]
    for folder in folders:  # the second one waits for the first one's end
        driver.request(CheckpointRequest(CheckpointKind.SAVEPOINT, folder))
    driver.request()
    driver.checkpoints.refuse_requests(RuntimeError("over"))
    assert [type(one) for one in driver.answers] == [RuntimeError, NotTriggered, RuntimeError]
    driver.checkpoints.refuse_requests(RuntimeError("over"))
    assert len(driver.answers) == 3


def test_requests_at_the_end_are_not_triggered(driver: Driver, tmp_path: Path) -> None:
    driver.tell(events.JobEnding())
    driver.savepoint(tmp_path / "savepoint")
    assert [type(one) for one in driver.answers] == [NotTriggered]


def test_nothing_is_in_progress_when_the_attempt_has_ended(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    driver.request()
    driver.checkpoints.close()
    assert [(row.status, row.failure) for row in driver.context.history.rows()] == [("failed", ATTEMPT_ENDED)]
    assert not caplog.records


def test_metadata_that_hangs_is_waited_for_within_bounds(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    driver.request()
    driver.acknowledge(1)
    driver.checkpoints.close()
    assert driver.system.now == 1010.0
    assert "1 checkpoint is left half written" in caplog.text


def test_deletions_that_have_not_begun_are_left_to_the_next_attempt(driver: Driver) -> None:
    driver.checkpoint(1)
    driver.request()
    driver.acknowledge(2)
    driver.writers.run()
    driver.hear()
    assert len(driver.deleter)
    driver.checkpoints.close()
    driver.deleter.run()
    assert driver.complete() == [1, 2]
