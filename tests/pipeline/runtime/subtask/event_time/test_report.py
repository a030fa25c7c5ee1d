"""What a subtask tells of its event time: metrics, log lines, and for whom it waits since when."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from checkpoint.elements import ChannelName, EdgeName
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.combiner import WatermarkCombiner
from checkpoint.event_time.generator import WatermarkGenerator
from checkpoint.state import make_backend
from pipeline import WatermarkStrategy
from pipeline.graph import StepKind
from pipeline.plan import PlannedStep
from pipeline.runtime.driver.status.event_time_status import event_time_of, sentence
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.event_time.report import TimeReport
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.steps.compiled import Site
from pipeline.runtime.subtask.steps.timestamps import compile_assign_timestamps
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.testing import ManualClock

NOW = 1_700_000_000.0


class Times:
    """An `assign_timestamps` step by itself."""

    def __init__(self, splits: list[Any], **options: Any) -> None:
        self.clock = ManualClock(NOW)
        strategy = WatermarkStrategy.bounded("at", 0, **options)
        self.generator = WatermarkGenerator(
            0, strategy.idle_after, NOW, strategy.quiet_after, strategy.max_ahead, self.clock
        )
        self.generator.set_splits(splits)
        self.domain = TimeDomain("times", self.generator, by_split=True)
        self.domain.since = NOW
        self.in_progress = RecordInProgress()
        step = PlannedStep("times", StepKind.ASSIGN_TIMESTAMPS, strategy, "in", None)
        context = Context(self.in_progress, 0, 1)
        site = Site(step, self.in_progress, context, self.domain, _drop, None, {}, None, None, self.clock, lambda: None)
        self.push = compile_assign_timestamps(site).push
        self.report = TimeReport("in", TimeDomain("in"), [self.domain], WatermarkCombiner(["r"]), None, self.clock)

    def record(self, split: Any, at: int) -> None:
        self.in_progress.source_splits = split
        self.push({"at": at})

    def pass_time(self, seconds: float) -> None:
        now = self.clock.advance(seconds)
        made = self.generator.on_clock(now, False)
        if made is not None:
            self.domain.watermark, self.domain.since = made, now
            self.generator.passed(made, now)

    @property
    def waits(self) -> dict[str, float]:
        return {what: since - NOW for what, since in self.report.waits(self.clock())}


def test_late_records_lag_and_records_ahead_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    one = Times(["a"], max_ahead=60)
    first = int(NOW * 1000) - 5000
    one.record("a", first)
    one.pass_time(2)
    one.record("a", first + 100)
    one.pass_time(1)
    for at in (first + 99, first + 100, first - 5, first + 10**9):
        one.record("a", at)
    gauges = one.report.gauges()
    assert gauges == {
        "watermark": first + 99,
        "watermarkLagMs": 5000 + 3000 - 99,
        "eventTimeIdle": 0,
        "recordsLate": 2,
        "recordsAhead": 1,
        "timersDropped": 0,
    }
    with caplog.at_level(logging.WARNING):
        one.report.log(one.clock())
        one.record("a", first + 10**9)
        one.report.log(one.clock())
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"split 'a' with timestamp {first + 10**9}" in line
    one.domain.watermark = MAX_WATERMARK
    assert one.report.gauges()["watermarkLagMs"] is None


@pytest.mark.parametrize(
    ("at", "told"),
    [(int(NOW), True), (10**9 + 1, True), (int(NOW * 1000), False), (0, False), (-5, False), (10**9, False)],
)
def test_timestamps_that_seem_to_be_in_seconds_are_told(caplog: pytest.LogCaptureFixture, at: int, told: bool) -> None:
    one = Times(["a"])
    one.record("a", at)
    one.pass_time(1)  # the watermark is a millisecond behind it
    assert any("seem to be in seconds" in what for what in one.waits) is told
    with caplog.at_level(logging.WARNING):
        one.report.log(one.clock())
        one.report.log(one.clock())
    assert ["multiply them by 1000" in record.getMessage() for record in caplog.records] == [True] * told


def test_the_split_that_holds_event_time_back_is_named_with_since_when() -> None:
    one = Times(["a", "b"])
    one.record("a", 100)
    one.pass_time(9)
    assert one.waits == {}
    one.pass_time(2)
    ((what, since),) = one.waits.items()
    assert "first record of split 'b'" in what
    assert since == 0
    one.record("b", 50)
    one.pass_time(1)
    assert one.waits == {}
    for _ in range(15):
        one.record("a", 200)
        one.pass_time(1)
    ((what, since),) = one.waits.items()
    assert "records of split 'b'" in what
    assert since == pytest.approx(12, abs=1.1)


def test_a_watermark_ahead_of_the_clock_is_told_with_the_timestamp_that_did_it() -> None:
    one = Times(["a"])
    one.record("a", int(NOW * 1000) + 86_400_000)
    one.pass_time(1)
    (what,) = one.waits
    assert "ahead" in what
    assert str(int(NOW * 1000) + 86_400_000) in what
    assert "max_ahead" in what


def test_a_split_whose_records_wait_to_be_read_is_named() -> None:
    one = Times(["a", "b"], idle_after=2)
    one.generator.set_splits(["a", "b"], waiting=["b"])
    one.record("b", 10)
    one.record("a", 20)
    for at in range(30, 150, 10):
        one.pass_time(1)
        one.record("a", at)
    assert one.waits == {
        "records of split 'b' that are there and have not been read, or are in an open transaction: they hold the "
        "watermark of 'times' back": 1.0
    }


def _drop(value: Any) -> None:
    pass


def channel(upstream: str) -> ChannelName:
    return ChannelName(EdgeName(upstream, "op", "0"), 0, 0)


def test_of_a_join_the_stream_that_holds_event_time_back_is_named() -> None:
    left, right = (ChannelName(EdgeName("in", "pairs", f"{number}.0"), 0, 0) for number in (0, 1))  # joined with itself
    combiner = WatermarkCombiner([left, right])
    head = TimeDomain("pairs")
    head.listeners.append((Context(RecordInProgress(), 0, 1), print))
    report = TimeReport("pairs", head, [], combiner, None, lambda: NOW, ("left", "right"))
    combiner.on_watermark(left, 10)
    ((what, _),) = report.waits(20)
    assert what == "a watermark of the right stream, 'in' (subtask 0), which has made none, for 'pairs'"
    combiner.on_watermark(right, 20)
    head.watermark = 10
    ((what, _),) = report.waits(20)
    assert what == "a watermark of the left stream, 'in' (subtask 0), which is the furthest behind, for 'pairs'"


def test_the_channel_that_holds_event_time_back_is_named_where_it_matters() -> None:
    combiner = WatermarkCombiner([channel("x"), channel("y")])
    head = TimeDomain("op")
    report = TimeReport("op", head, [], combiner, None, lambda: NOW)
    combiner.on_watermark(channel("x"), 10)
    assert list(report.waits(60)) == []  # nothing waits for it
    head.listeners.append((Context(RecordInProgress(), 0, 1), print))
    assert list(report.waits(5)) == []
    ((what, since),) = report.waits(20)
    assert "'y' (subtask 0), which has made none" in what
    assert since == 0
    combiner.on_watermark(channel("y"), 5)
    head.watermark = 5
    ((what, _),) = report.waits(20)
    assert "'y' (subtask 0), which is the furthest behind" in what
    for one in "xy":
        combiner.on_idle(channel(one), True)
    assert list(report.waits(20)) == []  # perhaps there are just no records
    ((what, _),) = report.waits(60)
    assert "records with later timestamps, for the timers of 'op'" in what
    combiner.on_watermark(channel("x"), 20)
    assert list(report.waits(60)) == []
    head.watermark = MAX_WATERMARK
    assert list(report.waits(60)) == []


def test_timers_that_wait_where_no_input_makes_watermarks_are_told() -> None:
    backend = make_backend(range(1), 1)
    combiner, head = WatermarkCombiner([channel("x")]), TimeDomain("op")
    report = TimeReport("op", head, [], combiner, backend.event_timers, lambda: NOW)
    assert list(report.waits(60)) == []
    backend.set_current_key(b"k", 0)
    backend.event_timers.register(5)
    ((what, _),) = report.waits(60)
    assert "'x' (subtask 0), which has made none, for the timers of 'op'" in what


def test_what_was_waited_for_ends_when_it_has_come() -> None:
    one, metrics = Times(["a", "b"]), TaskMetrics()
    one.record("a", 100)
    one.pass_time(20)
    one.report.tell(metrics.time_waits, one.clock())
    assert len(metrics.report()["waits"]) == 1
    one.record("b", 100)
    one.pass_time(1)
    one.report.tell(metrics.time_waits, one.clock())
    assert metrics.report()["waits"] == []


def test_status_tells_each_vertex_in_one_line() -> None:
    rows = event_time_of(
        {
            "in[0]": {"watermark": 500, "watermarkLagMs": 2500, "recordsLate": 3},
            "in[1]": {"watermark": 900, "watermarkLagMs": 2100, "recordsLate": 1},
            "op[0]": {"watermark": None},
            "end[0]": {"watermark": MAX_WATERMARK, "watermarkLagMs": None, "timersDropped": 7},
            "odd[0]": {"watermark": -(2**62)},
            "half[0]": {"watermark": 5, "watermarkLagMs": -70_000},
            "half[1]": {"watermark": None},
            "young[0]": {},
            "few[0]": {"watermark": 7, "eventTimeIdle": 0},
            "few[1]": {"watermark": None, "eventTimeIdle": 1},
            "night[0]": {"watermark": 9, "eventTimeIdle": 1},
            "night[1]": {"watermark": None, "eventTimeIdle": 1},
        }
    )
    assert {row["vertex"]: sentence(row) for row in rows} == {
        "in": "watermark 1970-01-01 00:00:00 UTC (500), 2.5 s behind the clock, 4 records late",
        "odd": f"watermark {-(2**62)}",
        "end": "ended, 7 timers dropped at the end",
        "few": "watermark 1970-01-01 00:00:00 UTC (7)",
        "night": "watermark 1970-01-01 00:00:00 UTC (9)",
        "half": "no watermark in some subtasks yet",
    }


def test_without_records_ahead_the_log_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    one = Times(["a"], max_ahead=10)
    one.record("a", int(NOW * 1000))
    one.report.log(NOW)
    assert not caplog.records
