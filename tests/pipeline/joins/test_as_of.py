"""As-of joins: each record with the newest version that is not newer than it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joined_input import (
    SIZES,
    JoinRun,
    Record,
    Restore,
    Watermark,
    as_of_oracle,
    counted,
    events,
    pages_of,
    rows,
    split,
)

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline import PipelineError
from pipeline.by_event_time import NoTimestamp
from pipeline.joins import AsOfJoin, as_of
from pipeline.joins.options import MOST_AT_ONCE
from pipeline.paged import directory
from pipeline.testing import OperatorHarness

HOWS = ("inner", "left")
AGES = st.one_of(st.none(), st.integers(0, 8))


def age(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def left(one: OperatorHarness, at: int | None, value: Any = "l", key: Any = "k") -> list[Any]:
    return one.process(value, key=key, timestamp=at)


def right(one: OperatorHarness, at: int | None, value: Any = "r", key: Any = "k") -> list[Any]:
    return one.process_connected(value, key=key, timestamp=at)


def pair(left: Any, right: Any, key: Any = "k") -> dict[str, Any]:
    return {"key": key, "left": left, "right": right}


def check(found: list[Any], how: Any, max_age: int | None, backend: Any = "heap") -> None:
    """A join over these events gives what the oracle gives, and keeps no more than the newest version of each key."""
    run = JoinRun(lambda: AsOfJoin(how, age(max_age)), backend).feed(found).end()
    lefts, rights, late = split(found)
    assert run.results == as_of_oracle(lefts, rights, how, max_age)
    assert run.late == counted(late)
    newest = {one.key: [[one.at], [one.value]] for one in sorted(rights, key=lambda one: one.at)}
    expected = [("versions", value) for value in newest.values()] if max_age is None else []
    assert sorted(run.kept(), key=repr) == sorted(expected, key=repr)
    run.harness.close()


@given(events(), st.sampled_from(HOWS), AGES, SIZES)
@settings(max_examples=150, deadline=None)
def test_results_are_those_of_the_whole_input(found: list[Any], how: str, max_age: int | None, size: int) -> None:
    with pages_of(size):
        check(found, how, max_age)


@given(events(most=20), st.sampled_from(HOWS), AGES, SIZES)
@settings(max_examples=8, deadline=None)
def test_it_is_the_same_with_rocksdb(found: list[Any], how: str, max_age: int | None, size: int) -> None:
    with pages_of(size):
        check(found, how, max_age, "rocksdb")


@given(events(most=20), st.sampled_from(HOWS), AGES)
@settings(max_examples=60, deadline=None)
def test_what_does_not_wait_takes_what_is_there(found: list[Any], how: Any, max_age: int | None) -> None:
    run = JoinRun(lambda: AsOfJoin(how, age(max_age), wait=False)).feed(found).end()
    expected: Any = {}
    for i, one in enumerate(found):
        so_far = split(found[: i + 1])
        if isinstance(one, Record) and one.side == "left" and one in so_far.lefts:
            expected |= as_of_oracle([one], so_far.rights, how, max_age)
    assert run.results == expected
    assert run.late == counted(split(found).late)
    assert run.kept("waiting") == []


@given(st.data(), st.sampled_from(HOWS), AGES)
@settings(max_examples=60, deadline=None)
def test_no_order_of_the_inputs_and_no_watermark_changes_what_is_on_time(
    data: st.DataObject, how: Any, max_age: int | None
) -> None:
    """Of one side, records of equal times keep their order, as they do in a stream."""
    times = data.draw(st.lists(st.tuples(st.sampled_from(("left", "right")), st.integers(-15, 15)), max_size=25))
    records = [Record(side, "a", at, i) for i, (side, at) in enumerate(times)]
    order = list(data.draw(st.permutations(records)))
    for at in {one.at for one in records}:
        places = [i for i, one in enumerate(order) if one.at == at]
        for i, one in zip(places, sorted((order[i] for i in places), key=lambda one: one.number), strict=True):
            order[i] = one
    found: list[Any] = []
    for i, record in enumerate(order):
        found.append(record)
        if data.draw(st.booleans()):
            found.append(Watermark(min((one.at for one in order[i + 1 :]), default=20) - 1))
        if data.draw(st.booleans()):
            found.append(Restore())
    run = JoinRun(lambda: AsOfJoin(how, age(max_age))).feed(found).end()
    lefts = [one for one in records if one.side == "left"]
    rights = [one for one in records if one.side == "right"]
    assert run.results == as_of_oracle(lefts, rights, how, max_age)
    assert not run.late


# -- one by one -------------------------------------------------------------------------------------------------


def test_a_record_waits_until_the_watermark_has_passed_it() -> None:
    one = OperatorHarness(AsOfJoin())
    assert right(one, 5, "old") == left(one, 10) == []
    assert one.watermark(9) == []
    right(one, 10, "new")  # of its own time, so not newer
    right(one, 11, "newer")
    assert one.watermark(10) == [pair("l", "new")]
    assert one.timestamps == [10]


def test_one_that_does_not_wait_takes_what_is_there() -> None:
    one = OperatorHarness(AsOfJoin("left", wait=False))
    assert left(one, 10) == [pair("l", None)]
    right(one, 5, "old")
    right(one, 11, "newer")
    assert left(one, 10) == [pair("l", "old")]
    assert one.timestamps == [10, 10]


def test_of_versions_of_one_time_the_last_one_counts() -> None:
    one = OperatorHarness(AsOfJoin())
    for value in ("a", "b"):
        right(one, 5, value)
    left(one, 5)
    assert one.watermark(5) == [pair("l", "b")]


def test_a_version_may_be_as_old_as_max_age_and_no_older() -> None:
    one = OperatorHarness(AsOfJoin("left", 0.010))
    right(one, 100)
    left(one, 110, "near")
    left(one, 111, "far")
    assert one.watermark(200) == [pair("near", "r"), pair("far", None)]


def test_versions_are_kept_back_to_the_newest_below_the_watermark() -> None:
    one = OperatorHarness(AsOfJoin())
    for at in (1, 2, 3, 9):
        right(one, at, at)
    assert rows(one, "versions") == [("versions", [[1, 2, 3, 9], [1, 2, 3, 9]])]
    one.watermark(5)
    assert rows(one, "versions") == [("versions", [[3, 9], [3, 9]])]
    one.watermark(8)
    assert rows(one, "versions") == [("versions", [[3, 9], [3, 9]])]
    one.watermark(9)
    assert rows(one) == [("versions", [[9], [9]])]


def test_with_max_age_a_version_goes_when_no_record_can_be_near_enough() -> None:
    one = OperatorHarness(AsOfJoin(max_age=0.005))
    right(one, 10)
    one.watermark(14)
    assert rows(one, "versions") == [("versions", [[10], ["r"]])]
    left(one, 15)
    assert one.watermark(15) == [pair("l", "r")]
    assert rows(one) == []


def test_a_record_none_takes_the_row_away() -> None:
    one = OperatorHarness(AsOfJoin("left"))
    right(one, 1, "there")
    right(one, 5, None)
    left(one, 4, "before")
    left(one, 5, "after")
    assert one.watermark(10) == [pair("before", "there"), pair("after", None)]
    assert rows(one) == []  # nothing is known of the key any more
    right(one, 11, None)
    one.watermark(11)
    assert rows(one) == []


def test_late_records_of_either_side_are_joined_with_nothing() -> None:
    one = OperatorHarness(AsOfJoin("left"))
    right(one, 5)
    one.watermark(10)
    left(one, 10)
    right(one, 10, "late")
    left(one, 11, "m")
    assert one.watermark(20) == [pair("m", "r")]
    assert one.side_outputs["late"] == [
        {"key": "k", "side": "left", "record": "l"},
        {"key": "k", "side": "right", "record": "late"},
    ]


def test_what_is_late_for_a_key_stays_late_when_the_job_is_rescaled() -> None:
    """The subtask's watermark goes back; the version that the record would need is gone."""
    fast, slow = JoinRun(AsOfJoin), JoinRun(AsOfJoin)
    fast.feed([Record("right", "a", 1, 0), Record("right", "a", 90, 1), Watermark(100)])
    slow.feed([Record("right", 1, 1, 2), Watermark(50)])
    run = JoinRun.together([fast, slow]).feed([Record("left", "a", 80, 3), Record("left", 1, 80, 4)]).end()
    assert run.results == {(80, "1", 4, 2): 1}
    assert run.late == {("'a'", "left", 3): 1}


