"""What a backend with a log writes, and what becomes of it when threads, storage and time don't behave."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from keyed_backend_contract import MAX, Everything, check, contents, fill, written
from log_model import FailingFile, Later

from checkpoint.codec import EncodingError, encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import TTL, DeclaresState, ListState, MapState, SnapshotAbandoned, ValueState, bind
from checkpoint.state.changelog.snapshot import LogFolder, LoggedState
from checkpoint.state.files import load_footer, load_keyed_state
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.storage.handles import StateFile
from checkpoint.storage.naming import shared_path
from checkpoint.storage.storage import CheckpointStorage


class Logged:
    """An operator with a log of its state."""

    def __init__(self, folder: Path, cls: type = Everything, files: list[StateFile] | None = None) -> None:
        self.folder = folder
        self.storage = CheckpointStorage(folder.as_uri(), "orders")
        self.storage.prepare()
        self.backend = HeapBackend(range(MAX), MAX, logs_changes=True)
        self.op: Any = cls()
        bind(self.op, self.backend)
        self.backend.restore(load_keyed_state(self.storage, files or []))
        self.backend.settle(changed=False)
        self.create: Any = lambda: self.storage.create(shared_path(1, "op-state"))
        self.merges = Later()
        self.merged: list[tuple[int, bool]] = []
        self.log = LoggedState(
            "Op",
            range(MAX),
            MAX,
            LogFolder(self.storage, lambda: self.create(), "none"),
            self.merges,
            files or [],
            lambda size, done: self.merged.append((size, done)),
        )

    def at(self, key: Any) -> Any:
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        return self.op

    def barrier(self) -> Any:
        self.backend.clear_current_key()
        return self.log.barrier(self.backend.freeze_changes())

    def checkpoint(self) -> list[StateFile]:
        snapshot = self.barrier()
        try:
            listed: list[StateFile] = snapshot.files(None)
            return listed
        finally:
            snapshot.release()

    def rows(self, listed: StateFile) -> int:
        return load_footer(self.storage, listed.file).rows

    def read(self, files: list[StateFile]) -> dict[Any, Any]:
        restored = Logged(self.folder, type(self.op), files)
        return contents(written(restored.backend.freeze()))


def test_a_checkpoint_writes_what_has_changed(tmp_path: Path) -> None:
    state: Any = Logged(tmp_path)
    fill(state)
    (first,) = state.checkpoint()
    assert state.rows(first) == 40 * 8
    state.at(7).total.value = -7
    del state.at(8).seen["key"]
    files = state.checkpoint()
    assert files[0] == first
    assert state.rows(files[1]) == 2
    restored: Any = Logged(tmp_path, files=files)
    assert (restored.at(7).total.value, dict(restored.at(8).seen)) == (-7, {("a", 1): [8]})
    check(restored, 9)


def test_what_is_only_read_is_not_written(tmp_path: Path) -> None:
    state: Any = Logged(tmp_path)
    fill(state)
    before = state.checkpoint()
    for key in range(40):
        op = state.at(key)
        assert (op.total.value, len(op.items), "key" in op.seen) == (key, 2, True)
    assert state.at("new").total.value == 0
    assert state.checkpoint() == before


def test_what_comes_and_goes_between_two_barriers_leaves_nothing(tmp_path: Path) -> None:
    state: Any = Logged(tmp_path)
    fill(state, [1])
    before = state.checkpoint()
    state.at(2).total.value = 5
    state.op.total.clear()
    state.backend.event_timers.register(77)
    state.backend.event_timers.delete(77)
    assert state.checkpoint() == before


def test_a_savepoint_in_between_takes_nothing_from_the_log(tmp_path: Path) -> None:
    state: Any = Logged(tmp_path)
    fill(state, [1])
    state.checkpoint()
    state.at(1).total.value = 5
    whole = state.backend.freeze()
    state.at(1).total.value = 6
    state.at(2).total.value = 7
    found = contents(written(whole))
    assert (found["total", 1], ("total", 2) in found) == (5, False)
    found = state.read(state.checkpoint())
    assert (found["total", 1], found["total", 2]) == (6, 7)


def test_one_percent_of_the_keys_is_little_to_write(tmp_path: Path) -> None:
    state = Logged(tmp_path)
    for key in range(20_000):
        state.at(key).total.value = key
    state.checkpoint()
    for key in range(200):
        state.at(key * 100).total.value = -key
    snapshot = state.barrier()
    files = snapshot.files(None)
    size = sum(each.file.size for each in files)
    assert snapshot.reused_bytes == files[0].file.size
    assert size - snapshot.reused_bytes < 0.05 * size


def test_changes_that_could_not_be_written_are_part_of_the_next_ones(tmp_path: Path) -> None:
    state: Any = Logged(tmp_path)
    fill(state, [1, 2])
    state.checkpoint()
    state.at(1).bag.value.append("first")
    good, state.create = state.create, lambda: FailingFile(good())
    for value in ("second", "third"):
        with pytest.raises(Exception, match="storage is full"):
            state.checkpoint()
        state.at(1).bag.value.append(value)
        state.at(2).total.clear()
    state.create = good
    found = state.read(state.checkpoint())
    assert found["bag", 1] == [[1], "first", "second", "third"]
    assert ("total", 2) not in found


def test_a_value_that_could_not_be_written_is_no_trouble_once_it_is_replaced(tmp_path: Path) -> None:
    state = Logged(tmp_path)
    state.at(1).bag.value.append(object())
    with pytest.raises(EncodingError, match="state 'bag' of Everything, key 1"):
        state.checkpoint()
    with pytest.raises(EncodingError):
        state.checkpoint()
    state.at(1).bag.value = ["good"]
    assert state.read(state.checkpoint())["bag", 1] == ["good"]


def test_a_snapshot_that_nobody_wrote_is_part_of_the_next_one(tmp_path: Path) -> None:
    state: Any = Logged(tmp_path)
    fill(state, [1])
    aborted = state.barrier()
    aborted.release()
    with pytest.raises(SnapshotAbandoned):
        aborted.files(None)
    assert state.read(state.checkpoint())["total", 1] == 1


def test_a_snapshot_waits_for_the_one_before_it(tmp_path: Path) -> None:
    """Threads of a pool may come in any order."""
    state: Any = Logged(tmp_path)
    may_close, closing = Event(), Event()
    good = state.create

    class Slow(FailingFile):
        def close(self) -> Any:
            closing.set()
            assert may_close.wait(60)
            return self._file.close()

    fill(state, [1])
    first = state.barrier()
    state.at(1).total.value = 2
    second = state.barrier()
    with ThreadPoolExecutor(2) as pool:
        state.create = lambda: Slow(good())
        one = pool.submit(first.files, None)
        assert closing.wait(60)
        state.create = good
        two = pool.submit(second.files, None)
        first.release()  # while it is written: does nothing
        may_close.set()
        assert len(one.result(60)) == 1
        assert two.result(60)[0] == one.result()[0]
    assert state.read(two.result())["total", 1] == 2


def test_merges_go_on_beside_and_a_failed_one_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = Logged(tmp_path)
    for value in range(3):
        for key in range(100):
            state.at(key).total.value = value
        files = state.checkpoint()
    assert len(files) == 3
    good, state.create = state.create, lambda: FailingFile(good())
    with caplog.at_level(logging.WARNING):
        state.merges.run_one()
    assert "2 files of the state of Op not merged" in caplog.text
    assert state.merged == [(0, False)]
    state.create = good
    state.at(1).total.value = -1
    assert len(state.checkpoint()) == 4
    state.merges.run_one()
    state.at(2).total.value = -2
    files = state.checkpoint()
    assert state.merged[1:] == [(files[0].file.size, True)]
    assert len(files) == 2
    found = state.read(files)
    assert (len(found), found["total", 1], found["total", 2], found["total", 3]) == (100, -1, -2, 2)


def test_a_merge_ends_when_its_subtask_does(tmp_path: Path) -> None:
    state = Logged(tmp_path)
    for value in (1, 2):
        state.at(1).total.value = value
        state.checkpoint()
    before = sorted(path.name for path in tmp_path.rglob("*-op-state-*"))
    state.log.close()
    state.merges.run_one()
    assert state.merged == [(0, False)]
    assert sorted(path.name for path in tmp_path.rglob("*-op-state-*")) == before


class Living(DeclaresState):
    seen = ValueState(default=0, ttl=TTL(60))


def test_what_is_over_leaves_older_files_too(tmp_path: Path) -> None:
    state = Logged(tmp_path, Living)
    clock = state.backend.processing_clock
    clock.begin(1_000_000, False)
    state.at("old").seen.value = 1
    before = state.checkpoint()
    clock.read(1_030_000)
    state.at("new").seen.value = 2
    clock.read(1_070_000)
    state.backend.clear_current_key()
    while not state.backend.expired:
        state.backend.remove_expired()
    files = state.checkpoint()
    assert files[0].file == before[0].file
    assert [batch.keys for batch in load_keyed_state(state.storage, files)] == [[encode_key("new")]]


class Histories(DeclaresState):
    seen = ValueState(default=0, ttl=TTL(60))
    items = ListState[int](ttl=TTL(60))
    prices = MapState[str, int](ttl=TTL(60))


def test_files_that_were_there_before_count_as_such_where_something_is_over_too(tmp_path: Path) -> None:
    state = Logged(tmp_path, Living)
    state.backend.processing_clock.begin(1_000_000, False)
    state.at("old").seen.value = 1
    (old,) = state.checkpoint()
    state.at("new").seen.value = 2
    snapshot = state.barrier()
    assert len(snapshot.files(None)) == 2
    assert snapshot.reused_bytes == old.file.size


def test_what_was_over_is_not_seen_again_where_a_clock_is_behind(tmp_path: Path) -> None:
    """Though nothing has removed it: it lies in older files."""
    state = Logged(tmp_path, Histories)
    clock = state.backend.processing_clock
    clock.begin(1_000_000, False)
    op = state.at("k")
    op.seen.value = 1
    op.items.extend([1, 2])
    op.prices["a"] = 1
    state.checkpoint()
    clock.read(1_050_000)
    op = state.at("k")
    op.items.append(3)
    op.prices["b"] = 2
    state.at("later").seen.value = 2
    state.checkpoint()
    clock.read(1_070_000)
    files = state.checkpoint()
    assert len({listed.over for listed in files}) == 1
    for clock_now in (1_005_000, 1_070_000):
        restored = Logged(tmp_path, Histories, files)
        restored.backend.processing_clock.begin(clock_now, False)
        op = restored.at("k")
        assert (op.seen.value, op.items.get(), dict(op.prices)) == (0, [3], {"b": 2})
        assert restored.at("later").seen.value == 2


def test_what_was_over_hides_what_older_files_have_of_the_key(tmp_path: Path) -> None:
    """Where time goes back, what is newer may be over before what is older."""
    state = Logged(tmp_path, Living)
    clock = state.backend.processing_clock
    clock.begin(2_000_000, False)
    state.at("k").seen.value = 1
    (old,) = state.checkpoint()
    behind = Logged(tmp_path, Living)
    behind.backend.processing_clock.begin(1_000_000, False)
    behind.at("k").seen.value = 2
    (new,) = behind.checkpoint()
    files = [replace(listed, over=(("seen", 1_500_000),)) for listed in (old, new)]
    assert list(load_keyed_state(state.storage, files)) == []


def test_what_was_over_for_one_attempt_stays_so_for_one_whose_clock_is_behind(tmp_path: Path) -> None:
    state = Logged(tmp_path, Living)
    clock = state.backend.processing_clock
    clock.begin(1_000_000, False)
    state.at("old").seen.value = 1
    state.checkpoint()
    clock.read(1_070_000)
    files = state.checkpoint()
    again = Logged(tmp_path, Living, files)
    again.backend.processing_clock.begin(900_000, False)
    again.at("new").seen.value = 2  # older than what was over, and not over here
    files = again.checkpoint()
    assert [batch.keys for batch in load_keyed_state(again.storage, files)] == [[encode_key("new")]]
    assert files[0].over == (("seen", 1_010_000),)
    assert files[1].over == (("seen", 840_000),)


class TwoClocks(DeclaresState):
    seen = ValueState(default=0, ttl=TTL(60, time="event"))
    other = ValueState(default=0, ttl=TTL(60))


class WithoutTtl(DeclaresState):
    seen = ValueState(default=0)
    other = ValueState(default=0, ttl=TTL(60))


@pytest.mark.parametrize("cls", [TwoClocks, WithoutTtl])
def test_what_was_over_stays_so_where_a_later_attempt_has_no_such_clock_yet(tmp_path: Path, cls: type) -> None:
    state = Logged(tmp_path, TwoClocks)
    state.backend.processing_clock.begin(1_000_000, False)
    state.backend.event_clock.passed(0)
    state.at("k").seen.value = 1
    state.checkpoint()
    state.backend.event_clock.passed(60_000)
    again = Logged(tmp_path, cls, state.checkpoint())
    again.backend.processing_clock.begin(1_000_000, False)
    again.at("k").other.value = 2
    files = again.checkpoint()  # in front of the first watermark
    assert again.read(files) == {("other", "k"): 2}


class Lately(DeclaresState):
    seen = ValueState(default=0, ttl=TTL(60, time="event"))
    items = ListState[int](ttl=TTL(60, time="event"))
    prices = MapState[str, int](ttl=TTL(60, time="event"))


@pytest.mark.parametrize("merges", [False, True])
def test_what_came_before_event_time_was_known_lives_no_longer_for_restarts(tmp_path: Path, merges: bool) -> None:
    """And if it was over, it doesn't come back."""
    state = Logged(tmp_path, Lately)
    op = state.at("k")
    op.seen.value = 1
    op.items.append(1)
    op.prices["a"] = 1
    files = state.checkpoint()
    assert files[0].since == ()
    for start, end, there in ((1_000, 40_000, True), (30_000, 60_999, True), (5_000, 61_000, True), (0, 0, False)):
        state = Logged(tmp_path, Lately, files)
        state.backend.event_clock.passed(start)
        op = state.at("k")
        assert (op.seen.value, op.items.get(), dict(op.prices)) == ((1, [1], {"a": 1}) if there else (0, [], {}))
        state.backend.event_clock.passed(end)
        state.at(start).seen.value = 1
        state.checkpoint()
        if merges:
            state.merges.run_one()
        files = state.checkpoint()
        assert merges or dict(files[0].since) == dict.fromkeys(("seen", "items", "prices"), 1_000)


