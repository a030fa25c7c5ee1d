"""A committer's transactional producers: which one is used, and when another takes its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_sink_helpers import Job, NoMetrics

from checkpoint.storage.fencing import Fenced
from pipeline.testing.kafka import KafkaBroker
from sinks import CommitterContext, Lineage
from sinks.kafka.committer_options import CommitterOptions
from sinks.kafka.producers import Producers
from sinks.kafka.rows import KafkaRows

pytestmark = pytest.mark.sample(1)  # quick, and what each step of a commit rests on

JobMaker = Callable[..., Job]


class Owner:
    """Who asks whether the job is still theirs is let in so many times."""

    def __init__(self) -> None:
        self.asked = 0
        self.last = 1_000

    def check(self) -> None:
        self.asked += 1
        if self.asked > self.last:
            raise Fenced("a newer driver owns the job")


def producers(job: Job, owner: Owner) -> Producers:
    options = CommitterOptions(job.servers, {}, job.group, job.topic, job.topic, 1_000, "fail", None)
    ctx: Any = CommitterContext(
        job.pipeline, "out", 0, Lineage("L1"), 0, None, False, False, None, NoMetrics(), owner.check  # type: ignore[arg-type]
    )  # fmt: skip
    return Producers(options, ctx)


def test_one_is_used_until_its_batches_are_too_large_or_it_is_discarded(make_job: JobMaker) -> None:
    one = producers(make_job(), Owner())
    assert one.usable(1_000) is None
    made = one.new(1_000)
    assert one.usable(1_000) is one.usable(5_000) is made
    assert one.usable(999) is None
    one.discard(abort=True)
    assert one.usable(1_000) is None
    one.discard(abort=True)


def test_batches_do_not_grow_with_a_new_producer_and_do_after_trouble(make_job: JobMaker) -> None:
    one = producers(make_job(), Owner())
    assert one.new(1_000).message_limit == 1_000
    assert one.new(5_000).message_limit == 1_000
    assert one.new(500).message_limit == 500
    one.discard(abort=True)
    assert one.new(5_000).message_limit == 5_000
    one.discard(abort=True)


def test_a_new_one_ends_what_the_one_before_left_open(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    one = producers(job, Owner())
    one.new(1_000).probe([KafkaRows(job.topic, None, [b"x"])])
    assert kafka.end_offsets(job.topic, "read_committed") == {0: 0}
    after = one.new(1_000)
    assert one.usable(1_000) is after
    assert kafka.end_offsets(job.topic, "read_committed") == kafka.end_offsets(job.topic, "read_uncommitted")
    one.discard(abort=True)


@pytest.mark.parametrize("abort", [True, False])
def test_an_open_transaction_is_ended_at_once_only_if_no_successor_comes(
    kafka: KafkaBroker, make_job: JobMaker, abort: bool
) -> None:
    job = make_job()
    one = producers(job, Owner())
    one.new(1_000).probe([KafkaRows(job.topic, None, [b"x"])])
    one.discard(abort)
    ended = kafka.end_offsets(job.topic, "read_committed") == kafka.end_offsets(job.topic, "read_uncommitted")
    assert ended == abort
    one.new(1_000)  # ends it
    one.discard(abort=True)


def test_whose_job_it_is_is_asked_before_anybody_is_fenced_and_afterwards(
    make_job: JobMaker, caplog: pytest.LogCaptureFixture
) -> None:
    job, owner = make_job(), Owner()
    rival = producers(job, Owner())
    rival.new(1_000).probe([KafkaRows(job.topic, None, [b"x"])])
    owner.last = 0
    with pytest.raises(Fenced):
        producers(job, owner).new(1_000)
    rival.discard(abort=True)
    assert "could not be aborted" not in caplog.text  # nobody has fenced it
    owner.asked, owner.last = 0, 1
    with pytest.raises(Fenced):
        producers(job, owner).new(1_000)
    assert owner.asked == 2