@pytest.mark.parametrize("watermark", [200, MAX_WATERMARK])
@pytest.mark.parametrize("max_age", [None, 0])
def test_many_records_of_a_key_that_go_at_once_find_their_versions(watermark: int, max_age: int | None) -> None:
    """Each timer is done with some of them, and the others' versions stay."""
    one = OperatorHarness(AsOfJoin(max_age=max_age))
    for at in range(100):
        right(one, at, at)
    number = 2 * MOST_AT_ONCE + 5
    for i in range(number):
        left(one, i % 100, i)
    found = one.watermark(watermark)
    assert sorted((each["left"], each["right"]) for each in found) == [(i, i % 100) for i in range(number)]
    assert rows(one) == ([("versions", [[99], [99]])] if max_age is None else [])


def test_at_the_end_of_event_time_all_go_however_many_timers_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_of, "MOST_AT_ONCE", 1)
    one = OperatorHarness(AsOfJoin())
    right(one, 5)
    for i in range(50):
        left(one, 5, i)
    assert [output["left"] for output in one.end_of_input()] == list(range(50))
    assert (rows(one, "waiting"), one.timers_dropped) == ([], 0)


@pytest.mark.parametrize("at", [-(2**63) + 1, MAX_WATERMARK - 1, -1])
@pytest.mark.parametrize("max_age", [None, 0, 10**9])
def test_no_time_is_too_early_or_too_late(at: int, max_age: int | None) -> None:
    one = OperatorHarness(AsOfJoin(max_age=max_age))
    right(one, at)
    left(one, at)
    assert one.end_of_input() == [pair("l", "r")]
    assert rows(one) == ([("versions", [[at], ["r"]])] if max_age is None else [])


