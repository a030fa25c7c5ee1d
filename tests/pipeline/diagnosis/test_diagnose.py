"""Each staged trouble is named in a sentence, a healthy job has none, and no status is too odd."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from idle_handle import idle_handle, run

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline import JobHandle
from pipeline.diagnosis import Sentence, diagnose
from pipeline.http.watched_job import WatchedJob

TOTALS = "totals → out"
BUSY = {"busyMsPerSecond": 990.0, "idleMsPerSecond": 10.0}


def said(handle: JobHandle) -> list[Sentence]:
    return WatchedJob("orders", handle, None).diagnosis()


def troubles(handle: JobHandle) -> str:
    return "\n".join(one.text for one in said(handle) if one.severity == "trouble")


@pytest.fixture
def handle() -> JobHandle:
    handle = idle_handle()
    run(handle)
    return handle


def checkpoint(handle: JobHandle, id: int = 1, duration: float = 0.02, ago: float = 10.0, **parts: float) -> None:
    """Of which `totals → out[1]` has these parts."""
    history = handle._master.history
    history.triggered(id, CheckpointKind.CHECKPOINT, 0.0, time.time() - ago)
    for name in ("in[0]", f"{TOTALS}[0]", f"{TOTALS}[1]"):
        mine = {key.rstrip("_"): value for key, value in parts.items()} if name.endswith("[1]") else {}
        history.acknowledged(id, name, mine, duration)
    history.completed(id, duration)


def test_of_a_healthy_job_there_is_no_trouble(handle: JobHandle) -> None:
    assert [one.about for one in said(handle)] == ["job"]
    moving = {"recordsInPerSecond": 100.0, "busyMsPerSecond": 300.0}
    run(handle, totals_0=moving, totals_1=moving)
    checkpoint(handle, async_=0.01)
    assert troubles(handle) == ""
    assert "Checkpoint 1 took 0.02 s, of which 0.01 s writing took at totals → out[1]." in [
        one.text for one in said(handle)
    ]


def test_a_slow_step_is_named_with_who_waits_for_it(handle: JobHandle) -> None:
    busy = {**BUSY, "recordsInPerSecond": 50.0}
    run(handle, in_0={"backPressuredMsPerSecond": 900.0}, totals_0=busy, totals_1=busy)
    text = troubles(handle)
    assert "totals → out[0] is busy 99% of the time, and in before it is held up for 90%" in text
    assert "Steps 'totals' → 'out' set the pace of the job: more subtasks, or less work" in text


def test_a_closed_gate_is_held_up_too(handle: JobHandle) -> None:
    run(handle, in_0={"sourceGateClosedMsPerSecond": 700.0}, totals_0=BUSY)
    assert "in before it is held up for 70%" in troubles(handle)


def test_uneven_load_is_told_from_a_slow_step(handle: JobHandle) -> None:
    run(
        handle,
        in_0={"backPressuredMsPerSecond": 900.0},
        totals_0={"recordsInPerSecond": 10.0},
        totals_1={**BUSY, "recordsInPerSecond": 90.0},
    )
    text = troubles(handle)
    assert "totals → out[1] is busy" in text
    assert "It gets 9.0 times as many records as the median of the other subtasks: one key, or a few" in text
    assert "set the pace" not in text


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([["'ann'", 0.71]], "subtasks: key 'ann' has 71% of its records. More subtasks don't help"),
        ([["'ann'", 0.5], ["('b', 1)", 0.2]], "subtasks: key 'ann' has 50% of its records, ('b', 1) 20%. More"),
        ([[None, 0.5], [None, 0.2]], "subtasks: one key has 50% of its records, another 20%. More"),
        ([], "subtasks: one key, or a few, have most of the records. More"),
    ],
)
def test_the_keys_that_make_load_uneven_are_named(handle: JobHandle, keys: list[Any], words: str) -> None:
    even = {"recordsInPerSecond": 10.0, "hotKeys": [["'carl'", 0.9]]}
    uneven = {**BUSY, "recordsInPerSecond": 90.0, "hotKeys": keys}
    run(handle, in_0={"backPressuredMsPerSecond": 900.0}, totals_0=even, totals_1=uneven)
    assert words in troubles(handle)
    rows = WatchedJob("orders", handle, None).status()["hot_keys"]
    assert rows[-1] == {"subtask": f"{TOTALS}[0]", "key": "'carl'", "share": 0.9}
    assert [[row["key"], row["share"]] for row in rows[:-1]] == keys


def test_a_record_that_takes_long_is_named(handle: JobHandle) -> None:
    run(handle, totals_1={"heldMs": 12_000.0})
    assert "totals → out[1] has not looked around for 12 s: one record, or one call of its step" in troubles(handle)


def test_brokers_that_are_down_and_slots_that_are_missing_are_said_with_since_when(handle: JobHandle) -> None:
    handle._master.waits.report("in[0]", [("the Kafka brokers at kafka:9092", 90.0, "brokers")])
    handle._master.waits.report("the job", [("slots: it needs 4, there are 2", 90.0, "slots")])
    text = troubles(handle)
    assert "in[0] waits for the Kafka brokers at kafka:9092, for 90 s, since " in text
    assert "Do they run, and do the workers reach them?" in text
    assert "the job waits for slots: it needs 4, there are 2, for 90 s" in text
    assert "Lower the parallelism, or give the cluster more cores." in text


def test_a_refused_password_is_trouble_at_once_and_a_limited_rate_is_none(handle: JobHandle) -> None:
    refused = "the Kafka brokers at k:1, which refuse its user, password or certificate"
    handle._master.waits.report("in[0]", [(refused, 3.0, "credentials"), ("the rate of 5 records/s", 900.0, "rate")])
    (text,) = troubles(handle).splitlines()
    assert text.startswith(f"in[0] waits for {refused}, for 3.")
    assert text.endswith(" Correct the user, the password or the certificate in config=, and start the job again.")


def test_partitions_that_nobody_reads_are_named(handle: JobHandle) -> None:
    run(handle, in_0={"partitionsAssigned": 2, "recordsUnreadByPartition": {"orders[3]": 1200, "orders[2]": 34}})
    text = troubles(handle)
    assert "Nobody reads orders[2], orders[3], with 1,234 records so far: the source has discovery_interval" in text
    assert "start it again, which reads them from their beginning" in text


@pytest.mark.parametrize(
    ("assigned", "why"),
    [
        (
            (1, 0),
            "the source has 1 in all, for 2 subtasks. Lower the parallelism of the source to 1, or give",
        ),
        ((2, 0), "those of each topic go to subtasks in turn, and 2 don't reach all 2. Another parallelism"),
        ((1, 1), None),
    ],
)
def test_subtasks_without_a_partition_are_named(handle: JobHandle, assigned: tuple[int, int], why: str | None) -> None:
    run(handle, totals_0={"partitionsAssigned": assigned[0]}, totals_1={"partitionsAssigned": assigned[1]})
    found = [one.text for one in said(handle) if one.about == "partitions"]
    assert found == [] if why is None else f"totals → out[1] has no partition to read: {why}" in found[0]


def test_restarts_have_their_cause_and_what_to_do_about_one_bad_record(handle: JobHandle) -> None:
    handle._master.restarts = 3
    handle._master.failure = "subtask totals[0] failed: ValueError: no amount\nin step 'totals'\nTraceback …\n  x = 1"
    handle._master.failed_step = "totals"
    assert "on_error" not in troubles(handle)
    for cause in ("another", "no amount", "no amount"):
        handle._master._recoveries.begun(1.0, 2.0, 3.0, handle._master.progress, cause)
    text = troubles(handle)
    assert (
        "The job was restarted 3 times. The newest cause: subtask totals[0] failed: ValueError: no amount, in step"
        in text
    )
    assert (
        "in step 'totals'. If it is one record each time: on_error=DeadLetter(topic) or Skip on step 'totals'" in text
    )
    handle._master.failed_step = None
    assert "on_error" not in troubles(handle)


@pytest.mark.parametrize(("ran_for", "severity"), [(60.0, "trouble"), (3600.0, "note")])
def test_a_restart_is_no_trouble_any_more_once_the_job_has_run_for_long(
    handle: JobHandle, ran_for: float, severity: str
) -> None:
    handle._master.restarts = 1
    handle._master.failure = "out of room"
    handle._master.progress.running_at = time.monotonic() - ran_for
    (found,) = [one for one in said(handle) if "The job was restarted once" in one.text]
    assert found.severity == severity
    assert ("It has run for 60 min 0 s since." in found.text) is (severity == "note")


def test_between_a_failure_and_its_restart_no_phase_of_the_attempt_before_is_told(handle: JobHandle) -> None:
    handle._master.status = "restarting"
    assert "The job has failed and is about to be restarted." in [one.text for one in said(handle)]
    assert not any("does not run yet" in one.text for one in said(handle))


def test_a_job_that_has_failed_says_why(handle: JobHandle) -> None:
    handle._master.status, handle._master.failure = "failed", "PipelineError: no such topic"
    assert troubles(handle) == "The job has failed: PipelineError: no such topic"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            {"start_delay": 4.0, "unaligned": True},
            "4.00 s passed until the barrier had come at totals → out[1]: one record",
        ),
        ({"start_delay": 4.0}, "data was queued before it, which alignment='unaligned' lets it overtake"),
        ({"alignment": 4.0}, "4.00 s passed at totals → out[1] between the first and the last input's barrier"),
        ({"sync": 4.0}, "4.00 s the task was held at totals → out[1]: an operator's snapshot()"),
        ({"async_": 4.0, "written": 1000}, "writing took at totals → out[1], for 1,000 bytes: the storage is slow"),
        (
            {"async_": 4.0, "written": 10**9, "size": 10**9 + 1},
            "writing took at totals → out[1], for 1,000,000,000 bytes.",
        ),
        (
            {"async_": 4.0, "written": 10**9, "size": 10**9},
            "for 1,000,000,000 bytes: all state is written each time. CheckpointConfig(incremental=True) writes what",
        ),
    ],
)
def test_a_slow_checkpoint_says_where_its_time_went(handle: JobHandle, parts: dict[str, Any], why: str) -> None:
    checkpoint(handle, duration=5.0, **parts)
    assert "Checkpoint 1 took 5.00 s, of which " in troubles(handle)
    assert why in troubles(handle)


def test_a_checkpoint_that_writes_as_much_as_the_one_before_is_not_slow_storage(handle: JobHandle) -> None:
    writing = {"writing": [7]}
    run(handle, totals_0=writing, totals_1=writing)
    handle._master.history.triggered(7, CheckpointKind.CHECKPOINT, 0.0, time.time() - 40)
    handle._master.history.acknowledged(7, "in[0]", {}, 0.1)
    much, more = {"written": 10**9, "size": 10**9}, {"written": 10**9, "size": 10**10}
    why = "all others are done: 1,000,000,000 bytes at totals → out[1] the time before"
    checkpoint(handle, 6, duration=5.0, async_=4.0, **much)
    assert f"{why}: all state is written each time." in troubles(handle)
    checkpoint(handle, 6, duration=5.0, async_=4.0, **more)
    assert f"{why}." in troubles(handle)
    for quick_or_slow in ({"async_": 0.9, **much}, {"async_": 10.0, "written": 10**6, "size": 10**6}):
        checkpoint(handle, 6, duration=5.0, **quick_or_slow)
        assert "all others are done: the storage is slow." in troubles(handle)


def test_metadata_that_takes_long_is_the_storage(handle: JobHandle) -> None:
    checkpoint(handle)
    row = handle._master.history._rows[1]
    object.__setattr__(row, "duration", 3.0)
    object.__setattr__(row, "finalise", 2.9)
    assert "2.90 s passed until _metadata was safe after the last subtask was done: the storage is slow" in troubles(
        handle
    )


def test_a_checkpoint_under_way_says_for_whom_it_waits_and_a_failed_one_why(handle: JobHandle) -> None:
    history = handle._master.history
    history.triggered(7, CheckpointKind.CHECKPOINT, 0.0, time.time() - 40)
    history.acknowledged(7, "in[0]", {}, 0.1)
    text = troubles(handle)
    assert "Checkpoint 7 has been under way for 40 s: totals → out[0], totals → out[1] are not done yet." in text
    writing = {"writing": [7]}
    run(handle, totals_0=writing)
    assert "totals → out[1] are not done yet, of which totals → out[0] is writing." in troubles(handle)
    run(handle, totals_0=writing, totals_1=writing)
    assert "are writing what belongs to it, and all others are done: the storage is slow. Look at" in troubles(handle)
    for name in (f"{TOTALS}[0]", f"{TOTALS}[1]"):
        history.acknowledged(7, name, {}, 0.1)
    assert "all subtasks are done, and its _metadata is being written: the storage is slow." in troubles(handle)
    history.failed(7, "the disk is full", 41.0)
    assert troubles(handle) == "Checkpoint 7 failed: the disk is full"


def test_who_holds_time_back_and_what_has_run_ahead(handle: JobHandle) -> None:
    now = int(time.time() * 1000)
    run(handle, in_0={"watermark": now - 300_000, "watermarkLagMs": 300_000.0})
    assert "Event time is 5 min 0 s behind the clock. in[0] holds it back" in "\n".join(
        one.text for one in said(handle)
    )
    ahead = {"watermark": now + 10_800_000, "watermarkLagMs": -10_800_000.0, "recordsAhead": 3, "recordsLate": 12}
    run(handle, in_0=ahead)
    text = "\n".join(one.text for one in said(handle))
    assert "The watermark of in is 3 h 0 min ahead of the clock: a record with a timestamp of the future" in text
    assert "3 records at in had timestamps further ahead than max_ahead allows" in text
    assert "12 records at in came later than event time waits for" in text
    run(handle, in_0={"watermark": MAX_WATERMARK})
    assert "event time" not in {one.about for one in said(handle)}


def test_records_left_out_and_output_that_is_not_committed_are_told(handle: JobHandle) -> None:
    run(
        handle,
        in_0={"recordsSkipped": 2, "recordsDeadLettered": 3},
        totals_0={"recordsFailed": 4, "lastFailure": "'totals': KeyError: 'amount'", "pendingCommits": 5},
    )
    text = "\n".join(one.text for one in said(handle))
    assert "totals → out has left out 4 records on which a step has failed, the last of 'totals': KeyError" in text
    assert "The output of 5 completed checkpoints is not committed yet at totals → out" in text
    assert "Of what sources have read, 2 bad records were left out" in text
    assert "Of what sources have read, 3 bad records were sent to the topic for dead letters" in text


def test_no_records_is_explained(handle: JobHandle) -> None:
    run(handle, in_0={"recordsLag": 0})
    assert "No records come: the sources have read all there is." in [one.text for one in said(handle)]
    run(handle, in_0={"recordsLag": 70, "sourceGateReason": "the span is used up"})
    assert "No records come, since source gates are closed: in (the span is used up)." in [
        one.text for one in said(handle)
    ]
    run(handle, in_0={"recordsLag": 70})
    assert "No records come, though 70 are there to be read" in troubles(handle)


numbers = st.none() | st.floats(0, 1e12) | st.integers(0, 10**12)
METRICS = [
    "recordsInPerSecond",
    "busyMsPerSecond",
    "backPressuredMsPerSecond",
    "sourceGateClosedMsPerSecond",
    "heldMs",
    "recordsLag",
    "watermark",
    "watermarkLagMs",
    "recordsLate",
    "recordsAhead",
    "recordsFailed",
    "pendingCommits",
    "recordsSkipped",
    "eventTimeIdle",
    "partitionsAssigned",
]
figures = st.dictionaries(st.sampled_from(METRICS), numbers)
parts = st.dictionaries(st.sampled_from(["start_delay", "alignment", "sync", "async_", "written"]), st.floats(0, 1e6))


@given(
    figures,
    figures,
    figures,
    parts,
    st.sampled_from(["created", "running", "restarting", "finished", "failed", "cancelled"]),
    st.none() | st.text(max_size=40),
    st.integers(0, 3),
    st.floats(0, 1e6),
)
@example({}, {}, {}, {}, "restarting", " \n", 1, 0.0)
def test_no_status_is_too_odd(
    source: Any, one: Any, other: Any, part: Any, state: Any, failure: str | None, restarts: int, duration: float
) -> None:
    handle = idle_handle()
    run(handle, in_0=source, totals_0=one, totals_1=other)
    master = handle._master
    master.status, master.failure, master.restarts = state, failure, restarts
    checkpoint(handle, duration=duration, **part)
    found = said(handle)
    assert found
    assert found == sorted(found, key=lambda sentence: sentence.severity == "note")
    assert all(sentence.text and "None" not in sentence.text for sentence in found)
    bare = {
        **WatchedJob("orders", handle, None).status(),
        "subtasks": {},
        "vertices": {},
        "event_time": [],
        "gates": [],
    }
    assert diagnose(bare, None, None, time.time())
