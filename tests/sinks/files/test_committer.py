"""The committer of a file sink: what is visible when, over crashes at every step, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from file_sink_helpers import KILLED, FileJob, commit_elsewhere, cut, hidden, rows, visible, write
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import failpoints as mechanism
from checkpoint.commit_log import CommitLog
from checkpoint.committables import Committable
from pipeline.testing import failpoints
from sinks import CommittableName, Lineage
from sinks.files.errors import EarlierOutput, MarkerLost, OutputAhead, TargetUnavailable
from sinks.files.marker import Marker
from sinks.files.target import FOLDER

STEPS = [
    "files.before_settle",
    "files.after_settle",
    "files.before_commit",
    "files.after_intent",
    "files.before_rename",
    "files.after_rename",
    "files.after_commit",
]
TWO_FOLDERS = {"format": "jsonl", "partition_by": "k"}


@pytest.fixture
def job(tmp_path: Path) -> FileJob:
    (tmp_path / "staging").mkdir()
    return FileJob(tmp_path / "out", tmp_path / "staging", options=dict(TWO_FOLDERS))


def records(first: int, last: int) -> list[Any]:
    return [{"id": i, "k": i % 2} for i in range(first, last)]


def ids(target: Path) -> list[int]:
    return sorted(row["id"] for row in rows(target))


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_of_a_commit_loses_and_doubles_nothing(job: FileJob, step: str) -> None:
    first = job.opened()
    first.commit(1, job.epoch(1, records(0, 4)))
    state = first.snapshot()
    epoch = job.epoch(2, records(4, 10))
    assert len(epoch) == 2
    restored = job.restore(2, state)
    with failpoints.crash(step):
        assert commit_elsewhere(restored, epoch, mechanism.active()) == KILLED
    if step == "files.before_rename":
        assert len(hidden(job.target)) == 1  # nobody sees it
    committer = restored.committer()
    committer.commit(2, committer.open(epoch))
    assert ids(job.target) == list(range(10))
    assert hidden(job.target) == []


def test_a_file_is_visible_whole_or_not_at_all(job: FileJob) -> None:
    committer, epoch = job.opened(), job.epoch(1, records(0, 4))
    with failpoints.fail("files.before_rename", nth=2), pytest.raises(failpoints.InjectedFailure):
        committer.commit(1, epoch)
    assert len(visible(job.target)) == 1
    assert ids(job.target) == [0, 2]
    assert hidden(job.target) == []
    committer.commit(1, epoch)
    assert ids(job.target) == [0, 1, 2, 3]


def test_an_epoch_that_is_committed_is_not_written_again_even_if_readers_took_its_files_away(job: FileJob) -> None:
    committer, epoch = job.opened(), job.epoch(1, records(0, 4))
    committer.commit(1, epoch)
    for path in visible(job.target):
        path.unlink()
    committer.commit(1, epoch)
    again = job.restore(1, committer.snapshot()).committer()
    assert again.open(epoch) == []
    assert visible(job.target) == []


def test_a_file_that_is_there_with_another_size_is_written_again(job: FileJob) -> None:
    committer, epoch = job.opened(), job.epoch(1, records(0, 4))
    with failpoints.fail("files.after_rename"), pytest.raises(failpoints.InjectedFailure):
        committer.commit(1, epoch)
    visible(job.target)[0].write_text("half")
    committer.commit(1, epoch)
    assert ids(job.target) == [0, 1, 2, 3]


def test_a_driver_that_has_lost_the_job_commits_nothing(job: FileJob) -> None:
    class Fenced(Exception):
        pass

    def fenced() -> None:
        raise Fenced

    lost = False
    job.check_owner = lambda: fenced() if lost else None
    committer, epoch = job.opened(), job.epoch(1, records(0, 2))
    lost = True
    with pytest.raises(Fenced):
        committer.commit(1, epoch)
    with pytest.raises(Fenced):
        job.opened()
    assert visible(job.target) == []


def test_a_driver_that_has_lost_the_job_is_told_that_and_not_that_output_is_ahead(job: FileJob) -> None:
    """Which would end its job for good."""
    committer = job.opened()
    state = committer.snapshot()
    committer.commit(9, job.epoch(9, records(0, 2)))
    late = job.restore(1, state)
    late.check_owner = _raise_interrupted
    with pytest.raises(InterruptedError):
        late.opened()


def test_a_driver_that_loses_the_job_while_it_looks_leaves_the_marker_alone(job: FileJob) -> None:
    state = job.opened().snapshot()
    before = {path.name: path.read_bytes() for path in (job.target / FOLDER).iterdir()}
    asked: list[bool] = []
    late = job.restore(1, state)
    late.check_owner = lambda: _raise_interrupted() if asked else asked.append(True)
    with pytest.raises(InterruptedError):
        late.opened()
    assert {path.name: path.read_bytes() for path in (job.target / FOLDER).iterdir()} == before


def _raise_interrupted() -> None:
    raise InterruptedError


def test_a_writer_has_one_marker_however_many_committers_it_had(job: FileJob) -> None:
    for _ in range(3):
        committer = job.opened()
    committer.commit(1, job.epoch(1, records(0, 2)))
    assert len(list((job.target / FOLDER).iterdir())) == 1


def test_a_file_that_is_there_is_not_written_again(job: FileJob) -> None:
    committer, epoch = job.opened(), job.epoch(1, records(0, 2))
    with failpoints.fail("files.after_rename"), pytest.raises(failpoints.InjectedFailure):
        committer.commit(1, epoch)
    (first,) = visible(job.target)
    written = first.stat()
    committer.commit(1, epoch)
    assert len(visible(job.target)) == 2
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


def test_a_marker_that_a_replaced_committer_writes_late_does_not_count(job: FileJob) -> None:
    old = job.opened()
    epoch = job.epoch(1, records(0, 2))
    new = job.restore(1, old.snapshot()).opened(epoch)
    new.commit(1, epoch)
    new.commit(5, job.epoch(5, records(2, 4)))
    old.commit(1, epoch)  # held up since before it was replaced
    assert ids(job.target) == [0, 1, 2, 3]
    with pytest.raises(OutputAhead, match="checkpoint 5 of lineage L1"):
        job.restore(1, old.snapshot()).opened()
    assert job.restore(5, new.snapshot()).committer().open(epoch) == []


def test_a_late_marker_that_is_ahead_of_a_rewound_job_does_not_count_either(job: FileJob) -> None:
    old = job.opened()
    old.commit(1, job.epoch(1, records(0, 2)))
    rewound = job.restore(1, old.snapshot(), lineage=Lineage("L2", ("L1", 1)), rewind=True)
    new = rewound.opened()
    epoch = rewound.epoch(2, records(2, 4))
    new.commit(2, epoch)
    old.commit(9, job.epoch(9, records(2, 4)))  # held up since before it was replaced
    assert rewound.restore(2, new.snapshot(), rewind=False).committer().open(epoch) == []


def test_the_marker_does_not_go_back_while_restored_epochs_go_out(job: FileJob) -> None:
    """A checkpoint may have recorded it before they did, and refuses one that has gone back since."""
    pending = [*job.epoch(1, records(0, 2)), *job.epoch(2, records(2, 4))]
    rewound = job.restore(2, job.opened().snapshot(), lineage=Lineage("L2", ("L1", 2)), rewind=True)
    second = rewound.opened(pending)
    recorded = second.snapshot()
    second.commit(1, pending[:2])
    assert rewound.restore(3, recorded, rewind=False).committer().open(pending) == pending[2:]


def test_writers_do_not_see_each_other(job: FileJob) -> None:
    zero, one = job.opened(writer=0), job.opened(writer=1)
    one.commit(1, job.epoch(1, records(0, 2), subtask=1))
    zero.commit(1, job.epoch(1, records(2, 4), subtask=0))
    job.opened(writer=10).commit(1, job.epoch(1, records(4, 6), subtask=10))
    assert ids(job.target) == [0, 1, 2, 3, 4, 5]
    assert len(list((job.target / FOLDER).iterdir())) == 3


def test_restored_epochs_are_committed_in_order_each_under_the_names_it_has(job: FileJob) -> None:
    first = job.opened()
    state = first.snapshot()
    pending = [*job.epoch(1, records(0, 2)), *job.epoch(2, records(2, 4)), *job.epoch(3, records(4, 6))]
    first.commit(1, pending[:2])
    second = job.restore(3, state).committer()
    left = second.open(pending)
    assert left == pending[2:]
    for epoch in (2, 3):
        second.commit(epoch, [one for one in left if one.name.epoch == epoch])
    assert ids(job.target) == [0, 1, 2, 3, 4, 5]


class Run:
    """A job that reads numbers and writes them, over attempts that fail at any step."""

    def __init__(self, folder: Path) -> None:
        (folder / "staging").mkdir()
        self.job = FileJob(folder / "out", folder / "staging", options={"format": "jsonl", "roll_bytes": 1})
        self.checkpoints: dict[int, tuple[int, Any, list[Committable]]] = {0: (0, None, [])}
        """Complete ones: numbers read, the committer's state, what is not committed."""
        self.last = 0
        """The highest id that a barrier had."""
        self.begin()

    def begin(self) -> None:
        """An attempt, from the newest complete checkpoint."""
        id, (self.read, state, pending) = max(self.checkpoints.items(), key=lambda item: item[0])
        job = self.job.restore(id, state)
        self.writer, self.committer = job.writer(), job.committer()
        self.log = CommitLog(0, {0: self.committer.open(pending)})
        self.last = max(id, self.committer.highest_checkpoint())  # ids that no checkpoint has are given again
        self.taken: dict[int, tuple[int, Any, list[Committable]]] = {}
        for epoch in self.log.restored_epochs():
            self.log.release_restored(epoch)
            self.commit()
        self.log.release_new()

    def step(self, action: str) -> None:
        if action == "write":
            write(self.writer, list(range(self.read, self.read + 2)))
            self.read += 2
        elif action == "barrier":
            self.last += 1
            self.log.add(self.last, cut(self.writer, self.last))
            pending = self.log.snapshot().get(0, [])
            self.taken[self.last] = (self.read, self.committer.snapshot(), pending)
        elif action == "complete" and self.taken:
            id = max(self.taken)
            self.checkpoints[id] = self.taken.pop(id)
            self.log.complete(id)
            self.commit()
        elif action == "abort" and self.taken:
            self.taken.pop(min(self.taken))

    def commit(self) -> None:
        while (order := self.log.next_commit()) is not None:
            self.committer.commit(order.checkpoint_id, order.committables)
            self.log.committed(order)


