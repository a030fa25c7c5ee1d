"""The batch that a record loop is working on."""

from __future__ import annotations

from typing import Any

from captures import channel, data

from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress


def test_between_steps_that_are_chained_now_records_are_older_than_the_watermark_in_front() -> None:
    record, domain = RecordInProgress(), TimeDomain("front")
    context = Context(record, 0, 1)
    domain.contexts.append(context)
    domain.watermark = context.watermark = 100
    batch = BatchInProgress(record, Mailbox(), None)
    seen: list[Any] = []

    def push(value: Any) -> None:
        seen.append((value, context.watermark))

    batch.take(data(["a"], timestamp=50), channel(0, 0), False, push, inside=domain)
    batch.process()
    batch.take(data(["b"], timestamp=150), channel(0, 0), False, push)
    batch.process()
    assert seen == [("a", None), ("b", 100)]
    assert context.watermark == 100
