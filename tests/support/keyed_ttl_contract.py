"""What every keyed backend must do with a time to live. A backend's own tests subclass `KeyedTtlContract`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from keyed_backend_contract import MAX, Running, contents, looked_at, written
from ttl_model import ttl_machine

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group, range_of
from checkpoint.state import (
    TTL,
    AggregatingState,
    DeclaresState,
    KeyedBackend,
    ListState,
    MapState,
    ReducingState,
    StateBatch,
    StateRestoreError,
    ValueState,
    read_batches,
    read_footer,
)
from checkpoint.state.stores import MISSING


def operator(ttl: Any) -> type:
    """An operator with a state of every kind, all with this time to live."""

    class Timed(DeclaresState):
        total = ValueState(default=0, ttl=ttl)
        bag = ValueState(default=list, ttl=ttl)
        items = ListState[Any](ttl=ttl)
        seen = MapState[Any, Any](ttl=ttl)
        largest = ReducingState(max, ttl=ttl)
        average = AggregatingState(
            lambda: (0, 0), lambda acc, x: (acc[0] + x, acc[1] + 1), lambda acc: acc[0] / acc[1], ttl=ttl
        )

    return Timed


class Record:
    timestamp: int | None = None


class TimedRunning(Running):
    """Begins at processing time 0, in milliseconds, and without event time."""

    def __init__(self, make: type[KeyedBackend], ttl: Any, groups: range = range(MAX), wall: int = 0) -> None:
        super().__init__(make, groups, operator(ttl))
        self.record = Record()
        self.backend.event_clock.record = self.record
        self.backend.processing_clock.begin(wall, timers_due=False)

    def wall(self, milliseconds: int) -> None:
        self.backend.processing_clock.read(milliseconds)

    def watermark(self, milliseconds: int) -> None:
        self.backend.event_clock.passed(milliseconds)

    def fill(self, key: Any = "k") -> Any:
        op = self.at(key)
        op.total.value = 5
        op.bag.value.append([1])
        op.items.extend([1, 2])
        op.seen.update(a=1, b=[2])
        op.largest.add(3)
        op.average.add(4)
        return op


FULL = (5, [[1]], [1, 2], {"a": 1, "b": [2]}, 3, 4)
EMPTY = (0, [], [], {}, None, None)


def read(op: Any) -> tuple[Any, ...]:
    return (
        op.total.value,
        op.bag.value,
        op.items.get(),
        dict(op.seen.items()),
        op.largest.value,
        op.average.value,
    )


class KeyedTtlContract:
    make: ClassVar[type[KeyedBackend]]

    def timed(self, ttl: Any = 1, groups: range = range(MAX), wall: int = 0) -> TimedRunning:
        return TimedRunning(self.make, ttl, groups, wall)

    def restored(self, ttl: Any, *files: bytes, groups: range = range(MAX), wall: int = 0) -> TimedRunning:
        new = self.timed(ttl, groups, wall)
        new.restore(*files, groups=groups)
        return new

    # -- what is over is not there -----------------------------------------------------------------------------

    @pytest.mark.parametrize("ttl", [1, 1.0, timedelta(seconds=1), TTL(1)])
    def test_an_entry_is_there_up_to_its_time_to_live_and_not_from_then_on(self, ttl: Any) -> None:
        running = self.timed(ttl)
        op = running.fill()
        running.wall(999)
        assert read(op) == FULL
        running.wall(1000)
        assert read(op) == EMPTY

    @pytest.mark.parametrize(
        ("look", "expected"),
        [
            (lambda op: op.total.value, 0),
            (lambda op: op.bag.value, []),
            (lambda op: op.items.get(), []),
            (lambda op: list(op.items), []),
            (lambda op: len(op.items), 0),
            (lambda op: list(op.seen), []),
            (lambda op: list(op.seen.keys()), []),
            (lambda op: list(op.seen.values()), []),
            (lambda op: list(op.seen.items()), []),
            (lambda op: len(op.seen), 0),
            (lambda op: "a" in op.seen, False),
            (lambda op: op.seen.get("a", "none"), "none"),
            (lambda op: op.seen.pop("a", "none"), "none"),
            (lambda op: op.seen.setdefault("a", 7), 7),
            (lambda op: op.largest.value, None),
            (lambda op: op.average.value, None),
            (lambda op: (op.items.append(3), op.items.get())[1], [3]),
            (lambda op: (op.items.extend([3]), len(op.items))[1], 1),
            (lambda op: (op.items.update([3]), op.items.get())[1], [3]),
            (lambda op: (op.seen.update(b=1), dict(op.seen))[1], {"b": 1}),
            (lambda op: (op.largest.add(1), op.largest.value)[1], 1),
            (lambda op: (op.average.add(1), op.average.value)[1], 1),
            (lambda op: (op.bag.value.append(1), op.bag.value)[1], [1]),
        ],
    )
    def test_what_is_over_is_seen_by_nothing(self, look: Callable[[Any], Any], expected: Any) -> None:
        for refresh in ("write", "read_and_write"):
            running = self.timed(TTL(1, refresh=refresh))  # type: ignore[arg-type]
            op = running.fill()
            running.wall(1000)
            assert look(op) == expected
        running = self.timed()
        op = running.fill()
        running.wall(1000)
        for _ in range(100):
            running.backend.remove_expired()
        assert look(op) == expected

    def test_an_entry_of_a_map_that_is_over_cant_be_read_or_deleted(self) -> None:
        running = self.timed()
        op = running.fill()
        running.wall(1000)
        with pytest.raises(KeyError):
            op.seen["a"]
        with pytest.raises(KeyError):
            del op.seen["a"]
        with pytest.raises(KeyError):
            del op.seen["a"]

    def test_items_and_entries_live_each_for_itself(self) -> None:
        running = self.timed()
        op = running.at("k")
        for at, name in enumerate("abc"):
            running.wall(at * 400)
            op.items.append(name)
            op.seen[name] = at
        running.wall(1000)
        assert (op.items.get(), len(op.items)) == (["b", "c"], 2)
        assert (dict(op.seen), len(op.seen), "a" in op.seen) == ({"b": 1, "c": 2}, 2, False)
        op.seen["a"] = 3
        assert list(op.seen) == ["b", "c", "a"]
        running.wall(1500)
        assert (op.items.get(), list(op.seen)) == (["c"], ["c", "a"])

    def test_clearing_and_putting_again_begins_anew(self) -> None:
        running = self.timed()
        op = running.fill()
        running.wall(900)
        for handle in (op.total, op.bag, op.items, op.seen, op.largest, op.average):
            handle.clear()
        assert read(op) == EMPTY
        running.fill()
        running.wall(1899)
        assert read(op) == FULL

    # -- what refreshes ----------------------------------------------------------------------------------------

    def test_a_write_lets_the_entry_live_on_and_a_read_or_a_change_in_place_doesnt(self) -> None:
        running = self.timed()
        op = running.fill()
        running.wall(600)
        op.total.value = 6
        op.items.update([3])
        op.seen["a"] = 4
        op.largest.add(1)
        op.bag.value.append(2)
        assert op.average.value == 4
        running.wall(1000)
        assert read(op) == (6, [], [3], {"a": 4}, 3, None)

    def test_reads_let_entries_live_on_where_they_shall(self) -> None:
        running = self.timed(TTL(1, refresh="read_and_write"))
        op = running.fill()
        for at in (900, 1800, 2700):
            running.wall(at)
            assert read(op) == FULL
        running.wall(3500)
        assert "a" in op.seen
        assert (len(op.seen), list(op.seen), len(op.items)) == (2, ["a", "b"], 2)
        running.wall(3700)
        assert read(op) == (0, [], [], {"a": 1}, None, None)

    def test_reading_a_list_or_map_doesnt_bring_back_what_is_over_in_it(self) -> None:
        running = self.timed(TTL(1, refresh="read_and_write"))
        op = running.at("k")
        op.items.append(1)
        op.seen["a"] = 1
        running.wall(600)
        op.items.append(2)
        op.seen["b"] = 2
        for at in (1000, 1900, 2800):
            running.wall(at)
            assert (op.items.get(), dict(op.seen.items())) == ([2], {"b": 2})

    def test_a_look_from_outside_sees_nothing_that_is_over_and_lets_nothing_live_on(self) -> None:
        running = self.timed(TTL(1, refresh="read_and_write"))
        op = running.fill()
        running.wall(600)
        op.items.append(3)
        op.seen["c"] = 3
        running.backend.clear_current_key()
        kept = {"total": 5, "bag": [[1]], "largest": 3, "average": (4, 1)}
        for at in (0, 900):
            running.wall(at)
            assert looked_at(running, "k") == {**kept, "items": [1, 2, 3], "seen": {"a": 1, "b": [2], "c": 3}}
        key = encode_key("k")
        group = key_group(key, MAX)
        assert running.backend.peek_entry(key, group, "seen", "a") == 1
        running.wall(1000)
        assert looked_at(running, "k") == {**dict.fromkeys(kept, MISSING), "items": [3], "seen": {"c": 3}}
        assert running.backend.peek_entry(key, group, "seen", "a") is MISSING
        assert running.backend.peek_entry(key, group, "seen", "c") == 3
        running.wall(1600)
        assert set(looked_at(running, "k").values()) == {MISSING}
        assert contents(running.snapshot()) == {}

    # -- event time --------------------------------------------------------------------------------------------

    def test_by_event_time_it_is_the_watermark_that_counts(self) -> None:
        running = self.timed(TTL(1, time="event"))
        running.record.timestamp = 100
        op = running.fill()
        running.wall(10**9)
        running.watermark(1099)
        assert read(op) == FULL
        running.watermark(1100)
        assert read(op) == EMPTY

    def test_what_a_late_record_writes_lives_from_the_watermark_on(self) -> None:
        running = self.timed(TTL(1, time="event"))
        running.watermark(5000)
        running.record.timestamp = 100
        op = running.fill()
        assert read(op) == FULL
        running.watermark(5999)
        assert read(op) == FULL
        running.watermark(6000)
        assert read(op) == EMPTY

    def test_a_record_that_is_older_takes_nothing_from_the_life_of_an_entry(self) -> None:
        running = self.timed(TTL(1, time="event"))
        op = running.at("k")
        for running.record.timestamp in (900, 200):
            op.total.value = 5
            op.seen["a"] = 1
        running.watermark(1899)
        assert (op.total.value, dict(op.seen)) == (5, {"a": 1})
        running.watermark(1900)
        assert (op.total.value, dict(op.seen)) == (0, {})

    def test_without_any_time_an_entry_counts_from_the_first_watermark(self) -> None:
        running = self.timed(TTL(1, time="event"))
        op = running.fill()
        running.watermark(70_000)
        assert read(op) == FULL
        running.watermark(70_999)
        assert read(op) == FULL
        again = self.restored(TTL(1, time="event"), running.snapshot())
        running.watermark(71_000)
        assert read(op) == EMPTY
        again.watermark(71_000)
        assert read(again.at("k")) == EMPTY

    def test_the_end_of_input_lets_nothing_end(self) -> None:
        running = self.timed(TTL(1, time="event"))
        running.record.timestamp = 100
        op = running.fill()
        running.watermark(500)
        running.watermark(2**63 - 1)
        running.backend.event_clock.fires(2**63 - 1, 2**63 - 1)
        assert read(op) == FULL
        assert read(self.restored(None, running.snapshot()).at("k")) == FULL

    def test_no_clock_goes_back(self) -> None:
        for ttl, move in [(1, TimedRunning.wall), (TTL(1, time="event"), TimedRunning.watermark)]:
            running = self.timed(ttl)
            move(running, 0)
            op = running.fill()
            move(running, 1000)
            move(running, 500)
            assert read(op) == EMPTY
            op.total.value = 5
            move(running, 1500)
            assert op.total.value == 5

    # -- snapshots ---------------------------------------------------------------------------------------------

    def test_a_snapshot_leaves_out_what_is_over(self) -> None:
        running = self.timed()
        for key in range(50):
            running.fill(key)
        running.wall(600)
        running.at(3).total.value = 9
        running.at(3).items.append(3)
        running.at(3).seen["c"] = 3
        running.wall(1000)
        data = running.snapshot()
        assert contents(data) == {("total", 3): 9, ("items", 3): [3], ("seen", 3): {"c": 3}}
        footer = read_footer(data)
        assert (footer.rows, len(footer.groups), footer.states) == (3, 1, ("items", "seen", "total"))
        running.wall(1600)
        assert read_footer(running.snapshot()).rows == 0
        assert contents(running.snapshot()) == {}

    def test_a_snapshot_has_the_time_of_its_barrier(self) -> None:
        running = self.timed()
        running.fill()
        running.wall(999)
        frozen = running.backend.freeze()
        running.wall(5000)
        for _ in range(100):
            running.backend.remove_expired()
        running.at("k").total.value = 8
        assert contents(written(frozen))["total", "k"] == 5

    def test_members_that_are_removed_are_in_a_snapshot_that_is_open(self) -> None:
        running = self.timed()
        op = running.fill()
        running.wall(600)
        op.items.append(3)
        op.seen["c"] = 3
        frozen = running.backend.freeze()
        running.wall(1000)
        for _ in range(100):
            running.backend.remove_expired()
        assert (op.items.get(), dict(op.seen)) == ([3], {"c": 3})
        found = contents(written(frozen))
        assert (found["items", "k"], found["seen", "k"]) == ([1, 2, 3], {"a": 1, "b": [2], "c": 3})

    def test_refreshed_by_a_read_while_a_snapshot_is_open(self) -> None:
        ttl = TTL(1, refresh="read_and_write")
        running = self.timed(ttl)
        op = running.fill()
        frozen = running.backend.freeze()
        running.wall(900)
        assert read(op) == FULL
        old, new = self.restored(ttl, written(frozen), wall=900), self.restored(ttl, running.snapshot(), wall=900)
        old.wall(1000)
        new.wall(1000)
        assert read(old.at("k")) == EMPTY
        assert read(new.at("k")) == FULL

    def test_without_a_time_to_live_files_are_as_they_were(self) -> None:
        running = self.timed(None)
        running.fill()
        data = running.snapshot()
        assert b"written" not in data
        assert b"ttl" not in data
        assert read_footer(data).ttl == {}
        assert {(batch.written, batch.clock) for batch in read_batches(data)} == {(None, None)}

    # -- restoring ---------------------------------------------------------------------------------------------

    def test_the_time_in_which_no_job_ran_counts(self) -> None:
        running = self.timed()
        running.fill()
        running.wall(400)
        data = running.snapshot()
        assert read(self.restored(1, data, wall=999).at("k")) == FULL
        assert read(self.restored(1, data, wall=1000).at("k")) == EMPTY

    @pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5)])
    @pytest.mark.parametrize("time", ["processing", "event"])
    def test_what_was_over_doesnt_come_back_at_another_parallelism_where_clocks_are_behind(
        self, before: int, after: int, time: Any
    ) -> None:
        ttl, files = TTL(1, time=time), []
        for i in range(before):
            groups = range_of(i, before, MAX)
            old = self.timed(ttl, groups)
            old.watermark(0)
            for key in range(30):
                if key_group(encode_key(key), MAX) in groups:
                    old.at(key).total.value = 1
            old.wall(600)
            old.watermark(600)
            for key in range(0, 30, 2):
                if key_group(encode_key(key), MAX) in groups:
                    old.at(key).total.value = 2
            old.wall(1000)
            old.watermark(1000)
            files.append(old.snapshot())
        for i in range(after):
            groups = range_of(i, after, MAX)
            new = self.restored(ttl, *files, groups=groups, wall=300)
            keys = [key for key in range(30) if key_group(encode_key(key), MAX) in groups]
            assert [new.at(key).total.value for key in keys] == [0 if key % 2 else 2 for key in keys]
            new.wall(1599)
            new.watermark(1599)
            assert [new.at(key).total.value for key in keys] == [0 if key % 2 else 2 for key in keys]
            new.wall(1600)
            new.watermark(1600)
            assert {new.at(key).total.value for key in keys} <= {0}

    @pytest.mark.parametrize("time", ["processing", "event"])
    def test_what_had_no_time_to_live_begins_to_live_at_the_restore(self, time: Any) -> None:
        running = self.timed(None)
        running.fill()
        new = self.restored(TTL(1, time=time), running.snapshot(), wall=70_000)
        new.watermark(70_000)
        new.wall(70_999)
        new.watermark(70_999)
        assert read(new.at("k")) == FULL
        new.wall(71_000)
        new.watermark(71_000)
        assert read(new.at("k")) == EMPTY

    def test_time_goes_on_for_what_began_to_live_at_an_earlier_restore(self) -> None:
        running = self.timed(None)
        running.fill()
        first = self.restored(1, running.snapshot(), wall=70_000)
        first.wall(70_600)
        second = self.restored(1, first.snapshot(), wall=70_999)
        assert read(second.at("k")) == FULL
        second.wall(71_000)
        assert read(second.at("k")) == EMPTY

    def test_another_clock_is_a_new_life(self) -> None:
        running = self.timed()
        running.fill()
        running.wall(900)
        new = self.restored(TTL(1, time="event"), running.snapshot(), wall=900)
        new.watermark(5)
        new.wall(5000)
        new.watermark(1004)
        assert read(new.at("k")) == FULL
        new.watermark(1005)
        assert read(new.at("k")) == EMPTY

    def test_without_a_time_to_live_any_more_everything_stays(self) -> None:
        running = self.timed()
        running.fill()
        running.wall(900)
        new = self.restored(None, running.snapshot(), wall=10**9)
        new.watermark(10**9)
        assert read(new.at("k")) == FULL
        assert read_footer(new.snapshot()).ttl == {}

    def test_a_longer_or_shorter_time_to_live_holds_for_what_is_there(self) -> None:
        running = self.timed()
        running.fill()
        running.wall(900)
        data = running.snapshot()
        longer, shorter = self.restored(3, data, wall=2999), self.restored(0.5, data, wall=900)
        assert read(longer.at("k")) == FULL
        longer.wall(3000)
        assert read(longer.at("k")) == EMPTY
        assert read(shorter.at("k")) == EMPTY

    def test_times_that_dont_fit_are_an_error(self) -> None:
        key = encode_key(1)
        for name, value, packed in [("total", 5, bytes(7)), ("items", [1, 2], bytes(8)), ("seen", {1: 1}, b"")]:
            batch = StateBatch(key_group(key, MAX), name, [key], None, [value], [packed], "processing")
            with pytest.raises(StateRestoreError, match=f"state '{name}' .* key 1 has no time for each"):
                self.timed().backend.restore([batch])

    def test_a_row_without_entries_is_nothing(self) -> None:
        running, key = self.timed(), encode_key(1)
        rows: list[tuple[str, Any]] = [("items", []), ("seen", {}), ("bag", [])]
        running.backend.restore([StateBatch(key_group(key, MAX), name, [key], None, [value]) for name, value in rows])
        op = running.at(1)
        assert (op.items.get(), len(op.items), list(op.seen), len(op.seen), op.bag.value) == ([], 0, [], 0, [])
        op.items.append(1)
        op.seen["a"] = 1
        assert (op.items.get(), dict(op.seen)) == ([1], {"a": 1})

    # -- all of it ---------------------------------------------------------------------------------------------

    def test_it_agrees_with_a_plain_model(self) -> None:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            ttl_machine(self.make), settings=settings(deadline=None, max_examples=60, stateful_step_count=40)
        )