@settings(max_examples=40)
@given(data=st.data())
def test_each_number_is_visible_once_whatever_fails_when(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    actions = st.sampled_from(["write", "write", "barrier", "complete", "abort", "fail"])
    for action in [*data.draw(st.lists(actions, max_size=15), label="actions"), "fail"]:
        if action != "fail":
            run.step(action)
            continue
        step = data.draw(st.sampled_from(STEPS), label="step")
        with failpoints.fail(step, nth=data.draw(st.integers(1, 3), label="nth")):
            try:
                for each in ("write", "barrier", "complete"):
                    run.step(each)
                run.begin()
            except failpoints.InjectedFailure:
                pass
        run.begin()
    for each in ("write", "barrier", "complete"):
        run.step(each)
    assert sorted(rows(run.job.target)) == list(range(run.read))
    assert hidden(run.job.target) == []


# -- restores that don't fit ------------------------------------------------------------------------------------------


def test_output_that_is_ahead_of_the_checkpoint_is_refused_before_and_at_the_start(job: FileJob) -> None:
    committer = job.opened()
    committer.commit(1, job.epoch(1, records(0, 2)))
    state = committer.snapshot()
    committer.commit(2, job.epoch(2, records(2, 4)))
    behind = job.restore(1, state)
    for attempt in (behind.opened, lambda: behind.sink().check_restore(behind.writer_restore())):
        with pytest.raises(
            OutputAhead, match=r"checkpoint 1 is being restored.*checkpoint 2 of lineage L1.*rewind=True"
        ):
            attempt()
    job.restore(2, committer.snapshot()).opened()


def test_output_of_an_epoch_that_is_partly_visible_is_ahead_too(job: FileJob) -> None:
    committer = job.opened()
    state = committer.snapshot()
    with failpoints.fail("files.after_rename"), pytest.raises(failpoints.InjectedFailure):
        committer.commit(7, job.epoch(7, records(0, 4)))
    with pytest.raises(OutputAhead, match="files of checkpoint 7"):
        job.restore(6, state).opened()


def test_a_rewind_writes_again_beside_what_was_ahead(job: FileJob, caplog: pytest.LogCaptureFixture) -> None:
    committer = job.opened()
    pending = job.epoch(1, records(0, 2))
    state = committer.snapshot()
    committer.commit(1, pending)
    committer.commit(2, job.epoch(2, records(2, 4)))
    rewound = job.restore(1, state, lineage=Lineage("L2", ("L1", 1)), rewind=True)
    rewound.sink().check_restore(rewound.writer_restore(pending))
    again = rewound.committer()
    assert again.open(pending) == []  # the old marker says that they are committed
    assert "files of checkpoints 2 to 2 stay beside what is written from now on" in caplog.text
    assert again.highest_checkpoint() == 2
    again.commit(3, rewound.epoch(3, records(2, 4)))
    assert ids(job.target) == [0, 1, 2, 2, 3, 3]
    # The parent's later checkpoints don't continue the child.
    with pytest.raises(MarkerLost):
        job.restore(2, committer.snapshot()).opened()
    # An attempt that died before the child's first checkpoint is followed by one that goes on.
    with pytest.raises(OutputAhead):
        rewound.opened(pending)


def test_another_branch_of_the_history_is_refused(job: FileJob) -> None:
    committer = job.opened()
    committer.commit(1, job.epoch(1, records(0, 2)))
    state = committer.snapshot()
    savepoint = job.epoch(2, records(2, 4))
    # A restart from checkpoint 1 reads the same records again; then the savepoint is restored and commits.
    other = job.restore(2, state).opened(savepoint)
    other.commit(2, savepoint)
    reread = job.epoch(3, records(2, 4))
    with pytest.raises(OutputAhead, match="another branch"):
        job.restore(3, state).opened(reread)


def test_a_start_from_nothing_beside_earlier_output_is_refused_unless_it_is_meant(job: FileJob) -> None:
    job.opened().commit(1, job.epoch(1, records(0, 2)))
    fresh = job.restore(0, None, lineage=Lineage("L9"))
    with pytest.raises(EarlierOutput, match=r'no checkpoint to restore.*restore="none"'):
        fresh.opened()
    fresh.ignore_earlier_output = True
    committer = fresh.opened()
    committer.commit(1, fresh.epoch(1, records(0, 2)))
    assert ids(job.target) == [0, 0, 1, 1]
    assert committer.highest_checkpoint() == 1


def test_a_restart_says_nothing_of_files_that_stay(job: FileJob, caplog: pytest.LogCaptureFixture) -> None:
    committer = job.opened()
    committer.commit(1, job.epoch(1, records(0, 2)))
    job.restore(1, committer.snapshot()).opened()
    assert caplog.text == ""


def test_a_start_from_nothing_again_is_fine_while_nothing_is_committed(job: FileJob) -> None:
    job.opened()
    job.restore(0, None, lineage=Lineage("L9")).opened()


def test_a_marker_that_is_gone_is_an_error_that_offers_a_choice(job: FileJob) -> None:
    committer, epoch = job.opened(), job.epoch(1, records(0, 2))
    state = committer.snapshot()
    committer.commit(1, epoch[:1])
    for path in (job.target / FOLDER).iterdir():
        path.unlink()
    with pytest.raises(MarkerLost, match=r"_weir.*\(2 files\).*rewind=True"):
        job.restore(1, state).opened(epoch)
    rewound = job.restore(1, state, lineage=Lineage("L2", ("L1", 1)), rewind=True)
    again = rewound.committer()
    again.commit(1, again.open(epoch))
    assert ids(job.target) == [0, 1]


def test_a_sink_that_gets_another_folder_knows_what_is_committed_in_the_old_one(job: FileJob) -> None:
    committer = job.opened()
    state = committer.snapshot()
    pending = [*job.epoch(1, records(0, 2)), *job.epoch(2, records(2, 4))]
    committer.commit(1, pending[:2])
    moved = job.restore(2, state, target=job.target.parent / "new")
    second = moved.committer()
    second.commit(2, second.open(pending))
    assert ids(moved.target) == [2, 3]
    assert ids(job.target) == [0, 1]


def test_a_fork_leaves_the_originals_files_and_marker_alone(job: FileJob) -> None:
    original = job.opened()
    original.commit(1, job.epoch(1, records(0, 2)))
    fork = job.restore(1, None, pipeline="fork", lineage=Lineage("L2", ("L1", 1)), fork=True)
    forked = fork.opened()
    forked.commit(2, fork.epoch(2, records(2, 4)))
    original.commit(2, job.epoch(2, records(2, 4)))
    job.restore(2, original.snapshot()).opened()
    assert ids(job.target) == [0, 1, 2, 2, 3, 3]
    # The fork's name can't be used for another fork unless that is meant.
    another = job.restore(2, None, pipeline="fork", lineage=Lineage("L3", ("L1", 2)), fork=True)
    with pytest.raises(EarlierOutput, match="under this fork's name"):
        another.opened()
    another.rewind = True
    another.opened()


def test_what_of_a_checkpoint_is_committed_can_be_told_from_outside(job: FileJob) -> None:
    committer = job.opened()
    state = committer.snapshot()
    pending = [*job.epoch(1, records(0, 2)), *job.epoch(2, records(2, 4))]
    assert job.sink().uncommitted("job", "out", 0, state, pending) == pending
    committer.commit(1, pending[:2])
    assert job.sink().uncommitted("job", "out", 0, state, pending) == pending[2:]
    assert job.sink().uncommitted("job", "out", 0, None, pending) == pending
    assert job.sink().uncommitted("other", "out", 0, state, pending) == pending
    elsewhere = [state[0], Marker(Lineage("L9"), 1).to_wire()]
    assert job.sink().uncommitted("job", "out", 0, elsewhere, pending) == pending


def test_a_fork_is_refused_before_the_start_as_it_would_be_by_its_committer(job: FileJob) -> None:
    fork = job.restore(1, None, pipeline="fork", lineage=Lineage("L2", ("L1", 1)), fork=True)
    fork.opened().commit(2, fork.epoch(2, records(0, 2)))
    fork.sink().check_restore(fork.restore(2, None, lineage=Lineage("L2", ("L1", 1)), fork=False).writer_restore())
    another = fork.restore(2, None, lineage=Lineage("L3", ("L1", 2)), fork=True)
    with pytest.raises(EarlierOutput, match="under this fork's name"):
        another.sink().check_restore(another.writer_restore())
    another.rewind = True
    another.sink().check_restore(another.writer_restore())


def test_a_folder_that_cannot_be_read_refuses_nothing_and_has_nothing_committed(job: FileJob) -> None:
    committer, pending = job.opened(), job.epoch(1, records(0, 2))
    state = committer.snapshot()
    committer.commit(1, pending)
    marker, away = job.target / FOLDER, job.target / "away"
    marker.rename(away)
    marker.write_text("no folder")
    behind = job.restore(0, state)
    behind.sink().check_restore(behind.writer_restore())
    assert job.sink().uncommitted("job", "out", 0, state, pending) == pending
    marker.unlink()
    away.rename(marker)
    with pytest.raises(OutputAhead):
        behind.sink().check_restore(behind.writer_restore())
    assert job.sink().uncommitted("job", "out", 0, state, pending) == []


def test_a_file_in_the_markers_place_that_is_none_is_named(job: FileJob) -> None:
    job.opened()
    (marker,) = (job.target / FOLDER).iterdir()
    marker.write_text("{}")
    with pytest.raises(ValueError, match=r"job,out,0\..* is not a marker"):
        job.opened()


def test_a_folder_that_cannot_be_written_to_fails_the_commit_and_says_so(job: FileJob) -> None:
    committer, epoch = job.opened(), job.epoch(1, records(0, 4))
    (job.target / "k=1").write_text("in the way")
    with pytest.raises(TargetUnavailable, match=r"cannot write the file sink's folder .*out.*k=1"):
        committer.commit(1, epoch)
    (job.target / "k=1").unlink()
    committer.commit(1, epoch)
    assert ids(job.target) == [0, 1, 2, 3]


def test_markers_survive_their_bytes() -> None:
    for marker in (Marker(Lineage("a"), 0), Marker(Lineage("a", ("b", 3)), 7, CommittableName(7, 2), "x/y", 4)):
        assert Marker.from_bytes("m", marker.to_bytes()) == marker
        assert Marker.from_wire(marker.to_wire()) == marker
