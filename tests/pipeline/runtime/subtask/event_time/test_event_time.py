"""Event time in a subtask: from what its inputs say to timers, `on_watermark` and what goes downstream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import encode_key
from checkpoint.elements import ChannelName, EdgeName, IdleStatus, Watermark
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.generator import PERIOD
from checkpoint.key_groups import key_group, range_of
from checkpoint.state import KeyedBackend, StateAccessError, make_backend, read_batches
from pipeline import KeyedOperator, ListState, Operator, Pipeline, WatermarkStrategy
from pipeline.plan import PlannedEdge, Vertex
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.event_time.domains import reads_by_split
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.steps.timestamps import BadTimestamp
from pipeline.streams import Stream
from pipeline.testing import ManualClock, TestingSource

MAX_PARALLELISM = 16
END = Watermark(MAX_WATERMARK)


class Writer:
    """An edge that keeps what is sent on it, records with their timestamps."""

    def __init__(self, edge: PlannedEdge, record: RecordInProgress) -> None:
        self.edge = edge
        self.sent: list[Any] = []
        self._record = record

    def emit(self, value: Any) -> None:
        self.sent.append((value, self._record.timestamp))

    def broadcast(self, element: Any) -> None:
        self.sent.append(element)


class Subtask:
    """One subtask of one vertex, without its task loop and channels."""

    def __init__(
        self,
        build: Callable[[Stream], Any],
        vertex: int = 0,
        splits: Sequence[Any] | None = None,
        subtask: int = 0,
        parallelism: int = 1,
    ) -> None:
        p = Pipeline("job", max_parallelism=MAX_PARALLELISM)
        build(p.source("in", TestingSource()))
        plan = p.plan()
        self.vertex: Vertex = plan.vertices[vertex]
        self.clock = ManualClock(1000.0)
        self.record = RecordInProgress()
        self.mailbox = Mailbox()
        self.splits = splits
        self.waiting: list[Any] = []
        self.backend: KeyedBackend | None = None
        if isinstance(self.vertex.head.payload, KeyedOperator):
            self.backend = make_backend(range_of(subtask, parallelism, MAX_PARALLELISM), MAX_PARALLELISM)
        self.writers = [Writer(edge, self.record) for edge in plan.outputs_of(vertex)]
        outputs: dict[tuple[str, str | None], list[Any]] = {}
        for writer in self.writers:
            outputs.setdefault((writer.edge.upstream_step, writer.edge.tag), []).append(writer.emit)
        contexts = {step.id: Context(self.record, subtask, parallelism) for step in self.vertex.steps}
        self.context = contexts[self.vertex.head.id]
        self.chain = Chain(self.vertex, self.record, contexts, {}, outputs, self.backend, self.clock)
        self.channels = [ChannelName(edge.name, u, subtask) for edge in plan.inputs_of(vertex) for u in range(2)]
        self.time = EventTime(
            chain=self.chain,
            backend=self.backend,
            writers=self.writers,  # type: ignore[arg-type]
            mailbox=self.mailbox,
            channels=None if self.vertex.is_source else self.channels,
            splits=lambda: self.splits,
            waiting=lambda: self.waiting,
            clock=self.clock,
            wall_clock=self.clock,
        )

    def open(self) -> Subtask:
        self.chain.open()
        self.time.open()
        self.fire()
        return self

    @property
    def sent(self) -> list[Any]:
        """What the last edge has got since this was asked the last time."""
        sent, self.writers[-1].sent = self.writers[-1].sent, []
        return sent

    def watermark(self, timestamp: int, *channels: int) -> None:
        for channel in channels or range(len(self.channels)):
            self.time.on_watermark(self.channels[channel], timestamp)

    def fire(self) -> None:
        while self.time.due:
            self.time.fire()

    def process(self, value: Any, key: Any = None, timestamp: int | None = None, split: Any = None) -> None:
        record = self.record
        record.timestamp, record.source_splits = timestamp, split
        if self.backend is not None:
            encoded = encode_key(key)
            record.key_bytes, record.key_group = encoded, key_group(encoded, MAX_PARALLELISM)
            self.backend.set_current_key(encoded, record.key_group)
        self.chain.push(value)
        record.timestamp = None

    def advance(self, seconds: float, held_up: bool = False) -> None:
        self.clock.advance(seconds)
        self.time.on_clock(self.clock(), held_up)
        self.fire()


def key_of(subtask: int, parallelism: int = 2) -> int:
    """A key whose records come to that subtask."""
    groups = range_of(subtask, parallelism, MAX_PARALLELISM)
    return next(key for key in range(1000) if key_group(encode_key(key), MAX_PARALLELISM) in groups)


def packed(state: Any) -> Any:
    """As it comes back from a checkpoint."""
    return ormsgpack.unpackb(ormsgpack.packb(state, option=_PACK), option=ormsgpack.OPT_NON_STR_KEYS)


_PACK = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_PASSTHROUGH_SUBCLASS


class Remember(KeyedOperator):
    """Sets a timer for each value, which is a time, and tells what it fires with."""

    seen = ListState[int]()

    def process(self, value: int, ctx: Any) -> None:
        self.seen.append(value)
        ctx.timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield [ctx.key, timestamp, ctx.timestamp, ctx.watermark, list(self.seen)]


class Tell(Operator):
    """Tells of watermarks, as a record in front of them."""

    def __init__(self, name: str = "tell") -> None:
        self.name = name

    def process(self, value: Any, ctx: Any) -> Any:
        yield [self.name, value, ctx.watermark]

    def on_watermark(self, timestamp: int, ctx: Any) -> Any:
        yield [self.name, "watermark", timestamp, ctx.watermark, ctx.key]


class RememberBoth(Remember):
    def process_connected(self, value: int, ctx: Any) -> None:
        pass


def keyed(stream: Stream) -> Any:
    return stream.key_by(lambda v: v).process("op", Remember()).rebalance().map(lambda v: v)


def plain(stream: Stream) -> Any:
    return stream.rebalance().process("op", Tell()).rebalance().map(lambda v: v)


def bounded(stream: Stream, lateness: float = 0, idle_after: float | None = None) -> Any:
    strategy = WatermarkStrategy.bounded("at", lateness, idle_after)
    return stream.assign_timestamps(strategy, id="times").rebalance().map(lambda v: v)


# -- watermarks through an operator -----------------------------------------------------------------------------


def test_a_watermark_goes_on_when_all_channels_have_it_behind_what_operators_emit_for_it() -> None:
    one = Subtask(plain, 1).open()
    one.watermark(10, 0)
    one.fire()
    assert one.sent == []
    one.watermark(20, 1)
    assert one.time.due
    one.fire()
    assert one.sent == [(["tell", "watermark", 10, 10, None], None), Watermark(10)]
    assert not one.time.due
    one.process("x")
    assert one.sent == [(["tell", "x", 10], None)]


def test_operators_hear_of_a_watermark_in_the_order_of_the_chain() -> None:
    def build(stream: Stream) -> Any:
        chained = stream.rebalance().process("a", Tell("a")).process("b", Tell("b"))
        return chained.rebalance().map(lambda v: v)

    one = Subtask(build, 1).open()
    one.watermark(10)
    one.fire()
    assert one.sent == [
        (["b", ["a", "watermark", 10, 10, None], None], None),
        (["b", "watermark", 10, 10, None], None),
        Watermark(10),
    ]


def test_what_a_timer_emits_is_not_late_for_the_steps_behind_chained_or_not() -> None:
    def build(stream: Stream) -> Any:
        chained = stream.key_by(lambda v: v).process("op", Chase()).process("b", Tell("b"))
        return chained.rebalance().map(lambda v: v)

    one = Subtask(build, 1).open()
    one.watermark(5)
    one.fire()
    one.process(10, "a")
    one.watermark(15)
    one.fire()
    assert one.sent[2:] == [(["b", 10, 5], 10), (["b", "watermark", 15, 15, None], None), Watermark(15)]


def test_what_map_batches_holds_goes_in_front_of_the_watermark() -> None:
    def build(stream: Stream) -> Any:
        batches = stream.rebalance().map(lambda v: v).map_batches(lambda batch: batch)
        return batches.rebalance().map(lambda v: v)

    one = Subtask(build, 1).open()
    one.process({"a": 1}, timestamp=5)
    one.watermark(10)
    one.fire()
    assert one.sent == [({"a": 1}, 5), Watermark(10)]


def test_idle_statuses_go_on_when_the_last_channel_falls_idle_and_when_the_first_wakes_up() -> None:
    one = Subtask(plain, 1).open()
    one.time.on_idle(one.channels[0], True)
    one.fire()
    assert one.sent == []
    one.time.on_idle(one.channels[1], True)
    one.fire()
    assert one.sent == [IdleStatus(True)]
    one.time.on_idle(one.channels[0], False)
    one.watermark(10, 0)
    one.fire()
    assert one.sent == [IdleStatus(False), (["tell", "watermark", 10, 10, None], None), Watermark(10)]


def test_when_all_inputs_have_ended_event_time_ends() -> None:
    one = Subtask(plain, 1).open()
    one.time.on_end(one.channels[0])
    one.fire()
    assert one.sent == []
    one.time.on_end(one.channels[1])
    one.time.end_of_input()
    one.fire()
    assert one.sent[-1] == END
    one.time.end_of_input()
    one.fire()
    assert one.sent == []


def test_the_watermark_and_idleness_can_be_sent_again() -> None:
    one = Subtask(plain, 1).open()
    one.time.resend()
    assert one.sent == []
    one.watermark(10)
    for channel in one.channels:
        one.time.on_idle(channel, True)
    one.fire()
    assert one.sent[1:] == [Watermark(10), IdleStatus(True)]
    one.time.resend()
    assert one.sent == [Watermark(10), IdleStatus(True)]


def test_a_keyed_operator_can_emit_nothing_for_a_watermark() -> None:
    class Emits(Remember):
        def on_watermark(self, timestamp: int, ctx: Any) -> Any:
            return [1]

    one = Subtask(lambda s: s.key_by(lambda v: v).process("op", Emits()).rebalance().map(str), 1).open()
    one.watermark(10)
    with pytest.raises(TypeError, match=r"Emits\.on_watermark emitted 1; a KeyedOperator has no current key there"):
        one.fire()


# -- timers -----------------------------------------------------------------------------------------------------


def test_timers_fire_with_their_key_in_order_of_time_in_front_of_the_watermark() -> None:
    one = Subtask(keyed, 1).open()
    for at, key in ((30, "b"), (10, "b"), (20, "a"), (31, "a")):
        one.process(at, key)
    one.watermark(30)
    one.fire()
    assert one.sent == [
        (["b", 10, 10, 30, [30, 10]], 10),
        (["a", 20, 20, 30, [20, 31]], 20),
        (["b", 30, 30, 30, [30, 10]], 30),
        Watermark(30),
    ]
    assert (one.context.key, one.context.timestamp, one.context.watermark) == (None, None, 30)


def test_a_timer_for_a_time_that_has_passed_is_due_at_once() -> None:
    one = Subtask(keyed, 1).open()
    one.watermark(30)
    one.fire()
    one.process(20, "a")
    assert one.time.due
    one.fire()
    assert one.sent == [Watermark(30), (["a", 20, 20, 30, [20]], 20)]


def test_before_the_first_watermark_no_event_timer_is_due() -> None:
    one = Subtask(keyed, 1).open()
    one.process(-(2**63), "a")
    assert not one.time.due


class Chase(KeyedOperator):
    """Each timer sets the next one, ten further, and the last stops at 50."""

    def process(self, value: Any, ctx: Any) -> None:
        ctx.timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if timestamp < 50:
            ctx.timer(timestamp + 10)
        yield timestamp


def test_timers_that_timers_set_fire_in_the_same_round_if_they_are_due() -> None:
    one = Subtask(lambda s: s.key_by(lambda v: v).process("op", Chase()).rebalance().map(str), 1).open()
    one.process(10, "a")
    one.watermark(35)
    one.fire()
    assert one.sent == [(10, 10), (20, 20), (30, 30), Watermark(35)]


def test_the_end_of_input_fires_all_event_timers() -> None:
    one = Subtask(lambda s: s.key_by(lambda v: v).process("op", Chase()).rebalance().map(str), 1).open()
    one.process(10, "a")
    one.time.end_of_input()
    one.fire()
    assert one.sent == [*((at, at) for at in (10, 20, 30, 40, 50)), END]


class ByTheClock(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> None:
        ctx.processing_timer(value)
        ctx.processing_timer(value + 1)
        ctx.delete_processing_timer(value + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield [ctx.key, timestamp, ctx.timestamp]


def test_processing_timers_fire_by_the_clock_and_have_no_event_time() -> None:
    one = Subtask(lambda s: s.key_by(lambda v: v).process("op", ByTheClock()).rebalance().map(str), 1).open()
    one.process(1_005_000, "a")
    assert one.time.seconds_to_next(one.clock()) == 5.0
    one.advance(4.9)
    assert one.sent == []
    one.advance(0.1)
    assert one.sent == [(["a", 1_005_000, None], None)]
    assert one.time.seconds_to_next(one.clock()) == float("inf")


def test_firing_stops_behind_any_timer_when_the_mailbox_interrupts_and_goes_on_there() -> None:
    class Interrupting(Chase):
        mailbox: Any = None

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            Interrupting.mailbox.interrupt = True
            return super().on_timer(timestamp, ctx)

    one = Subtask(lambda s: s.key_by(lambda v: v).process("op", Interrupting()).rebalance().map(str), 1)
    Interrupting.mailbox = one.mailbox
    one.open()
    one.process(10, "a")
    one.watermark(20)
    one.time.fire()
    assert one.sent == [(10, 10)]
    one.time.fire()
    assert one.sent == []  # as long as it wants to be looked after
    one.mailbox.interrupt = False
    one.time.fire()
    assert one.sent == [(20, 20)]
    assert one.time.due
    one.mailbox.interrupt = False
    one.time.fire()
    assert one.sent == [Watermark(20)]


@pytest.mark.parametrize("where", ["chained", "open", "on_watermark"])
def test_timers_belong_to_the_keyed_operator_while_it_has_a_key(where: str) -> None:
    class Sets(Operator):
        def process(self, value: Any, ctx: Any) -> None:
            ctx.timer(1)

    class Eager(Chase):
        def open(self, ctx: Any) -> None:
            if where == "open":
                ctx.timer(1)

        def process(self, value: Any, ctx: Any) -> Any:
            yield value

        def on_watermark(self, timestamp: int, ctx: Any) -> None:
            if where == "on_watermark":
                ctx.timer(1)

    def build(stream: Stream) -> Any:
        head = stream.key_by(lambda v: v).process("op", Eager())
        return (head.process("sets", Sets()) if where == "chained" else head).rebalance().map(str)

    one = Subtask(build, 1)

    def run() -> None:
        one.open()
        if where == "chained":
            one.process(1, "a")
        one.watermark(1)
        one.fire()

    with pytest.raises(StateAccessError, match="outside of a Keyed" if where == "chained" else "no current key"):
        run()


def test_an_operator_that_sets_timers_must_say_what_they_do() -> None:
    class Mute(KeyedOperator):
        def process(self, value: Any, ctx: Any) -> None:
            ctx.timer(value)

    one = Subtask(lambda s: s.key_by(lambda v: v).process("op", Mute()).rebalance().map(str), 1).open()
    one.process(1, "a")
    one.watermark(1)
    with pytest.raises(NotImplementedError, match="Mute set a timer, so it must implement on_timer"):
        one.fire()


# -- assign_timestamps ------------------------------------------------------------------------------------------


def test_records_get_their_timestamp_and_the_watermark_follows_behind_them() -> None:
    one = Subtask(lambda s: bounded(s, lateness=0.005), splits=["a"]).open()
    one.process({"at": 100}, split="a")
    one.process({"at": 90}, split="a")
    one.advance(0)
    assert one.sent == [({"at": 100}, 100), ({"at": 90}, 90), Watermark(94)]
    one.process({"at": 200}, split="a")
    one.advance(PERIOD / 2)
    assert one.sent == [({"at": 200}, 200)]
    one.advance(PERIOD / 2)
    assert one.sent == [Watermark(194)]


def test_chained_to_a_source_the_slowest_split_that_is_read_decides() -> None:
    one = Subtask(bounded, splits=["a", ("t", 1)]).open()
    one.record.row = 0
    one.process({"at": 100}, split="a")
    one.advance(1)
    assert one.sent == [({"at": 100}, 100)]
    one.process({"at": 50}, split=[("t", 1), "a"])
    one.record.row = 1
    one.process({"at": 101}, split=[("t", 1), "a"])
    one.advance(1)
    assert one.sent[-1] == Watermark(49)
    one.splits = ["a"]
    one.advance(1)
    assert one.sent == [Watermark(100)]


def test_a_source_without_splits_to_read_is_idle() -> None:
    one = Subtask(bounded, splits=[]).open()
    one.advance(0)
    assert one.sent == [IdleStatus(True)]


def test_a_source_that_falls_idle_says_so_and_wakes_up_in_front_of_its_next_record() -> None:
    one = Subtask(lambda s: bounded(s, idle_after=5), splits=["a"]).open()
    one.advance(5)
    assert one.sent == [IdleStatus(True)]
    one.process({"at": 100}, split="a")
    assert one.sent == [IdleStatus(False), ({"at": 100}, 100)]


def test_a_split_whose_records_wait_behind_those_of_others_does_not_make_them_late() -> None:
    one = Subtask(lambda s: bounded(s, idle_after=5), splits=["a", ("t", 1)]).open()
    one.waiting = [["t", 1]]
    for at in (100, 200, 300):
        one.process({"at": at}, split="a")
        one.advance(4)
    assert Watermark not in map(type, one.sent)
    one.waiting = []
    one.process({"at": 400}, split="a")
    one.advance(0.2)
    one.process({"at": 500}, split="a")
    one.advance(4.9)
    assert one.sent[-1] == Watermark(499)


def test_one_that_fell_idle_wakes_up_once_its_records_wait() -> None:
    one = Subtask(lambda s: bounded(s, idle_after=5), splits=["a"]).open()
    one.advance(5)
    one.waiting = ["a"]
    one.advance(1)
    assert one.sent == [IdleStatus(True), IdleStatus(False)]


def test_what_the_furthest_of_idle_splits_says_goes_in_front_of_the_idle_status() -> None:
    one = Subtask(lambda s: bounded(s, idle_after=5), splits=["a", "b"]).open()
    one.process({"at": 100}, split="a")
    one.process({"at": 200}, split="b")
    one.advance(0)
    assert one.sent[-1] == Watermark(99)
    one.advance(5)
    assert one.sent == [Watermark(199), IdleStatus(True)]
    one.advance(50)
    assert one.sent == []


@pytest.mark.parametrize("splits", [[], ["a"]])
def test_behind_the_end_of_event_time_nothing_is_due_however_much_time_passes(splits: list[str]) -> None:
    """Or the end of output would wait for ever."""
    one = Subtask(lambda s: bounded(s, idle_after=5), splits=splits).open()
    one.advance(0)
    one.time.end_of_input()
    one.fire()
    assert one.sent[-1] == END
    for one.splits in ([], ["a"]):
        one.clock.advance(10)
        one.time.on_clock(one.clock())
        assert not one.time.due
    assert one.time.seconds_to_next(one.clock()) == float("inf")
    assert one.sent == []


@pytest.mark.parametrize("options", [{}, {"max_ahead": 60}], ids=["all are believed", "max_ahead"])
def test_the_end_of_the_data_comes_before_the_end_of_time(options: Any) -> None:
    """However fast it was read, and though its splits are read no more."""
    strategy = WatermarkStrategy.bounded("at", 5, **options)

    def build(stream: Stream) -> Any:
        return stream.assign_timestamps(strategy).rebalance().map(lambda v: v)

    one = Subtask(build, splits=["a", "b"]).open()
    for split, at in (("a", 100), ("b", 500), ("b", 700), ("a", 200)):
        one.process({"at": at}, split=split)
    one.splits = []
    one.advance(0)
    one.time.end_of_input()
    one.fire()
    assert [e for e in one.sent if isinstance(e, Watermark)][-2:] == [Watermark(700), END]


def test_a_source_that_is_held_up_is_not_idle() -> None:
    one = Subtask(lambda s: bounded(s, idle_after=5), splits=["a"]).open()
    one.advance(50, held_up=True)
    assert one.sent == []


def test_elsewhere_watermarks_from_upstream_end_at_assign_timestamps_but_for_the_last() -> None:
    def build(stream: Stream) -> Any:
        tell = stream.rebalance().process("before", Tell("before"))
        strategy = WatermarkStrategy.bounded(lambda v: v[1] if type(v[1]) is int else 0, 0)
        return tell.assign_timestamps(strategy).process("behind", Tell("behind")).rebalance().map(str)

    one = Subtask(build, 1).open()
    one.process(100)
    assert one.sent == [(["behind", ["before", 100, None], None], 100)]
    one.watermark(7)
    one.fire()
    assert one.sent == [(["behind", ["before", "watermark", 7, 7, None], None], 0)]
    one.advance(0)
    assert one.sent == [(["behind", "watermark", 99, 99, None], None), Watermark(99)]
    one.process(200)
    assert one.sent == [(["behind", ["before", 200, 7], 99], 200)]
    one.time.end_of_input()
    one.fire()
    assert one.sent[-2:] == [(["behind", "watermark", MAX_WATERMARK, MAX_WATERMARK, None], None), END]


def test_only_edges_behind_assign_timestamps_get_its_watermarks() -> None:
    def build(stream: Stream) -> Any:
        stream.rebalance().map(lambda v: v)
        bounded(stream)

    one = Subtask(build, splits=["a"]).open()
    one.process({"at": 100}, split="a")
    one.advance(0)
    without, behind = (writer.sent for writer in one.writers)
    assert without == [({"at": 100}, None)]
    assert behind == [({"at": 100}, 100), Watermark(99)]


def test_a_source_without_assign_timestamps_makes_no_watermark_but_that_of_its_end() -> None:
    one = Subtask(lambda s: s.rebalance().map(lambda v: v)).open()
    one.process("x", timestamp=5)
    one.advance(10)
    one.time.end_of_input()
    one.fire()
    assert one.sent == [("x", 5), END]


@pytest.mark.parametrize("at", [None, 1.5, "7", True, 2**63 - 1, -(2**63)])
def test_a_timestamp_that_is_no_int_names_the_step_and_the_record(at: Any) -> None:
    one = Subtask(bounded, splits=["a"]).open()
    with pytest.raises(BadTimestamp, match=r"assign_timestamps 'times': the timestamp of a record is .*'who': 'ann'"):
        one.process({"at": at, "who": "ann"}, split="a")


@pytest.mark.parametrize("record", [{"who": "ann"}, ["ann"], None])
def test_a_record_without_the_field_is_named_with_the_step(record: Any) -> None:
    one = Subtask(bounded, splits=["a"]).open()
    with pytest.raises(BadTimestamp, match="assign_timestamps 'times': the record has no 'at': ") as caught:
        one.process(record, split="a")
    assert repr(record) in str(caught.value)


def test_a_source_is_asked_for_splits_only_where_they_are_needed() -> None:
    strategy = WatermarkStrategy.bounded("at", 0)
    behind_batches = lambda s: s.map_batches(lambda b: b).assign_timestamps(strategy)  # noqa: E731
    assert reads_by_split(Subtask(bounded).vertex)
    assert reads_by_split(Subtask(lambda s: s.map(lambda v: v).assign_timestamps(strategy)).vertex)
    assert not reads_by_split(Subtask(lambda s: s.map(lambda v: v)).vertex)
    assert not reads_by_split(Subtask(behind_batches).vertex)
    assert not reads_by_split(Subtask(lambda s: s.rebalance().assign_timestamps(strategy), 1).vertex)


# -- checkpoints ------------------------------------------------------------------------------------------------


def holders(one: Subtask, *old: int) -> dict[EdgeName, list[int]]:
    return {channel.edge: list(old) for channel in one.channels}


def restored(
    build: Callable[[Stream], Any], vertex: int, *olds: Subtask, subtask: int = 0, parallelism: int = 1
) -> Subtask:
    """A new subtask with the state of old ones, all of which it follows."""
    one = Subtask(build, vertex, olds[0].splits, subtask, parallelism)
    same = (len(olds), olds[0].context.parallelism) == (1, parallelism)
    one.time.restore(packed([old.time.snapshot() for old in olds]), holders(one, *range(len(olds))), same)
    for step in olds[0].time.snapshot_watermarks():
        one.time.restore_watermarks(step, packed([old.time.snapshot_watermarks()[step] for old in olds]), same)
    for old in olds:
        if old.backend is not None and one.backend is not None:
            pieces = bytearray()
            old.backend.freeze().write(pieces.extend)
            one.backend.restore(read_batches(bytes(pieces)))
    return one.open()


def test_a_restored_subtask_has_the_watermark_it_had_and_takes_only_news() -> None:
    old = Subtask(plain, 1).open()
    old.watermark(10)
    old.watermark(20, 0)
    old.fire()
    one = restored(plain, 1, old)
    assert one.context.watermark == 10
    one.process("x")
    one.watermark(10)
    one.fire()
    assert one.sent == [(["tell", "x", 10], None)]
    one.watermark(15, 1)
    one.fire()
    assert one.sent[-1] == Watermark(15)


def test_a_watermark_whose_timers_were_half_fired_fires_the_rest_and_is_sent_after_the_restore() -> None:
    old = Subtask(keyed, 1).open()
    for at in (10, 20, 30):
        old.process(at, "a")
    old.watermark(25)
    assert old.backend is not None
    assert old.backend.event_timers.pop(25) is not None  # what a `fire` that was interrupted has done
    one = restored(keyed, 1, old)
    assert one.sent == [(["a", 20, 20, 25, [10, 20, 30]], 20), Watermark(25)]
    one.watermark(25)  # put back into its channel
    one.fire()
    assert one.sent == []


def test_idleness_is_restored_as_it_was_told_downstream() -> None:
    old = Subtask(plain, 1).open()
    for channel in old.channels:
        old.time.on_idle(channel, True)
    old.fire()
    one = restored(plain, 1, old)
    assert one.sent == []
    one.time.on_idle(one.channels[0], False)
    one.fire()
    assert one.sent == [IdleStatus(False)]


def test_after_rescaling_old_channels_count_until_the_restored_data_is_used_up() -> None:
    left, right = Subtask(keyed, 1, subtask=0, parallelism=2), Subtask(keyed, 1, subtask=1, parallelism=2)
    for old in (left, right):
        old.open()
        old.process(15, key_of(old.context.subtask))
        old.watermark(10)
        old.fire()
    one = restored(keyed, 1, left, right)
    assert one.context.watermark == 10
    for channel in left.channels:
        one.time.on_watermark(channel, 20, restored=True)
    one.fire()
    assert one.sent == []
    for channel in right.channels:
        one.time.on_watermark(channel, 30, restored=True)
    one.fire()
    *timers, last = one.sent
    assert sorted(value[:2] for value, _ in timers) == sorted([[key_of(0), 15], [key_of(1), 15]])
    assert last == Watermark(20)
    one.time.end_restored()
    one.watermark(25, 0)
    one.fire()
    assert one.sent == []
    one.watermark(40, 1)
    one.fire()
    assert one.sent == [Watermark(25)]


def test_what_new_channels_told_before_the_restored_data_was_used_up_is_passed_on_then() -> None:
    olds = [Subtask(plain, 1, subtask=i, parallelism=2).open() for i in range(2)]
    for old in olds:
        old.watermark(10)
        old.fire()
    one = restored(plain, 1, *olds)
    one.watermark(40)
    one.fire()
    assert one.sent == []
    one.time.end_restored()
    one.fire()
    assert one.sent[-1:] == [Watermark(40)]


class Heard(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> Any:
        ctx.timer(value)
        yield [ctx.watermark, ctx.key_watermark]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield [ctx.watermark, ctx.key_watermark]

    def process_connected(self, value: Any, ctx: Any) -> Any:
        yield [ctx.watermark, ctx.key_watermark]


def heard(stream: Stream) -> Any:
    return stream.key_by(lambda v: v).process("op", Heard()).rebalance().map(str)


def test_after_rescaling_time_has_not_gone_back_for_a_key() -> None:
    left, right = (Subtask(heard, 1, subtask=i, parallelism=2).open() for i in range(2))
    left.watermark(30)
    left.fire()
    right.watermark(10)
    right.fire()
    one = restored(heard, 1, left, right)
    for key, reached in ((key_of(0), 30), (key_of(1), 10)):
        one.process(35, key)
        assert one.sent == [([10, reached], None)]
    # Without a key there is the subtask's time only.
    assert (one.context.watermark, one.context.key_watermark) == (10, 10)
    one.time.end_restored()
    one.watermark(20)
    one.fire()
    one.process(35, key_of(0))
    assert one.sent == [Watermark(20), ([20, 30], None)]
    one.watermark(35)
    one.fire()
    assert one.sent == [([35, 35], 35), ([35, 35], 35), Watermark(35)]
    assert one.context.groups is None  # nothing is asked of it any more


def test_a_key_has_seen_the_watermark_whose_timers_were_firing_at_the_checkpoint() -> None:
    olds = [Subtask(heard, 1, subtask=i, parallelism=2).open() for i in range(2)]
    for old in olds:
        old.watermark(10)
        old.fire()
    olds[0].process(20, key_of(0))
    olds[0].watermark(30)
    olds[0].mailbox.interrupt = True
    olds[0].time.fire()
    one = restored(heard, 1, *olds)
    one.process(40, key_of(0))
    one.process(40, key_of(1))
    assert one.sent == [([10, 30], None), ([10, 10], None)]


def test_broadcast_edges_hold_no_rows_and_do_not_make_a_restore_one_after_rescaling() -> None:
    old = Subtask(plain, 1).open()
    old.watermark(10)
    old.fire()
    one = Subtask(plain, 1)
    one.time.restore(packed([old.time.snapshot()]), holders(one), True)
    one.open()
    one.watermark(20)
    one.fire()
    assert one.sent[-1] == Watermark(20)


def test_what_a_channel_had_reached_is_forgotten_when_something_upstream_has_changed() -> None:
    old = Subtask(plain, 1).open()
    old.time.on_end(old.channels[0])
    old.time.on_watermark(old.channels[1], 10)
    old.fire()
    one = Subtask(plain, 1)
    one.time.restore(packed([old.time.snapshot()]), holders(one, 0), same_topology=False)
    one.open()
    one.time.end_restored()
    one.time.on_watermark(one.channels[1], 85)
    one.fire()
    assert one.context.watermark == 10  # the subtask behind the ended channel may be fed by others now
    one.watermark(55, 0)
    one.fire()
    assert one.context.watermark == 55


def with_broadcast(stream: Stream) -> Any:
    """Records of a key, and the same stream once more, broadcast."""
    joined = stream.key_by(lambda value: value).connect(stream.broadcast()).process("op", RememberBoth())
    return joined.rebalance().map(lambda value: value)


def test_after_rescaling_what_broadcast_channels_had_reached_holds_the_watermark_back() -> None:
    left, right = (Subtask(with_broadcast, 1, subtask=i, parallelism=2).open() for i in range(2))
    rows = [channel for channel in left.channels if channel.edge.port.startswith("0")]
    for old in (left, right):
        for channel in old.channels:
            if channel.edge == rows[0].edge:
                old.time.on_end(channel)
            else:
                old.time.on_watermark(channel, 10)
        old.fire()
    one = Subtask(with_broadcast, 1)
    one.time.restore(packed([left.time.snapshot(), right.time.snapshot()]), {rows[0].edge: [0, 1]}, False)
    one.open()
    one.fire()
    assert one.context.watermark == 10


class TellsWatermarks(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_connected(self, value: Any, ctx: Any) -> Any:
        yield value

    def on_watermark(self, timestamp: int, ctx: Any) -> Any:
        yield ["told", timestamp]


def only_broadcast(stream: Stream) -> Any:
    return stream.broadcast().process("op", TellsWatermarks()).rebalance().map(lambda value: value)


def both_broadcast(stream: Stream) -> Any:
    both = stream.broadcast().connect(stream.broadcast())
    return both.process("op", TellsWatermarks()).rebalance().map(lambda value: value)


def forward(stream: Stream) -> Any:
    return stream.rebalance().process("op", TellsWatermarks()).rebalance().map(lambda value: value)


@pytest.mark.parametrize("build", [only_broadcast, both_broadcast, forward, keyed])
@pytest.mark.parametrize("edges", ["nothing in flight", "all new"])
@given(old_parallelism=st.integers(1, 4), parallelism=st.integers(1, 4), data=st.data())
def test_what_was_told_is_not_told_again_where_nothing_can_be_in_flight(
    build: Callable[[Stream], Any], edges: str, old_parallelism: int, parallelism: int, data: st.DataObject
) -> None:
    olds = [Subtask(build, 1, subtask=i, parallelism=old_parallelism).open() for i in range(old_parallelism)]
    for old in olds:
        old.watermark(2999)
        old.fire()
    states = packed([old.time.snapshot() for old in olds])
    if edges == "all new":  # the step reads from another one than then
        for state in states:
            state["channels"] = [[[["gone", "op", "0.0"], *id[1:]], *rest] for id, *rest in state["channels"]]
    one = Subtask(build, 1, subtask=data.draw(st.integers(0, parallelism - 1)), parallelism=parallelism)
    changed = edges == "all new" or parallelism != old_parallelism
    one.time.restore(states, {} if edges == "all new" else holders(one), not changed)
    one.open()
    assert one.context.watermark == 2999
    one.time.end_restored()
    one.watermark(2999)
    one.fire()
    assert one.sent == []
    one.watermark(3999)
    one.fire()
    assert one.sent[-1] == Watermark(3999)


def test_a_subtask_goes_on_for_those_whose_state_it_gets_where_some_were_ahead() -> None:
    olds = [Subtask(only_broadcast, 1, subtask=i, parallelism=2).open() for i in range(2)]
    for old, at in zip(olds, (2999, 1999), strict=True):
        old.watermark(at)
        old.fire()
    states = packed([old.time.snapshot() for old in olds])
    reached = []
    for subtask in range(3):
        one = Subtask(only_broadcast, 1, subtask=subtask, parallelism=3)
        one.time.restore(states, holders(one), False)
        reached.append(one.open().context.watermark)
    assert reached == [2999, 1999, 2999]


def test_watermarks_in_flight_to_a_step_that_was_chained_wait_for_those_of_the_new_channels() -> None:
    one = Subtask(plain, 1)
    one.time.restore([], holders(one, 0, 1, 2), False)
    one.open()
    channel = one.channels[0]
    one.time.on_watermark(channel._replace(upstream=7, downstream=2), 10, restored=True)
    one.time.on_watermark(channel, 20, restored=True)
    one.time.on_idle(channel, True, restored=True)
    one.fire()
    assert (one.sent, one.context.watermark) == ([], None)
    one.time.end_restored()
    one.watermark(30)
    one.fire()
    assert one.sent[-1] == Watermark(30)


def test_watermarks_of_a_source_go_on_split_by_split() -> None:
    old = Subtask(bounded, splits=[("t", 0), ("t", 1)]).open()
    old.process({"at": 100}, split=("t", 0))
    old.process({"at": 50}, split=("t", 1))
    old.advance(0)
    one = restored(bounded, 0, old)
    assert one.sent == []
    one.time.resend()
    assert one.sent == [Watermark(49)]
    one.process({"at": 80}, split=("t", 1))
    one.advance(1)
    assert one.sent == [({"at": 80}, 80), Watermark(79)]


def test_after_rescaling_a_source_goes_on_with_the_splits_that_it_reads_now() -> None:
    left, right = (
        Subtask(bounded, splits=["a"], parallelism=2),
        Subtask(bounded, splits=["b"], subtask=1, parallelism=2),
    )
    for old, at in ((left, 100), (right, 70)):
        old.open()
        old.process({"at": at}, split=old.splits[0])  # type: ignore[index]
        old.advance(0)
    one = Subtask(bounded, splits=["b", "a"])
    one.time.restore(packed([left.time.snapshot(), right.time.snapshot()]), {}, False)
    one.time.restore_watermarks(
        "times", packed([old.time.snapshot_watermarks()["times"] for old in (left, right)]), False
    )
    one.open()
    assert one.time.snapshot_watermarks()["times"]["emitted"] == 69
    one.process({"at": 90}, split="b")
    one.advance(1)
    assert one.sent == [({"at": 90}, 90), Watermark(89)]


def test_a_watermark_that_was_made_and_not_sent_is_made_again() -> None:
    old = Subtask(bounded, splits=["a"]).open()
    old.process({"at": 100}, split="a")
    old.clock.advance(1)
    old.time.on_clock(old.clock())
    assert old.time.due
    one = restored(bounded, 0, old)
    one.advance(0)
    assert one.sent == [Watermark(99)]


def test_watermarks_of_a_step_that_makes_none_any_more_are_left_out() -> None:
    old = Subtask(bounded, splits=["a"]).open()
    one = Subtask(plain, 0)
    one.time.restore_watermarks("times", packed([old.time.snapshot_watermarks()["times"]]), True)
    one.open()
    assert one.context.watermark is None


def test_an_input_without_splits_goes_on_with_its_own_state_if_nothing_has_changed() -> None:
    """Each subtask's part of it is another one, though all are called the same."""

    def build(stream: Stream) -> Any:
        bounded(stream.rebalance())

    olds = [Subtask(build, 1, subtask=i, parallelism=2).open() for i in range(2)]
    for old, at in zip(olds, (50, 100), strict=True):
        old.process({"at": at})
    states = packed([old.time.snapshot_watermarks()["times"] for old in olds])
    for same, largest in ((True, 100), (False, 50)):
        one = Subtask(build, 1, subtask=1, parallelism=2)
        one.time.restore_watermarks("times", states, same)
        assert one.open().time.snapshot_watermarks()["times"]["splits"] == [[None, largest]]


# -- reports --------------------------------------------------------------------------------------------------


def test_how_long_event_time_stands_still_counts_from_its_last_watermark() -> None:
    found: dict[str, float] = {}
    waits = SimpleNamespace(begin=lambda what, since, kind: found.update({what: since}), end=found.pop)
    metrics: Any = SimpleNamespace(gauge=lambda name, value: None, time_waits=waits)
    one = Subtask(keyed, 1).open()
    one.process(5000, key="k")
    one.advance(100)
    one.watermark(10)
    one.fire()
    one.time.report(metrics, waits=True)
    assert found == {}
    one.advance(70)
    one.time.report(metrics, waits=False)
    assert found == {}
    one.time.report(metrics, waits=True)
    ((what, since),) = found.items()
    assert what.startswith("records with later timestamps, for the timers of 'op'")
    assert since == 1100.0
    one.watermark(20)
    one.fire()
    one.time.report(metrics, waits=True)
    assert found == {}
