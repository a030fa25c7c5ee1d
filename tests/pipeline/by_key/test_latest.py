"""`latest_by_key`: a table that no order of input, late record or restart brings an older version back into."""

from __future__ import annotations

from itertools import accumulate, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import entries

from checkpoint.errors import Explained
from checkpoint.state.errors import StateRestoreError
from checkpoint.state_backends import StateBackend
from pipeline import Pipeline, PipelineError
from pipeline.by_key import latest_by_key
from pipeline.lazy_results import YetToRun
from pipeline.operators import KeyedOperator
from pipeline.runtime.packing import pack_plan, unpack_plan
from pipeline.streams import KeyedStream
from pipeline.testing import OperatorHarness, TestingSource


def is_deletion(record: dict[str, Any]) -> bool:
    return bool(record["gone"])


def by_time(lateness: float | None = None) -> KeyedOperator:
    return latest_by_key("event", is_deletion, lateness)


class Table:
    """Looks at all records there were."""

    def __init__(self) -> None:
        self._versions: dict[str, list[tuple[int, int, Any]]] = {}

    def take(self, key: str, at: int, number: int, record: dict[str, Any]) -> bool:
        """Whether the record changes the table."""
        before = self.row(key)
        versions = self._versions.setdefault(key, [])
        versions.append((at, number, record))
        return max(versions)[1] == number and not (before is None and record["gone"])

    def row(self, key: str) -> Any:
        versions = self._versions.get(key)
        newest = None if not versions else max(versions)[2]
        return None if newest is None or newest["gone"] else newest


_RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.booleans()), max_size=40)


_RESTARTS = st.sets(st.integers(0, 40), max_size=3)


@settings(deadline=None)
@given(records=_RECORDS, restarts=_RESTARTS, forgets=st.booleans())
def test_what_comes_out_are_the_changes_of_the_table(
    records: list[tuple[str, int, bool]], restarts: set[int], forgets: bool
) -> None:
    check_changes("heap", records, restarts, forgets)


@settings(deadline=None, max_examples=8)
@given(records=_RECORDS, restarts=_RESTARTS, forgets=st.booleans())
def test_the_table_may_be_in_rocksdb(records: list[tuple[str, int, bool]], restarts: set[int], forgets: bool) -> None:
    check_changes("rocksdb", records, restarts, forgets)


def check_changes(
    backend: StateBackend, records: list[tuple[str, int, bool]], restarts: set[int], forgets: bool
) -> None:
    lateness = 0.001 if forgets else None
    harness = OperatorHarness(by_time(lateness), state_backend=backend)
    table = Table()
    for number, (key, at, gone) in enumerate(records):
        if number in restarts:
            snapshot = harness.snapshot()
            harness.close()
            harness = OperatorHarness.restore(by_time(lateness), snapshot, state_backend=backend)
        record = {"key": key, "number": number, "gone": gone}
        out = harness.process(record, key=key, timestamp=at)
        assert out == ([record] if table.take(key, at, number, record) else [])
        if number + 1 < len(records):
            harness.watermark(min(at for _, at, _ in records[number + 1 :]) - 1)
    assert harness.side_outputs == {}, "nothing was late"
    harness.close()


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_whatever_the_order_the_newest_version_stays(order: tuple[int, ...]) -> None:
    versions = [(10, False), (20, True), (30, False), (40, True)]
    harness = OperatorHarness(by_time())
    for i in order:
        at, gone = versions[i]
        harness.process({"at": at, "gone": gone}, key="k", timestamp=at)
        newest = max(versions[j] for j in order[: order.index(i) + 1])
        changes = harness.outputs
        row = changes[-1] if changes and not changes[-1]["gone"] else None
        assert row == (None if newest[1] else {"at": newest[0], "gone": False})


def test_of_two_that_are_equally_new_the_last_one_counts() -> None:
    harness = OperatorHarness(by_time())
    first, second = {"n": 1, "gone": False}, {"n": 2, "gone": False}
    assert harness.process(first, key="k", timestamp=5) == [first]
    assert harness.process(second, key="k", timestamp=5) == [second]


def test_a_late_record_that_is_the_newest_of_its_row_counts() -> None:
    harness = OperatorHarness(by_time())
    harness.process({"n": 1, "gone": False}, key="k", timestamp=5)
    harness.watermark(100)
    assert harness.process({"n": 2, "gone": False}, key="k", timestamp=50) == [{"n": 2, "gone": False}]
    assert harness.process({"n": 3, "gone": False}, key="new", timestamp=50) == [{"n": 3, "gone": False}]


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("record"), st.integers(0, 60), st.booleans()),
            st.tuples(st.just("watermark"), st.integers(0, 60)),
        ),
        max_size=40,
    )
)
def test_a_deletion_that_is_forgotten_brings_nothing_back(steps: list[Any]) -> None:
    """What is on time is told as by a table that forgets nothing. What is later is, or is set aside."""
    harness = OperatorHarness(by_time(0.010))
    table = Table()
    watermark = -1
    for number, step in enumerate(steps):
        if step[0] == "watermark":
            harness.watermark(step[1])
            watermark = max(watermark, step[1])
            harness = OperatorHarness.restore(by_time(0.010), harness.snapshot())
            continue
        _, at, gone = step
        record = {"number": number, "gone": gone}
        out = harness.process(record, key="k", timestamp=at)
        late = harness.side_outputs.pop("late", [])
        if late:
            assert (out, late) == ([], [record])
            assert at <= watermark - 10
            assert table.row("k") is None, "of a row it is known whether a record is newer"
        else:
            assert out == ([record] if table.take("k", at, number, record) else [])


