"""The words are those that the parts of a job say themselves."""

from __future__ import annotations

import inspect

import pytest

from pipeline.http.wait_kinds import KINDS, kind_of_wait
from pipeline.runtime.driver import attempt, slots
from pipeline.runtime.subtask import async_task
from pipeline.runtime.subtask.event_time import report
from pipeline.runtime.subtask.steps import pacing
from sinks.kafka import sink
from sources.kafka import client_health


@pytest.mark.parametrize(
    ("what", "kind", "said_by", "words"),
    [
        ("the Kafka brokers at b:9092 to read from (source 'in')", "brokers", client_health, "the Kafka brokers at "),
        ("the Kafka brokers at b:9092 to write to (sink 'out')", "brokers", sink, "the Kafka brokers at "),
        ("slots: it needs 4, and Spark at local[2] has 2", "slots", slots, 'f"slots: it needs '),
        ("2 of 4 processes, which Spark has not brought up", "processes", attempt, "processes, which Spark has not"),
        ("totals[1], which is in open() of 'totals'", "subtask", attempt, "}, which {"),
        ("records of split 3, which hold the watermark of 'at' back", "event_time", report, "hold the watermark of"),
        ("a first record of split 3, without which 'at' makes no watermark", "event_time", report, "no watermark"),
        ("records with later timestamps, for the timers of 'x'", "event_time", report, "records with later timestamps"),
        ("the clock to reach the watermark of 'at', which is ahead", "event_time", report, "the clock to reach the"),
        ("timestamps in milliseconds for 'at': its", "event_time", report, "timestamps in milliseconds for"),
        ("answers to the requests of step 'ask'", "requests", async_task, "answers to the requests of step"),
        ("the rate of 5 records/s that limit_rate 'slow' allows", "rate", pacing, 'f"the rate of '),
        ("", "other", None, ""),
    ],
)
def test_what_is_waited_for_is_told_by_its_words(what: str, kind: str, said_by: object, words: str) -> None:
    assert kind_of_wait(what) == kind
    assert kind in KINDS
    if said_by is not None:
        assert words in inspect.getsource(said_by)  # type: ignore[arg-type]
