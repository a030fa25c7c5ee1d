"""One transactional producer: what is in Kafka at each step of a transaction, and when it isn't used again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka_sink_helpers import Job

from pipeline.testing.kafka import KafkaBroker
from sinks import CommittableName, Lineage
from sinks.kafka import transactions
from sinks.kafka.marker import Marker
from sinks.kafka.marker_group import MarkerGroup
from sinks.kafka.rows import KafkaRows
from sinks.kafka.transactions import TransactionalProducer

pytestmark = pytest.mark.sample(1)  # quick, and what each step of a commit rests on

JobMaker = Callable[..., Job]
MARKER = Marker(Lineage("L1"), 3, CommittableName(3, 0), "me")


class Committing:
    """A producer, a topic and a marker's group."""

    def __init__(self, kafka: KafkaBroker, job: Job) -> None:
        self.kafka = kafka
        self.topic = job.topic
        self.group = MarkerGroup(job.servers, {}, job.group, job.topic)
        self.producer = TransactionalProducer(job.servers, {}, job.group, "out", 1_000_000)
        self.producer.init()
        self.steps: list[tuple[str, int]] = []
        """Each step with how many records were in the topic by then, committed or not."""

    def rows(self, *values: bytes) -> KafkaRows:
        return KafkaRows(self.topic, None, list(values))

    def transact(self, *pieces: KafkaRows, marker: Marker = MARKER, **hooks: Callable[[], None]) -> None:
        steps = {step: partial(self._reached, step) for step in ("mid_produce", "after_produce", "before_commit")}
        how: dict[str, Any] = {**steps, **hooks}
        self.producer.transact(pieces, self.group.offset(marker), self.group.metadata, **how)

    def _reached(self, step: str) -> None:
        self.steps.append((step, self.kafka.end_offsets(self.topic, "read_uncommitted")[0]))

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.kafka.consume(self.topic)]

    def nothing_open(self) -> bool:
        ends = [self.kafka.end_offsets(self.topic, level) for level in ("read_committed", "read_uncommitted")]
        return ends[0] == ends[1]


@pytest.fixture
def one(kafka: KafkaBroker, make_job: JobMaker) -> Iterator[Committing]:
    made = Committing(kafka, make_job())
    with closing(made.group):
        yield made
        made.producer.discard(abort=True)


def test_rows_and_marker_are_committed_together(one: Committing) -> None:
    one.transact(one.rows(b"1", b"2", b"3"), one.rows(b"4"))
    assert one.values() == [b"1", b"2", b"3", b"4"]
    assert one.group.read() == MARKER
    assert not one.producer.in_transaction
    assert one.producer.healthy()


def test_a_transaction_without_rows_moves_the_marker_alone(one: Committing) -> None:
    one.transact()
    assert one.steps == [("after_produce", 0), ("before_commit", 0)]
    assert one.group.read() == MARKER
    assert one.values() == []


def test_rows_are_acknowledged_before_the_marker_is_sent_and_before_the_commit(one: Committing) -> None:
    one.transact(one.rows(b"1", b"2", b"3", b"4"), one.rows(b"5", b"6"))
    (middle, part), *rest = one.steps
    assert middle == "mid_produce"
    assert part <= 2
    assert rest == [("after_produce", 6), ("before_commit", 6)]
    assert one.values() == [b"%d" % i for i in range(1, 7)]


def test_what_is_kept_from_being_committed_is_open_until_it_is_discarded(one: Committing) -> None:
    def stop() -> None:
        raise KeyError("the job is somebody else's")

    with pytest.raises(KeyError):
        one.transact(one.rows(b"1"), before_commit=stop)
    assert one.producer.in_transaction
    assert not one.nothing_open()
    one.producer.discard(abort=True)
    assert one.nothing_open()
    assert one.values() == []
    assert one.group.read() is None


@pytest.mark.parametrize("step", ["after_produce", "before_commit"])
def test_a_connection_that_is_lost_meanwhile_keeps_it_from_being_committed(one: Committing, step: str) -> None:
    def lose() -> None:
        one.producer.connection.lost = "TxnCoordinator: Disconnected"

    with pytest.raises(KafkaException, match="Disconnected") as raised:
        one.transact(one.rows(b"1"), **{step: lose})
    assert raised.value.args[0].code() == KafkaError._TRANSPORT
    assert one.producer.in_transaction
    assert not one.producer.healthy()


def test_connections_that_were_lost_while_it_was_made_do_not_count(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    producer = TransactionalProducer(job.servers, {}, job.group, "out", 1_000_000)
    producer.connection.lost = "TxnCoordinator: Disconnected"
    producer.init()
    assert producer.healthy()
    producer.discard(abort=True)


def test_a_commit_that_took_long_may_have_been_sent_twice(one: Committing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_SLOW_COMMIT", -1.0)
    one.transact(one.rows(b"1"))
    assert not one.producer.healthy()
    assert one.values() == [b"1"]


def test_a_request_without_an_answer_is_told_by_the_refusal_that_is_behind_it(one: Committing) -> None:
    def unanswered() -> None:
        one.producer.connection.refused = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
        one.producer._within(1.0, fail)

    def fail(timeout: float) -> None:
        raise KafkaException(KafkaError(code, "no answer"))

    code = KafkaError._TIMED_OUT
    with pytest.raises(KafkaException, match="wrong password"):
        unanswered()
    code = KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException, match="no answer"):
        unanswered()


def test_rows_are_tried_in_a_transaction_that_nobody_sees(one: Committing) -> None:
    one.producer.probe([one.rows(b"1", b"2"), one.rows(b"3")])
    assert one.producer.in_transaction
    assert one.kafka.end_offsets(one.topic, "read_uncommitted") == {0: 3}
    one.producer.discard(abort=True)
    assert one.nothing_open()
    assert one.values() == []


def test_none_that_is_discarded_without_a_transaction_says_anything(
    one: Committing, caplog: pytest.LogCaptureFixture
) -> None:
    one.producer.discard(abort=True)
    assert "could not be aborted" not in caplog.text