def test_what_is_known_of_deleted_rows_goes_with_time() -> None:
    harness = OperatorHarness(by_time(0.010))
    for key in range(20):
        harness.process({"gone": key >= 5}, key=key, timestamp=100)
    assert entries(harness.snapshot()) == 5 * 2 + 15
    harness.watermark(109)
    assert entries(harness.snapshot()) == 5 * 2 + 15
    harness.watermark(110)
    assert entries(harness.snapshot()) == 5 * 2


def test_after_rescaling_a_key_knows_what_was_too_late_before() -> None:
    ahead, behind = OperatorHarness(by_time(0.010)), OperatorHarness(by_time(0.010))
    ahead.process({"gone": True}, key="ahead", timestamp=100)
    ahead.watermark(1000)
    behind.watermark(5)
    one = OperatorHarness.restore(by_time(0.010), [ahead.snapshot(), behind.snapshot()])
    assert one.process({"gone": False, "old": 1}, key="ahead", timestamp=99) == []
    assert one.side_outputs == {"late": [{"gone": False, "old": 1}]}


@given(st.lists(st.one_of(st.none(), st.integers()), max_size=20))
def test_by_arrival_each_record_is_the_newest(values: list[int | None]) -> None:
    harness = OperatorHarness(latest_by_key("arrival", None, None))
    out = [harness.process(value, key="k") for value in values]
    before = [None, *values]
    assert out == [[] if old is None and new is None else [new] for old, new in zip(before, values, strict=False)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers()), min_size=1, max_size=20))
def test_a_function_may_say_what_is_newer(records: list[tuple[int, int]]) -> None:
    harness = OperatorHarness(latest_by_key(lambda record: (record[0], "lsn"), None, None))
    out = [one for record in records for one in harness.process(record, key="k")]
    highest = list(accumulate((version for version, _ in records), max))
    assert out == [record for record, bound in zip(records, highest, strict=True) if record[0] >= bound]


@pytest.mark.parametrize(
    ("order", "records", "message"),
    [
        ("event", [1], r"latest_by_key goes by event time.*assign_timestamps"),
        (lambda record: None, [1], "the version of a record is None"),
        (lambda record: float("nan"), [1], "the version of a record is nan"),
        (lambda record: record, [1, "x"], "the version 'x' can't be compared with 1"),
    ],
)
def test_a_record_that_has_no_version_is_refused(order: Any, records: list[Any], message: str) -> None:
    harness = OperatorHarness(latest_by_key(order, None, None))
    *before, last = records
    for record in before:
        harness.process(record, key="k")
    with pytest.raises(Explained, match=message):
        harness.process(last, key="k")


# -- as a step ------------------------------------------------------------------------------------------------


def keyed() -> KeyedStream[Any]:
    return Pipeline("p").source("in", TestingSource([{"id": 1}])).key_by("id")


def test_steps_are_named_by_their_kind_and_can_be_packed() -> None:
    stream = keyed()
    stream.latest_by_key()
    stream.latest_by_key("customers", lateness=60, deleted=is_deletion).late()
    p = stream._pipeline
    assert [step.id for step in p._graph.steps[1:]] == ["latest_by_key-1", "customers"]
    operator = unpack_plan(pack_plan(p.plan())).vertices[2].head.payload
    assert OperatorHarness(operator).process({"gone": False}, key="k", timestamp=1) == [{"gone": False}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "version"}, 'order must be "event", "arrival" or a function'),
        ({"deleted": "op"}, "deleted must be a function of a record, not 'op'"),
        ({"lateness": 0}, "lateness must be at least 0.001 s"),
        ({"lateness": 0.0015}, "latest_by_key: lateness is 0.0015, which has a fraction of a millisecond"),
        ({"lateness": 5, "order": "arrival"}, 'goes with order="event" only'),
    ],
)
def test_options_that_say_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        keyed().latest_by_key(**options)


def test_what_has_yet_to_run_deletes_nothing() -> None:
    operator = latest_by_key("arrival", lambda record: (gone for gone in [record["gone"]]), None)
    with pytest.raises(YetToRun, match="latest_by_key: deleted returned a generator, which has yet to run"):
        OperatorHarness(operator).process({"gone": False}, key="k")
    operator = latest_by_key("arrival", lambda record: record["gone"].isdigit, None)
    with pytest.raises(YetToRun, match="latest_by_key: deleted returned the function isdigit"):
        OperatorHarness(operator).process({"gone": "no"}, key="k")


def test_a_record_without_a_version_may_be_left_out() -> None:
    stream = keyed().latest_by_key("table", order=lambda record: record["lsn"], on_error="skip")
    assert stream._step.on_error is not None
    stream.errors()


_ORDERS: list[Any] = ["event", "arrival", lambda record: record["n"]]


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("now", range(3))
def test_a_table_keeps_its_order(before: int, now: int) -> None:
    """Versions of one order say nothing of those of another."""
    harness = OperatorHarness(latest_by_key(_ORDERS[before], None, None))
    harness.process({"n": 7}, key="k", timestamp=1_000)
    snapshot = harness.snapshot()
    if before == now:
        harness = OperatorHarness.restore(latest_by_key(_ORDERS[now], None, None), snapshot)
        assert harness.process({"n": 8}, key="k", timestamp=2_000) == [{"n": 8}]
        return
    with pytest.raises((PipelineError, StateRestoreError), match=r"(?s)another id|allow_unclaimed"):
        OperatorHarness.restore(latest_by_key(_ORDERS[now], None, None), snapshot)