def test_select_makes_the_results() -> None:
    one = OperatorHarness(AsOfJoin("left", select=lambda left, right: [left, right]))
    left(one, 1)
    right(one, 2)
    left(one, 3)
    assert one.watermark(5) == [["l", None], ["l", "r"]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_record_without_a_timestamp_is_an_error_that_says_what_to_do(side: str) -> None:
    with pytest.raises(NoTimestamp, match=rf"a record of the {side} stream has no timestamp.*assign_timestamps"):
        (left if side == "left" else right)(OperatorHarness(AsOfJoin()), None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "full"}, "how must be one of inner, left"),
        ({"max_age": -1}, "max_age must be at least 0"),
        ({"max_age": "a"}, "max_age must be seconds"),
        ({"max_age": 0.0001}, "fraction of a millisecond"),
        ({"wait": 5}, "wait must be True or False"),
        ({"select": len}, "select must be a plain function"),
    ],
)
def test_what_means_nothing_is_refused(options: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        AsOfJoin(**options)


@pytest.mark.parametrize(("before", "now", "fits"), [(5, 6, False), (5, None, False), (6, 5, True), (None, 5, True)])
def test_versions_that_are_gone_are_not_taken_for_none(before: Any, now: Any, fits: bool) -> None:
    one = OperatorHarness(AsOfJoin(max_age=before))
    right(one, 1)
    if fits:
        OperatorHarness.restore(AsOfJoin(max_age=now), one.snapshot())
    else:
        with pytest.raises(PipelineError, match=r"max_age=5.*another id"):
            OperatorHarness.restore(AsOfJoin(max_age=now), one.snapshot())


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("before", [None, 1_000])
@pytest.mark.parametrize("size", [2, directory.MOST])
def test_a_shorter_max_age_frees_what_older_versions_there_are(
    before: int | None, on_error: Any, backend: Any, size: int
) -> None:
    """Also of keys to which nothing comes any more."""
    with pages_of(size):
        one = OperatorHarness(AsOfJoin(max_age=before), state_backend=backend)
        for key in ("a", "b", 1, None):
            for at in range(10, 20):
                right(one, at, at, key)
        one.watermark(15)
        again = OperatorHarness.restore(
            AsOfJoin(max_age=0.005), one.snapshot(), state_backend=backend, on_error=on_error
        )
        again.watermark(20)
        assert sorted(at for _, value in rows(again, "versions") for at in value[0]) == [19] * 4
        left(again, 24, "l", "a")
        assert again.watermark(24) == [pair("l", 19, "a")]
        assert rows(again, "versions") == []
        one.close()
        again.close()
