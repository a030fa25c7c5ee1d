"""What a subtask reports of itself, on a clock of the test's."""

from __future__ import annotations

import pytest
from captures import channel

from pipeline.runtime.subtask.task_metrics import TaskMetrics


class Subtask:
    def __init__(self) -> None:
        self.now = 100.0
        self.metrics = TaskMetrics(lambda: self.now)


@pytest.fixture
def subtask() -> Subtask:
    return Subtask()


def test_at_first_nothing_was_done(subtask: Subtask) -> None:
    subtask.now += 2.0
    told = subtask.metrics.report()
    names = ("recordsIn", "recordsOut", "recordsInPerSecond", "recordsOutPerSecond", "bytesIn", "bytesOut", "gcMs")
    assert [told[name] for name in (*names, "inFlightBytes", "waitingMs", "sourceGateClosedMs")] == [0] * 10
    assert (told["heldMs"], told["busyMsPerSecond"]) == (2000.0, 1000.0)
    assert told["hotKeys"] == []
    assert (told["barriers"], told["writing"], told["unsent"], told["uncaptured"], told["waits"]) == (
        {},
        [],
        {},
        {},
        [],
    )


def test_time_is_shared_out_over_the_period_since_the_last_report(subtask: Subtask) -> None:
    metrics = subtask.metrics
    for _ in range(2):
        metrics.idle_s += 0.4
        metrics.backpressured_s += 0.2
        metrics.gate_closed_s += 0.6
        subtask.now += 2.0
        told = metrics.report()
        names = ("idleMsPerSecond", "backPressuredMsPerSecond", "sourceGateClosedMsPerSecond", "busyMsPerSecond")
        assert [round(told[name]) for name in names] == [200, 100, 300, 400]
    assert told["sourceGateClosedMs"] == 1200


def test_no_rate_is_more_than_all_the_time(subtask: Subtask) -> None:
    """A wait that began before the last report counts when it ends."""
    subtask.metrics.idle_s += 5.0
    subtask.metrics.backpressured_s += 0.5
    subtask.now += 1.0
    told = subtask.metrics.report()
    assert (told["idleMsPerSecond"], told["backPressuredMsPerSecond"]) == (1000.0, 500.0)
    assert told["busyMsPerSecond"] == 0.0


def test_how_many_records_come_and_go_a_second(subtask: Subtask) -> None:
    subtask.metrics.records_in, subtask.metrics.records_out = 300, 60
    subtask.metrics.bytes_in, subtask.metrics.bytes_out = 7, 8
    subtask.now += 3.0
    told = subtask.metrics.report()
    assert (told["recordsInPerSecond"], told["recordsOutPerSecond"]) == (100.0, 20.0)
    assert (told["recordsIn"], told["recordsOut"], told["bytesIn"], told["bytesOut"]) == (300, 60, 7, 8)


def test_counters_count_by_one_and_gauges_are_set(subtask: Subtask) -> None:
    subtask.metrics.count("recordsFailed")
    subtask.metrics.count("recordsFailed")
    subtask.metrics.count("restoredBytes", 7)
    subtask.metrics.gauge("pendingCommits", 3)
    subtask.metrics.gauge("pendingCommits", 2)
    told = subtask.metrics.report()
    assert (told["recordsFailed"], told["restoredBytes"], told["pendingCommits"]) == (2, 7, 2)
    with pytest.raises(ValueError, match="recordsFaild"):
        subtask.metrics.count("recordsFaild")
    with pytest.raises(ValueError, match="pendingComits"):
        subtask.metrics.gauge("pendingComits", 1)


def test_checkpoints_tell_what_they_wait_for_on_each_side(subtask: Subtask) -> None:
    outs, ins = [channel(0, 3)], [channel(5, 0)]
    subtask.metrics.pending = {1: lambda: (outs, ins), 2: lambda: ([], ins), 3: lambda: (outs, [])}
    subtask.metrics.writing = {3, 1}
    told = subtask.metrics.report()
    assert told["unsent"] == {1: [["totals", 3]], 3: [["totals", 3]]}
    assert told["uncaptured"] == {1: [["orders", 5]], 2: [["orders", 5]]}
    assert told["writing"] == [1, 3]


def test_only_waits_for_what_is_outside_are_a_sign_of_trouble(subtask: Subtask) -> None:
    metrics = subtask.metrics
    metrics.waiting.begin("the brokers")
    subtask.now += 1.0
    metrics.waiting.begin("the registry")
    metrics.time_waits.begin("partition 1")
    metrics.pace_waits.begin("its rate")
    subtask.now += 2.0
    told = metrics.report()
    assert [(what, seconds) for what, seconds, _ in told["waits"]] == [
        ("the brokers", 3.0),
        ("the registry", 2.0),
        ("partition 1", 2.0),
        ("its rate", 2.0),
    ]
    assert told["waitingMs"] == 3000


def test_what_is_asked_for_at_each_report_is_asked_for(subtask: Subtask) -> None:
    subtask.metrics.in_flight = lambda: 9
    subtask.metrics.gc_seconds = lambda: 0.5
    told = subtask.metrics.report()
    assert (told["inFlightBytes"], told["gcMs"]) == (9, 500)
    subtask.metrics.looked_at = subtask.now + 1.0
    assert subtask.metrics.report()["heldMs"] == 0.0