def test_a_merge_leaves_out_what_was_over(tmp_path: Path) -> None:
    state = Logged(tmp_path, Living)
    clock = state.backend.processing_clock
    clock.begin(1_000_000, False)
    state.at("old").seen.value = 1
    state.checkpoint()
    clock.read(1_070_000)
    state.at("new").seen.value = 2
    state.checkpoint()
    state.merges.run_one()
    state.at("newer").seen.value = 3
    files = state.checkpoint()
    assert [listed.rows for listed in files] == [1, 1]


def test_state_that_is_kept_otherwise_than_its_files_say_is_written_anew(tmp_path: Path) -> None:
    class Plain(DeclaresState):
        seen = ValueState(default=0)

    state = Logged(tmp_path, Living)
    state.at("a").seen.value = 1
    assert state.backend.restored_as_it_was
    restored = Logged(tmp_path, Plain, state.checkpoint())
    assert not restored.backend.restored_as_it_was
    restored.backend.settle(changed=True)
    assert restored.rows(restored.checkpoint()[-1]) == 1


def test_state_that_was_left_out_does_not_come_back(tmp_path: Path) -> None:
    class Less(DeclaresState):
        other = ValueState(default=0)

    state = Logged(tmp_path, Living)
    state.at("a").seen.value = 1
    files = state.checkpoint()
    backend = HeapBackend(range(MAX), MAX, logs_changes=True)
    bind(Less(), backend)
    backend.restore(load_keyed_state(state.storage, files), allow_unclaimed=True)
    assert not backend.restored_as_it_was
