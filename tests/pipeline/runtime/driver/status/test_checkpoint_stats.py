"""What users are told about each checkpoint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.checkpoint_kind import CheckpointKind
from pipeline.runtime.driver.status import checkpoint_stats
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointHistory, in_words


def acknowledged(history: CheckpointHistory, id: int, name: str, now: float, **statistics: float) -> None:
    history.acknowledged(id, name, {"async": statistics.pop("async_", 0.0), **statistics}, now)


def test_a_checkpoints_durations_and_spans_are_the_largest_and_its_size_the_sum_of_its_subtasks() -> None:
    history = CheckpointHistory()
    history.triggered(7, CheckpointKind.CHECKPOINT, 100.0, 1.7e9)
    acknowledged(history, 7, "in[0]", 100.5, sync=0.2, span_records=40, span_bytes=4000, size=10, written=4)
    acknowledged(history, 7, "op[0]", 101.0, start_delay=0.3, alignment=0.4, sync=0.1, async_=0.6, size=5, written=5)
    for name in ("op[1]", "op[2]"):
        acknowledged(history, 7, name, 101.2, in_flight_records=3, in_flight_bytes=30)
    history.completed(7, 101.5)
    (row,) = history.rows()
    assert (row.id, row.status, row.kind, row.duration) == (7, "completed", "checkpoint", 1.5)
    assert (row.start_delay, row.alignment, row.sync, row.async_) == (0.3, 0.4, 0.2, 0.6)
    assert (row.size, row.written, row.span_records, row.span_bytes) == (15, 9, 40, 4000)
    assert (row.in_flight_records, row.in_flight_bytes) == (6, 60)
    assert [(s.name, s.acknowledged_after) for s in row.subtasks[:2]] == [("in[0]", 0.5), ("op[0]", 1.0)]


def test_one_line_tells_of_a_checkpoint_and_of_the_subtask_that_held_it_up() -> None:
    history = CheckpointHistory()
    history.triggered(7, CheckpointKind.CHECKPOINT, 100.0, 1.7e9)
    acknowledged(history, 7, "in[0]", 100.5, span_records=40, size=1000, written=1000)
    acknowledged(history, 7, "op[0]", 101.0, start_delay=0.3, alignment=0.4, sync=0.1, async_=0.6, in_flight_records=3)
    history.completed(7, 101.5)
    row = history.row(7)
    assert row is not None
    assert in_words(row) == (
        "checkpoint 7 completed in 1.500 s: 1,000 bytes, 3 records in flight, span 40 records; the last was op[0] "
        "after 1.000 s (its snapshot after 0.300 s, alignment 0.400 s, held 0.100 s, writing 0.600 s), "
        "_metadata 0.500 s"
    )
    assert history.row(8) is None


def test_the_parts_of_writing_are_those_of_the_slowest_subtask_and_metadata_is_the_rest() -> None:
    history = CheckpointHistory()
    history.triggered(7, CheckpointKind.CHECKPOINT, 100.0, 1.7e9)
    acknowledged(history, 7, "in[0]", 100.5, keyed_state=0.2, channel_state=0.1)
    acknowledged(history, 7, "op[0]", 101.0, keyed_state=0.1, channel_state=0.4)
    row = history.row(7)
    assert row is not None
    assert row.finalise == 0.0
    history.completed(7, 101.25)
    row = history.row(7)
    assert row is not None
    assert (row.keyed_state, row.channel_state, row.finalise) == (0.2, 0.4, 0.25)
    assert [(one.keyed_state, one.channel_state) for one in row.subtasks] == [(0.2, 0.1), (0.1, 0.4)]


def test_what_a_checkpoint_refers_to_and_has_not_written_is_told_apart() -> None:
    history = CheckpointHistory()
    history.triggered(7, CheckpointKind.CHECKPOINT, 100.0, 1.7e9)
    acknowledged(history, 7, "op[0]", 101.0, size=1000, written=10, unaligned=True)
    history.completed(7, 101.5)
    row = history.row(7)
    assert row is not None
    assert "completed in 1.500 s, unaligned: 1,000 bytes, 10 of them new, 0 records" in in_words(row)


def test_a_checkpoint_in_progress_has_no_duration_yet() -> None:
    history = CheckpointHistory()
    history.triggered(1, CheckpointKind.FINAL, 0.0, 1.7e9)
    (row,) = history.rows()
    assert (row.status, row.kind, row.duration, row.failure) == ("in_progress", "final", None, None)
    assert (row.start_delay, row.alignment, row.sync, row.async_, row.keyed_state) == (0, 0, 0, 0, 0)
    assert (row.channel_state, row.finalise, row.commit, row.size, row.written) == (0, 0, None, 0, 0)
    assert (row.in_flight_bytes, row.in_flight_records, row.unaligned, row.span_records) == (0, 0, False, 0)
    assert (row.span_bytes, row.subtasks) == (0, ())
    assert history.duration(1, 2.5) == 2.5


def test_a_failure_says_why_and_when() -> None:
    history = CheckpointHistory()
    history.triggered(1, CheckpointKind.CHECKPOINT, 10.0, 1.7e9)
    history.failed(1, "totals[1] has no barrier from orders[0]", 20.0)
    (row,) = history.rows()
    assert (row.status, row.duration, row.failure) == ("failed", 10.0, "totals[1] has no barrier from orders[0]")


def test_what_comes_after_the_end_of_a_checkpoint_changes_nothing() -> None:
    history = CheckpointHistory()
    history.triggered(1, CheckpointKind.CHECKPOINT, 0.0, 1.7e9)
    history.failed(1, "expired", 5.0)
    before = history.rows()
    acknowledged(history, 1, "op[0]", 6.0, size=100)
    history.completed(1, 7.0)
    history.failed(1, "again", 8.0)
    acknowledged(history, 99, "op[0]", 9.0)
    history.completed(99, 9.0)
    assert history.rows() == before


def test_with_its_attempt_every_checkpoint_in_progress_ends() -> None:
    history = CheckpointHistory()
    for id in (1, 2, 3):
        history.triggered(id, CheckpointKind.CHECKPOINT, float(id), 1.7e9)
    history.completed(2, 4.0)
    history.attempt_ended(10.0)
    assert [(row.id, row.status, row.duration) for row in history.rows()] == [
        (1, "failed", 9.0),
        (2, "completed", 2.0),
        (3, "failed", 7.0),
    ]
    assert (history.completed_count, history.failed_count) == (1, 2)


def test_the_largest_id_counts_checkpoints_that_failed() -> None:
    history = CheckpointHistory()
    assert history.largest_id == 0
    history.triggered(4, CheckpointKind.CHECKPOINT, 0.0, 1.7e9)
    history.failed(4, "expired", 1.0)
    assert history.largest_id == 4


def test_only_the_newest_are_kept() -> None:
    history = CheckpointHistory()
    for id in range(1, checkpoint_stats._KEPT + 11):
        history.triggered(id, CheckpointKind.CHECKPOINT, 0.0, 1.7e9)
    rows = history.rows()
    assert (len(rows), rows[0].id) == (checkpoint_stats._KEPT, 11)


def test_a_checkpoint_that_a_newer_one_has_subsumed_has_not_failed() -> None:
    history = CheckpointHistory()
    for id in (1, 2):
        history.triggered(id, CheckpointKind.CHECKPOINT, 0.0, 1.7e9)
    history.subsumed(1, 1.0)
    history.completed(2, 1.0)
    assert [(row.status, row.failure, row.duration) for row in history.rows()] == [
        ("subsumed", None, 1.0),
        ("completed", None, 1.0),
    ]
    assert (history.completed_count, history.failed_count) == (1, 0)


def test_rows_are_a_copy() -> None:
    history = CheckpointHistory()
    history.triggered(1, CheckpointKind.CHECKPOINT, 0.0, 1.7e9)
    rows = history.rows()
    history.completed(1, 1.0)
    assert rows[0].status == "in_progress"


@pytest.mark.parametrize(
    ("subtasks", "checkpoints"),
    [(64, 500), pytest.param(64, 10_000, marks=pytest.mark.full), (1, 20_500), (1_500, 20)],
)
def test_a_long_run_keeps_the_figures_of_many_checkpoints_and_the_subtasks_of_the_newest(
    subtasks: int, checkpoints: int
) -> None:
    history = CheckpointHistory()
    names = [f"op[{i}]" for i in range(subtasks)]
    for id in range(1, checkpoints + 1):
        history.triggered(id, CheckpointKind.CHECKPOINT, 0.0, 1.7e9)
        for name in names:
            history.acknowledged(id, name, {"size": 1}, 1.0)
        history.completed(id, 2.0)
    rows = history.rows()
    kept = [len(row.subtasks) for row in rows]
    assert len(rows) == min(checkpoints, checkpoint_stats._KEPT)
    assert sum(kept) <= checkpoint_stats._DETAILS
    assert kept == sorted(kept)
    assert kept[-1] == subtasks
    assert sum(kept) > checkpoint_stats._DETAILS - subtasks
    assert {(row.size, row.duration, row.status) for row in rows} == {(subtasks, 2.0, "completed")}
    assert (history.completed_count, history.failed_count) == (checkpoints, 0)
    assert history._triggered == {}


def test_long_failures_are_cut_once_they_are_old() -> None:
    history = CheckpointHistory()
    for id in range(1, 3_001):
        history.triggered(id, CheckpointKind.CHECKPOINT, 0.0, 1.7e9)
        history.failed(id, "x" * 3_000, 2.0)
    rows = history.rows()
    assert rows[-1].failure == "x" * 3_000
    assert sum(len(row.failure or "") for row in rows) < 4_500_000
    assert (rows[0].failure or "").startswith("xxx")


@given(st.lists(st.tuples(st.sampled_from(["trigger", "ack", "complete", "fail"]), st.integers(0, 4)), max_size=80))
def test_whatever_happens_the_count_of_details_is_that_of_the_rows(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_stats, "_KEPT", 6)
        patch.setattr(checkpoint_stats, "_DETAILS", 7)
        history = CheckpointHistory()
        newest = 0
        for step, back in steps:
            id = newest - back
            match step:
                case "trigger":
                    newest += 1
                    history.triggered(newest, CheckpointKind.CHECKPOINT, 0.0, 1.7e9)
                case "ack":
                    acknowledged(history, id, "op[0]", 1.0)
                case "complete":
                    history.completed(id, 1.0)
                case "fail":
                    history.failed(id, "why", 1.0)
            ended = [row for row in history.rows() if row.status != "in_progress"]
            assert history._details == sum(len(row.subtasks) for row in ended)
            assert history._details <= 7 or sum(bool(row.subtasks) for row in ended) == 1
            assert len(history.rows()) <= 6


def test_how_long_output_took_to_be_visible_is_told_once_every_sink_has_committed() -> None:
    history = CheckpointHistory()
    for id, at in ((1, 100.0), (2, 110.0), (3, 120.0)):
        history.triggered(id, CheckpointKind.CHECKPOINT, at, 1.7e9)
        history.completed(id, at + 1)
    history.committed(0, 121.0)
    assert [row.commit for row in history.rows()] == [None, None, None]
    history.committed(2, 121.5)
    history.committed(2, 500.0)
    assert [row.commit for row in history.rows()] == [20.5, 10.5, None]
