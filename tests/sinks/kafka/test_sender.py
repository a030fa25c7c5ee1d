"""Handing rows to a client: what may be on its way, what is refused, and whom a stall is told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.testing.kafka import KafkaBroker
from sinks.kafka.errors import RecordRefused
from sinks.kafka.rows import KafkaRows
from sinks.kafka.sender import OnTheWay, Sender

NOBODY = "127.0.0.1:1"
EACH = 32
"""What each row counts beside its content."""


class Stalled(Exception):
    pass


def sender(servers: str = NOBODY, limit: int = 1_000, told: Any = None, **config: Any) -> Sender:
    """One that raises `Stalled` when it is asked what is wrong, or tells `told`."""

    def on_stall(topics: Collection[str]) -> None:
        if told is None:
            raise Stalled(*sorted(topics))
        told.append(sorted(topics))

    settings = {"bootstrap.servers": servers, "delivery.report.only.error": True, "log_level": 0, **config}
    return Sender("out", settings, limit, on_stall)


def queued(one: Sender) -> int:
    """How many rows. The client also counts what it has to tell of brokers that are away, until it has told it."""
    looks = []
    for _ in range(5):
        one.producer.poll(0)
        looks.append(len(one.producer))
    return min(looks)


def rows(*values: bytes, topic: str = "t", **columns: Any) -> KafkaRows:
    return KafkaRows(topic, None, list(values), **columns)


def sized(size: int, topic: str = "t") -> KafkaRows:
    return rows(b"x" * (size - EACH), topic=topic)


@pytest.mark.parametrize("columns", [{}, {"timestamps": [None]}])
def test_what_is_not_delivered_is_bounded(columns: dict[str, Any]) -> None:
    one = sender(limit=1_000)
    for size in (600, 400):
        one.send(rows(b"x" * (size - EACH), **columns))
    assert queued(one) == 2
    with pytest.raises(Stalled):
        one.send(rows(b"", **columns))
    assert queued(one) == 2


def test_what_is_delivered_makes_room_though_more_is_on_its_way() -> None:
    there = OnTheWay()
    for rows_, size in ((2, 600), (0, 0), (3, 400)):
        there.add(rows_, size)
    assert [there.left(delivered) for delivered in (-1, 0, 1, 2, 4)] == [1_000, 1_000, 1_000, 400, 400]
    there.add(1, 50)
    assert [there.left(delivered) for delivered in (4, 5, 6)] == [450, 50, 0]


@pytest.mark.sample(1)
def test_all_that_is_sent_is_delivered_though_little_may_be_on_its_way(
    kafka: KafkaBroker, make_topic: Callable[..., str]
) -> None:
    one, topic = sender(kafka.bootstrap_servers, 5 * sized(50).size, [], **{"linger.ms": 0}), make_topic("little")
    most = 0
    for number in range(200):
        one.send(rows(b"%018d" % number, topic=topic))
        most = max(most, queued(one))
    one.flush(60.0)
    assert most <= 5
    assert [int(record.value or b"") for record in kafka.consume(topic)] == list(range(200))


def test_a_record_above_the_bound_goes_once_nothing_else_is_on_its_way() -> None:
    one = sender(limit=100)
    one.send(sized(101))
    assert queued(one) == 1
    with pytest.raises(Stalled):
        one.send(sized(50))


def test_what_is_delivered_is_what_is_sent_and_no_longer_queued() -> None:
    one = sender(limit=10_000)
    one.send(rows(b"1", b"2"))
    one.send(rows(b"3", timestamps=[5]))
    assert one.delivered == 0
    one.producer.purge(blocking=False)
    one.poll(0)  # nobody is to blame for what was purged
    assert one.delivered == 3


def test_a_stall_is_told_with_the_topics_of_what_is_on_its_way() -> None:
    one = sender(limit=10_000)
    one.send(sized(50, "a"))
    one.send(KafkaRows(None, ["b", "c"], [b"1", b"2"]))
    with pytest.raises(Stalled) as raised:
        one.flush(60.0)
    assert raised.value.args == ("a", "b", "c")


def test_a_flush_that_takes_too_long_says_how_many_are_left() -> None:
    one = sender(limit=10_000)
    one.send(rows(b"1", b"2"))
    with pytest.raises(KafkaException, match="2 records not delivered in 0 s") as raised:
        one.flush(0.1)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT


@pytest.mark.parametrize("columns", [{}, {"headers": [[("h", b"1")]] * 3}])
def test_a_full_queue_is_waited_for(columns: dict[str, Any]) -> None:
    one = sender(limit=10_000, **{"queue.buffering.max.messages": 2})
    with pytest.raises(Stalled):
        one.send(rows(b"1", b"2", b"3", **columns))
    assert queued(one) == 2


@pytest.mark.sample(1)
def test_topics_of_what_is_delivered_are_not_asked_about(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    told: list[list[str]] = []
    one = sender(kafka.bootstrap_servers, 10_000, told, **{"linger.ms": 60_000})
    before, after = make_topic("before"), make_topic("after")
    one.send(rows(b"1", topic=before))
    one.flush(60.0)
    one.send(rows(b"2", topic=after))
    while not told:
        one.send(rows(topic=after))
    assert told == [[after]]
    one.flush(60.0)
    assert [record.value for record in kafka.consume(after)] == [b"2"]


@pytest.mark.sample(1)
def test_keys_and_values_of_many_rows_stay_together(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    one, topic = sender(kafka.bootstrap_servers, 1_000_000, []), make_topic("many")
    numbers = [b"%d" % i for i in range(2_500)]
    one.send(rows(*numbers, topic=topic, keys=[b"k" + each for each in numbers]))
    one.flush(60.0)
    assert [(record.key, record.value) for record in kafka.consume(topic)] == [(b"k" + each, each) for each in numbers]


# -- which of several errors is told ----------------------------------------------------------------------------------


class Undelivered:
    """A record as the client reports it."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value


OTHER, REFUSED, PURGED = KafkaError._MSG_TIMED_OUT, KafkaError.INVALID_RECORD, KafkaError._PURGE_QUEUE


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ([None, PURGED], None),
        ([OTHER], OTHER),
        ([OTHER, KafkaError._TRANSPORT], OTHER),
        ([OTHER, REFUSED], REFUSED),
        ([REFUSED, OTHER], REFUSED),
        ([REFUSED, KafkaError.MSG_SIZE_TOO_LARGE], REFUSED),
        ([PURGED, REFUSED, KafkaError._INVALID_DIFFERENT_RECORD], REFUSED),
    ],
)
def test_a_record_that_is_refused_matters_more_than_others_that_fail_and_the_first_most(
    codes: list[int | None], told: int | None
) -> None:
    one = sender()
    for number, code in enumerate(codes):
        error = None if code is None else KafkaError(code, f"error {number}")
        one.deliveries.report(error, Undelivered(b"%d" % number))  # type: ignore[arg-type]
    if told is None:
        one.check()
        return
    with pytest.raises(RecordRefused if told == REFUSED else KafkaException) as raised:
        one.check()
    if isinstance(raised.value, RecordRefused):
        assert raised.value.record is not None
        assert raised.value.record.value == b"%d" % codes.index(told)
        assert "INVALID_RECORD" in str(raised.value)
    else:
        assert raised.value.args[0].code() == told
