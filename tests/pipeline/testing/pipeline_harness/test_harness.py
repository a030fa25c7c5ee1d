"""`PipelineHarness`: what comes out of a pipeline in it is what would come out of a job."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import EncodingError
from pipeline import BroadcastState, KeyedOperator, Operator, Pipeline, PipelineError, ValueState, WatermarkStrategy
from pipeline.testing import PipelineHarness, TestingSink, TestingSource

BY_AT = WatermarkStrategy.bounded("at", lateness=0)


class Total(KeyedOperator):
    """Numbers the records of each key, and tells a while later that there were some."""

    count = ValueState(default=0)

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        self.count.value += 1
        ctx.timer(value["at"] + 50)
        yield {"key": ctx.key, "id": value["id"], "count": self.count.value}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield {"key": ctx.key, "fired": timestamp}


class Rules(KeyedOperator):
    limits = BroadcastState()

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        ctx.side_output("all", value["id"])
        if value["id"] > self.limits.get("least", -1):
            yield {"id": value["id"], "subtask": ctx.subtask}

    def process_connected(self, rule: int, ctx: Any) -> None:
        self.limits["least"] = rule


class Waits(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> None:
        ctx.processing_timer(10_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield {"key": ctx.key, "at": timestamp}


def totals(parallelism: int = 1, spread: int | None = None) -> Pipeline:
    p = Pipeline("totals", parallelism)
    stream = p.source("in", TestingSource()).assign_timestamps(BY_AT).rebalance()
    stream = stream.map(lambda value: value, id="spread", parallelism=spread or parallelism)
    stream.key_by("key").process("totals", Total()).sink("out", TestingSink())
    return p


def records(n: int, keys: int = 3) -> list[dict[str, Any]]:
    return [{"id": i, "key": f"k{i % keys}", "at": 10 * i} for i in range(n)]


def counted(outputs: Iterable[Any]) -> Counter[str]:
    """Which records of a key came first differs where they take several ways."""
    return Counter(f"{one['key']} {one.get('count')} {one.get('fired')}" for one in outputs)


def send_all(harness: PipelineHarness, values: Iterable[Any], partitions: int = 1) -> None:
    for value in values:
        harness.send("in", value, partition=value["id"] % partitions)


# -- records ----------------------------------------------------------------------------------------------------


def test_what_is_sent_goes_through_everything_at_once() -> None:
    harness = PipelineHarness(totals(3))
    harness.send("in", {"id": 1, "key": "a", "at": 0})
    assert harness.outputs("out") == [{"key": "a", "id": 1, "count": 1}]
    harness.send("in", {"id": 2, "key": "b", "at": 60})
    assert harness.take("out")[1:] == [{"key": "b", "id": 2, "count": 1}, {"key": "a", "fired": 50}]
    assert harness.outputs("out") == []
    assert harness.watermarks("totals") == [59, 59, 59]


def test_each_key_is_in_one_subtask_and_all_subtasks_are_used() -> None:
    p = Pipeline("p", 4)
    where = p.source("in", TestingSource()).key_by("key")
    where.process("where", Where())
    harness = PipelineHarness(p)
    send_all(harness, records(100, keys=20))
    found = {(one["key"], one["subtask"]) for one in harness.outputs("where")}
    assert len(found) == 20
    assert {subtask for _, subtask in found} == {0, 1, 2, 3}


class Where(KeyedOperator):
    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        assert ctx.parallelism == 4
        yield {"key": ctx.key, "subtask": ctx.subtask}


def test_unions_broadcasts_side_outputs_and_batches_run_through_it() -> None:
    p = Pipeline("p", 2)
    first, second = p.source("in", TestingSource()), p.source("more", TestingSource())
    rules = p.source("rules", TestingSource(), parallelism=1).broadcast()
    checked = first.union(second).key_by("key").connect(rules).process("rules of keys", Rules())
    checked.map_batches(lambda batch: batch.append_column("double", pc.multiply(batch["id"], 2))).sink(
        "out", TestingSink()
    )
    checked.side_output("all").sink("ids", TestingSink())
    harness = PipelineHarness(p)
    harness.send("in", {"id": 1, "key": "a"})
    harness.send("rules", 5)
    for id in (2, 9):
        harness.send("in", {"id": id, "key": "a"})
        harness.send("more", {"id": id + 1, "key": "b"})
    assert [(one["id"], one["double"]) for one in harness.outputs("out")] == [(1, 2), (9, 18), (10, 20)]
    assert harness.outputs("ids") == [1, 2, 3, 9, 10]


def test_what_a_channel_refuses_is_refused() -> None:
    harness = PipelineHarness(totals())
    with pytest.raises(EncodingError):
        harness.send("in", {"id": object(), "key": "a", "at": 1})


def test_steps_that_are_chained_to_the_source_see_what_it_tells() -> None:
    class Tells(Operator):
        def process(self, value: Any, ctx: Any) -> Iterable[Any]:
            yield [ctx.timestamp, ctx.partition, ctx.offset, ctx.headers]

    p = Pipeline("p")
    p.source("in", TestingSource()).process("tells", Tells())
    harness = PipelineHarness(p, partitions={"in": 2})
    harness.send("in", 1, timestamp=7, partition=1, offset=3, headers=[("a", b"b")])
    assert harness.outputs("tells") == [[7, 1, 3, [("a", b"b")]]]
    with pytest.raises(AttributeError, match="offset is not known of this record"):
        harness.send("in", 1)


def test_subtasks_have_operators_and_functions_of_their_own() -> None:
    class Counts(Operator):
        def __init__(self) -> None:
            self.count = 0

        def process(self, value: Any, ctx: Any) -> Iterable[Any]:
            self.count += 1
            yield self.count

    p = Pipeline("p", 3)
    operator = Counts()
    p.source("in", TestingSource(), parallelism=1).rebalance().process("counts", operator)
    harness = PipelineHarness(p)
    for _ in range(6):
        harness.send("in", 0)
    assert sorted(harness.outputs("counts")) == [1, 1, 1, 2, 2, 2]
    assert operator.count == 0


def test_an_error_says_where_it_comes_from() -> None:
    p = Pipeline("p", 2)
    inverse = p.source("in", TestingSource(), parallelism=1).rebalance().map(lambda value: value + 0, id="same")
    inverse.map(lambda value: 1 / value, id="inverse")
    harness = PipelineHarness(p)
    harness.send("in", 1)
    with pytest.raises(ZeroDivisionError) as caught:
        harness.send("in", 0)
    assert caught.value.__notes__ == ["in step 'inverse', subtask same → inverse[1]"]


def test_an_operator_that_cannot_be_copied_is_refused_by_name() -> None:
    p = Pipeline("p")
    lock = threading.Lock()
    p.source("in", TestingSource()).map(lambda value: lock.locked(), id="looks")
    with pytest.raises(PipelineError, match=r"step 'looks' can't be copied to its subtasks: .*lock"):
        PipelineHarness(p)


# -- time -------------------------------------------------------------------------------------------------------


def test_every_partition_is_a_split_of_its_own() -> None:
    harness = PipelineHarness(totals(2), partitions={"in": 3})
    harness.send("in", {"id": 0, "key": "a", "at": 1000}, partition=0)
    harness.send("in", {"id": 1, "key": "a", "at": 1000}, partition=1)
    assert harness.watermarks("totals") == [None, None]
    harness.send("in", {"id": 2, "key": "a", "at": 300}, partition=2)
    assert harness.watermarks("totals") == [299, 299]


def test_subtasks_of_a_source_without_partitions_hold_nothing_back() -> None:
    harness = PipelineHarness(totals(4), partitions={"in": 1})
    send_all(harness, records(3))
    assert harness.watermarks("totals") == [19] * 4


def test_silent_partitions_become_idle_as_time_passes() -> None:
    p = Pipeline("p", 2)
    timed = p.source("in", TestingSource()).assign_timestamps(WatermarkStrategy.bounded("at", 0, idle_after=5))
    timed.key_by("key").process("totals", Total())
    harness = PipelineHarness(p, partitions={"in": 2})
    harness.send("in", {"id": 0, "key": "a", "at": 0}, partition=0)
    harness.advance_time(4)
    harness.send("in", {"id": 2, "key": "a", "at": 1000}, partition=0)
    assert harness.watermarks("totals") == [None, None]
    harness.advance_time(1)
    assert harness.watermarks("totals") == [999, 999]
    assert harness.outputs("totals")[2:] == [{"key": "a", "fired": 50}]


def test_a_quiet_source_follows_the_clock() -> None:
    p = Pipeline("p", 2)
    timed = p.source("in", TestingSource()).assign_timestamps(WatermarkStrategy.bounded("at", 0, quiet_after=2))
    timed.key_by("key").process("totals", Total())
    harness = PipelineHarness(p)
    harness.send("in", {"id": 0, "key": "a", "at": 0})
    harness.advance_time(1.9)
    assert len(harness.outputs("totals")) == 1
    harness.advance_time(0.3)
    assert harness.outputs("totals")[1:] == [{"key": "a", "fired": 50}]


def test_where_all_splits_fall_idle_at_once_the_furthest_counts() -> None:
    """A small trial: a few records in some of the partitions, and none any more."""
    p = Pipeline("p", 3)
    timed = p.source("in", TestingSource()).assign_timestamps(WatermarkStrategy.bounded("at", 0, idle_after=2))
    timed.key_by("key").process("totals", Total())
    harness = PipelineHarness(p, partitions={"in": 4})
    harness.send("in", {"id": 0, "key": "a", "at": 0}, partition=0)
    harness.send("in", {"id": 1, "key": "b", "at": 51}, partition=1)
    assert len(harness.outputs("totals")) == 2
    harness.advance_time(2.5)
    assert harness.outputs("totals")[2:] == [{"key": "a", "fired": 50}]
    assert harness.watermarks("totals") == [50, 50, 50]


def test_processing_timers_fire_in_all_subtasks() -> None:
    p = Pipeline("p", 3)
    p.source("in", TestingSource()).key_by("key").process("waits", Waits())
    harness = PipelineHarness(p)
    send_all(harness, records(9, keys=9))
    harness.advance_time(9.9)
    assert harness.outputs("waits") == []
    harness.advance_time(0.1)
    assert sorted(one["key"] for one in harness.outputs("waits")) == [f"k{i}" for i in range(9)]


def test_a_watermark_can_be_given() -> None:
    harness = PipelineHarness(totals(2), partitions={"in": 2})
    harness.send("in", {"id": 0, "key": "a", "at": 0})
    harness.watermark("in", 49)
    assert len(harness.outputs("out")) == 1
    harness.watermark("in", 50)
    assert harness.outputs("out")[1:] == [{"key": "a", "fired": 50}]
    assert harness.watermarks("totals") == [50, 50]
    harness.watermark("in", 40)
    assert harness.watermarks("totals") == [50, 50]


def test_a_source_without_timestamps_can_be_given_watermarks() -> None:
    p = Pipeline("p", 2)
    p.source("in", TestingSource()).key_by("key").process("totals", Total())
    harness = PipelineHarness(p)
    harness.send("in", {"id": 0, "key": "a", "at": 0})
    harness.watermark("in", 50)
    assert harness.outputs("totals")[1:] == [{"key": "a", "fired": 50}]


def test_event_time_ends_once_all_sources_have() -> None:
    p = Pipeline("p", 2)
    first, second = p.source("in", TestingSource()), p.source("more", TestingSource())
    first.union(second).key_by("key").process("totals", Total())
    harness = PipelineHarness(p)
    harness.send("in", {"id": 0, "key": "a", "at": 0})
    harness.end_of_input("in")
    assert len(harness.outputs("totals")) == 1
    with pytest.raises(ValueError, match="source 'in' has ended"):
        harness.send("in", {"id": 0, "key": "a", "at": 0})
    harness.send("more", {"id": 1, "key": "b", "at": 0})
    harness.end_of_input()
    fired = [one["key"] for one in harness.outputs("totals") if "fired" in one]
    assert sorted(fired) == ["a", "b"]
    assert harness.watermarks("totals") == [2**63 - 1, 2**63 - 1]


# -- snapshots and interleavings ----------------------------------------------------------------------------------


def test_a_snapshot_restores_state_timers_and_event_time() -> None:
    harness = PipelineHarness(totals(2))
    send_all(harness, records(5))
    harness.take("out")
    again = PipelineHarness.restore(totals(3), harness.snapshot())
    assert again.outputs("out") == []
    for one in (harness, again):
        one.send("in", {"id": 5, "key": "k0", "at": 50})
        one.end_of_input()
    assert again.outputs("out")[0] == {"key": "k0", "id": 5, "count": 3}
    assert counted(again.outputs("out")) == counted(harness.outputs("out"))


def test_what_is_in_flight_is_part_of_a_snapshot() -> None:
    values = records(60)
    found = 0
    for seed in range(10):
        harness = PipelineHarness(totals(2), seed=seed)
        send_all(harness, values)
        before = harness.take("out")
        snapshot = harness.snapshot()
        found += snapshot.in_flight_records
        again = PipelineHarness.restore(totals(2), snapshot, seed=seed)
        again.end_of_input()
        again.deliver()
        ids = [one["id"] for one in before + again.outputs("out") if "id" in one]
        assert sorted(ids) == list(range(60))
    assert found > 100


def test_an_aligned_snapshot_has_nothing_in_flight() -> None:
    harness = PipelineHarness(totals(3), seed=2)
    send_all(harness, records(60))
    assert len(harness.outputs("out")) < 60
    snapshot = harness.snapshot(aligned=True)
    assert snapshot.in_flight_records == 0
    assert len([one for one in harness.outputs("out") if "id" in one]) == 60


def test_a_seed_gives_one_order_and_others_give_others() -> None:
    def outputs(seed: int) -> list[Any]:
        harness = PipelineHarness(totals(3), seed=seed)
        send_all(harness, records(40))
        harness.end_of_input()
        harness.deliver()
        return harness.outputs("out")

    assert outputs(1) == outputs(1)
    assert len({repr(outputs(seed)) for seed in range(6)}) > 3


def test_nothing_of_a_broadcast_stream_is_in_flight_in_a_snapshot() -> None:
    p = Pipeline("p", 3)
    rules = p.source("rules", TestingSource(), parallelism=1).broadcast()
    p.source("in", TestingSource()).key_by("key").connect(rules).process("limited", Rules())
    harness = PipelineHarness(p, seed=0)
    for rule in range(20):
        harness.send("rules", rule)
    again = PipelineHarness.restore(p, harness.snapshot())
    send_all(again, [{"id": id, "key": f"k{id}"} for id in range(30)])
    assert [one["id"] for one in again.outputs("limited")] == list(range(20, 30))
    assert {one["subtask"] for one in again.outputs("limited")} == {0, 1, 2}


def test_an_end_of_input_is_restored() -> None:
    p = Pipeline("p", 2)
    first, second = p.source("in", TestingSource()), p.source("more", TestingSource())
    first.union(second).key_by("key").process("totals", Total())
    harness = PipelineHarness(p)
    harness.send("in", {"id": 0, "key": "a", "at": 0})
    harness.end_of_input("in")
    again = PipelineHarness.restore(p, harness.snapshot())
    again.end_of_input("more")
    assert again.outputs("totals") == [{"key": "a", "fired": 50}]


def test_a_snapshot_that_does_not_fit_is_refused() -> None:
    harness = PipelineHarness(totals())
    send_all(harness, records(2))
    snapshot = harness.snapshot()
    p = Pipeline("p")
    p.source("in", TestingSource()).sink("out", TestingSink())
    with pytest.raises(PipelineError, match="state of steps that the pipeline doesn't have"):
        PipelineHarness.restore(p, snapshot)


class BadState(Operator):
    def process(self, value: Any, ctx: Any) -> None:
        pass

    def snapshot(self, checkpoint_id: int) -> Any:
        return object()


def test_state_that_cannot_be_kept_is_told() -> None:
    p = Pipeline("p")
    p.source("in", TestingSource()).process("bad", BadState())
    with pytest.raises(Exception, match="object"):
        PipelineHarness(p).snapshot()


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000))
def test_results_depend_on_no_interleaving_restart_or_parallelism(seed: int) -> None:
    rng = random.Random(seed)
    values = records(50)
    plain = PipelineHarness(totals())
    send_all(plain, values)
    plain.end_of_input()

    partitions = rng.randint(1, 4)
    harness = PipelineHarness(totals(rng.randint(1, 5), rng.randint(1, 5)), seed=seed, partitions={"in": partitions})
    outputs: list[Any] = []
    at = 0
    for _ in range(rng.randint(0, 3)):
        upto = rng.randint(at, len(values))
        send_all(harness, values[at:upto], partitions)
        snapshot = harness.snapshot(aligned=rng.random() < 0.3)
        outputs += harness.take("out")
        send_all(harness, values[upto : upto + 5], partitions)  # which is lost with the attempt
        pipeline = totals(rng.randint(1, 5), rng.randint(1, 5))
        harness, at = PipelineHarness.restore(pipeline, snapshot, seed=rng.randrange(1000)), upto
    send_all(harness, values[at:], partitions)
    harness.end_of_input()
    harness.deliver()
    assert counted(outputs + harness.outputs("out")) == counted(plain.outputs("out"))


# -- misuse -----------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_told() -> None:
    harness = PipelineHarness(totals(), partitions={"in": 2})
    with pytest.raises(ValueError, match="there is no source 'inn' but 'in'"):
        harness.send("inn", 1)
    with pytest.raises(ValueError, match="there is no source 'out'"):
        PipelineHarness(totals(), partitions={"out": 2})
    with pytest.raises(ValueError, match="has 2 partitions here, of which 2 is none"):
        harness.send("in", 1, partition=2)
    with pytest.raises(TypeError, match="a timestamp is an int"):
        harness.send("in", 1, timestamp=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not of 'totals'"):
        harness.outputs("totals")
    with pytest.raises(ValueError, match="there is no step 'total'"):
        harness.watermarks("total")
    with pytest.raises(ValueError, match=r"end_of_input\(\)"):
        harness.watermark("in", 2**63 - 1)
    with pytest.raises(TypeError, match="a watermark is an int"):
        harness.watermark("in", 1.0)  # type: ignore[arg-type]


def test_a_pipeline_that_cannot_run_is_refused() -> None:
    p = Pipeline("p")
    with pytest.raises(PipelineError, match="no source"):
        PipelineHarness(p)
