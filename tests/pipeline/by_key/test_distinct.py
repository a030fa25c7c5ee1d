"""`distinct`: each key's first record passes and no other, in any order of input, with restarts anywhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import entries

from checkpoint.errors import Explained
from checkpoint.state_backends import StateBackend
from pipeline import Pipeline, PipelineError
from pipeline.by_key import distinct
from pipeline.operators import KeyedOperator
from pipeline.preview import preview
from pipeline.runtime.packing import pack_plan, unpack_plan
from pipeline.streams import KeyedStream
from pipeline.testing import OperatorHarness, TestingSink, TestingSource

WITHIN, LATENESS = 10, 4
"""Milliseconds."""
BACKENDS: list[StateBackend] = ["heap", "rocksdb"]


def by_time(lateness: int = 0) -> KeyedOperator:
    return distinct(WITHIN / 1000, "event", lateness / 1000)


class Oracle:
    """Looks at all records that have passed."""

    def __init__(self, lateness: int) -> None:
        self._lateness = lateness
        self._passed: dict[str, list[int]] = {}
        self._watermark: int | None = None

    def watermark(self, at: int) -> None:
        self._watermark = at if self._watermark is None else max(at, self._watermark)

    def verdicts(self, key: str, at: int) -> set[str]:
        """What may become of a record."""
        passed = self._passed.setdefault(key, [])
        repeats = any(abs(at - other) < WITHIN for other in passed)
        if self._watermark is not None and at <= self._watermark - self._lateness:
            return {"late", "dropped"} if repeats else {"late"}
        if repeats:
            return {"dropped"}
        passed.append(at)
        return {"passed"}


_RECORD = st.tuples(st.just("record"), st.sampled_from("ab"), st.integers(0, 80))
_STEPS = st.lists(
    st.one_of(_RECORD, _RECORD, _RECORD, st.tuples(st.just("watermark"), st.integers(0, 70)), st.just(("restart",))),
    max_size=60,
)


_LATENESS = st.sampled_from([0, LATENESS, 30])


@settings(deadline=None)
@given(steps=_STEPS, lateness=_LATENESS)
def test_by_time_it_says_what_one_says_who_remembers_everything(steps: list[Any], lateness: int) -> None:
    check_verdicts("heap", steps, lateness)


@settings(deadline=None, max_examples=8)
@given(steps=_STEPS, lateness=_LATENESS)
def test_it_may_remember_in_rocksdb(steps: list[Any], lateness: int) -> None:
    check_verdicts("rocksdb", steps, lateness)


def check_verdicts(backend: StateBackend, steps: list[Any], lateness: int) -> None:
    harness = OperatorHarness(by_time(lateness), state_backend=backend)
    oracle = Oracle(lateness)
    for number, step in enumerate(steps):
        if step[0] == "watermark":
            harness.watermark(step[1])
            oracle.watermark(step[1])
        elif step[0] == "restart":
            snapshot = harness.snapshot()
            harness.close()
            harness = OperatorHarness.restore(by_time(lateness), snapshot, state_backend=backend)
        else:
            _, key, at = step
            late_before = len(harness.side_outputs.get("late", ()))
            record = {"key": key, "number": number}
            out = harness.process(record, key=key, timestamp=at)
            late = harness.side_outputs.get("late", [])[late_before:]
            assert out in ([], [record])
            assert late in ([], [record])
            verdict = "passed" if out else "late" if late else "dropped"
            assert not (out and late)
            assert verdict in oracle.verdicts(key, at), (number, step)
    harness.close()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=40), st.integers(0, 40))
def test_what_passes_depends_on_the_order_of_records_only(records: list[tuple[str, int]], restart: int) -> None:
    """Watermarks that make nothing late change nothing."""

    def passed(with_watermarks: bool) -> list[Any]:
        harness = OperatorHarness(by_time())
        out = []
        for i, (key, at) in enumerate(records):
            if i == restart:
                harness = OperatorHarness.restore(by_time(), harness.snapshot())
            out += harness.process([key, i], key=key, timestamp=at)
            if with_watermarks and i + 1 < len(records):
                harness.watermark(min(at for _, at in records[i + 1 :]) - 1)
        return out

    assert passed(True) == passed(False)


def test_within_is_exclusive_and_looks_both_ways() -> None:
    harness = OperatorHarness(by_time())
    assert harness.process(1, key="k", timestamp=100) == [1]
    assert harness.process(2, key="k", timestamp=109) == []
    assert harness.process(3, key="k", timestamp=91) == []
    assert harness.process(4, key="k", timestamp=90) == [4]
    assert harness.process(5, key="k", timestamp=110) == [5]


def test_a_duplicate_does_not_prolong_what_it_repeats() -> None:
    harness = OperatorHarness(by_time())
    assert [harness.process(at, key="k", timestamp=at) for at in (0, 8, 10)] == [[0], [], [10]]


def test_what_is_kept_goes_when_nothing_on_time_can_repeat_it() -> None:
    harness = OperatorHarness(by_time(LATENESS))
    for key in range(50):
        harness.process(key, key=key, timestamp=100)
    harness.watermark(113)
    assert entries(harness.snapshot()) == 50
    assert harness.process("again", key=1, timestamp=110 - 1) == []
    assert harness.process("on time", key=2, timestamp=110) == ["on time"]
    harness.watermark(114)
    assert entries(harness.snapshot()) == 1


def test_after_rescaling_a_key_knows_what_was_too_late_before() -> None:
    ahead, behind = OperatorHarness(by_time()), OperatorHarness(by_time())
    ahead.process(1, key="ahead", timestamp=100)
    ahead.watermark(1000)
    behind.process(2, key="behind", timestamp=100)
    behind.watermark(105)
    one = OperatorHarness.restore(by_time(), [ahead.snapshot(), behind.snapshot()])
    assert one.process(3, key="ahead", timestamp=500) == [], "what it repeats may have been forgotten"
    assert one.side_outputs == {"late": [3]}
    assert one.process(4, key="behind", timestamp=106) == []
    assert one.side_outputs == {"late": [3]}
    assert one.process(5, key="behind", timestamp=110) == [5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_by_the_clock_a_key_may_come_again_when_its_time_is_over(backend: StateBackend) -> None:
    harness = OperatorHarness(distinct(timedelta(minutes=1), "processing", 0), state_backend=backend)
    assert harness.process(1, key="k") == [1]
    harness.advance_time(59)
    assert harness.process(2, key="k") == []
    harness = OperatorHarness.restore(
        distinct(60, "processing", 0), harness.snapshot(), clock=harness.clock, state_backend=backend
    )
    assert harness.process(3, key="k") == []
    harness.advance_time(1)
    assert entries(harness.snapshot()) == 0
    assert harness.process(4, key="k") == [4]


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 30))
def test_without_within_each_key_comes_once(keys: list[int], restart: int) -> None:
    harness = OperatorHarness(distinct(None, "event", 0))
    out = []
    for i, key in enumerate(keys):
        if i == restart:
            harness = OperatorHarness.restore(distinct(None, "event", 0), harness.snapshot())
        out += harness.process(i, key=key)
    assert out == [keys.index(key) for key in dict.fromkeys(keys)]


def test_a_record_without_a_timestamp_is_refused_with_what_to_do() -> None:
    with pytest.raises(Explained, match=r"distinct goes by event time.*assign_timestamps"):
        OperatorHarness(by_time()).process({"id": 1}, key=1)


# -- as a step ------------------------------------------------------------------------------------------------


def keyed() -> KeyedStream[Any]:
    return Pipeline("p").source("in", TestingSource([{"id": 1}])).key_by("id")


def test_steps_are_named_by_their_kind_and_can_be_packed() -> None:
    stream = keyed()
    stream.distinct()
    stream.distinct("first", within=5, lateness=1)
    last = stream.distinct(within=5, time="processing", parallelism=2, state_backend="rocksdb")
    last.late()
    p = stream._pipeline
    assert [step.id for step in p._graph.steps[1:]] == ["distinct-1", "first", "distinct-3"]
    assert (p._graph.steps[-1].parallelism, p._graph.steps[-1].state_backend) == (2, "rocksdb")
    operator = unpack_plan(pack_plan(p.plan())).vertices[2].head.payload
    harness = OperatorHarness(operator)
    assert [harness.process(at, key="k", timestamp=at) for at in (0, 4999, 5000)] == [[0], [], [5000]]


def test_by_time_it_needs_watermarks() -> None:
    class Endless(TestingSource):
        bounded = False

    p = Pipeline("p")
    p.source("in", Endless()).key_by("id").distinct(within=5)
    with pytest.raises(PipelineError, match=r"step 'distinct-1' tells duplicates by event time.*makes no watermarks"):
        p.plan()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"within": 0}, "distinct: within must be at least 0.001 s"),
        ({"within": "1h"}, "distinct: within must be seconds or a timedelta, not '1h'"),
        ({"within": 0.0015}, "distinct: within is 0.0015, which has a fraction of a millisecond"),
        ({"within": 5, "lateness": 0.0005}, "distinct: lateness is 0.0005, which has a fraction of a millisecond"),
        ({"within": 5, "time": "clock"}, 'time must be "event" or "processing", not \'clock\''),
        ({"within": 5, "lateness": -1}, "distinct: lateness must be at least 0 s"),
        ({"lateness": 1}, "goes with within="),
        ({"within": 5, "lateness": 1, "time": "processing"}, "goes with within="),
        ({"id": 5}, "distinct: an id is a text, not 5"),
    ],
)
def test_options_that_say_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        keyed().distinct(**options)


def test_where_there_is_no_key_it_is_said_what_to_do() -> None:
    stream: Any = Pipeline("p").source("in", TestingSource())
    with pytest.raises(
        AttributeError, match=r"distinct is about the records of a key: put key_by\(…\) right before it"
    ):
        stream.distinct()
    with pytest.raises(AttributeError, match=r"a Stream has no 'fliter'; did you mean 'filter'\?"):
        stream.fliter(bool)


def test_state_under_an_id_that_was_made_up_is_warned_of() -> None:
    stream = keyed()
    stream.distinct().sink("a", TestingSink())
    stream.distinct("named").sink("b", TestingSink())
    stream.top_n(1, "id").map(str).sink("c", TestingSink())
    (warning,) = [one for one in preview(stream._pipeline).warnings if "keep state" in one]
    assert warning.startswith("distinct-1, top_n-1: these steps keep state, and their ids are made up")
