"""What users of other systems have reported about Kafka sinks, as inputs of a committer without a job around it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from deadlines import eventually
from kafka_sink_helpers import Job, batch

from pipeline.testing import KafkaBroker
from sinks.kafka.errors import MarkerLost, RecordRefused, TopicRefused

JobMaker = Callable[..., Job]


def ids(kafka: KafkaBroker, topic: str) -> list[int]:
    return [record.json()["id"] for record in kafka.consume(topic)]


def test_a_topic_that_is_deleted_before_the_commit_fails_it_and_one_created_anew_asks_for_a_choice(
    kafka: KafkaBroker, make_job: JobMaker
) -> None:
    """Kafka deletes the offsets at a topic with it, the marker too. It must neither hang nor write a part again."""
    job = make_job()
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, [{"k": "a", "id": 0}]))
    state = committer.snapshot()
    second = job.write(2, [{"k": "a", "id": 1}])
    _delete(kafka, job.topic)
    started = time.monotonic()
    with pytest.raises((TopicRefused, RecordRefused), match=job.topic):
        committer.commit(2, second)
    assert time.monotonic() - started < 50  # of the minute that a delivery is waited for
    committer.close()
    kafka.create_topic(job.topic)
    with pytest.raises(MarkerLost, match="on_marker_lost"):
        job.restore(2, state, second)
    job.options["on_marker_lost"] = "replay"
    job.restore(2, state, second)
    assert ids(kafka, job.topic) == [1]


def test_records_without_key_are_spread_and_a_key_is_null_where_its_value_is(
    kafka: KafkaBroker, make_job: JobMaker
) -> None:
    """pulsarIO/jetstream#23 and others: a null key fails, or becomes the text "null" or "None"."""
    job = make_job(partitions=2)
    values = [{"k": None, "id": id} for id in range(200)] + [{"k": "", "id": id} for id in range(200, 203)]
    job.restore(0, None, [])
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, values))
    committer.close()
    found = kafka.consume(job.topic)
    assert sorted(record.json()["id"] for record in found) == list(range(203))
    assert {record.key for record in found if record.json()["id"] < 200} == {None}
    assert [record.key for record in found if record.json()["id"] >= 200] == [b""] * 3


def test_names_that_the_client_does_not_take_are_refused_and_do_not_end_in_retries(make_job: JobMaker) -> None:
    job = make_job()
    job.pipeline = "bestellungen-für-köln-注文"
    with pytest.raises(ValueError, match="printable ASCII"):
        job.committer()
    job.options["transactional_id_prefix"] = job.pipeline
    with pytest.raises(ValueError, match="printable ASCII"):
        _ = job.sink


def test_ids_and_groups_may_be_long_and_keys_of_any_letters(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(transactional_id_prefix=f"{'n' * 1000}-{make_job().topic}")
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, [{"k": "ключ", "id": 0}]))
    state = committer.snapshot()
    committer.close()
    job.restore(2, state, job.write(2, [{"k": "ключ", "id": 1}]))
    assert ids(kafka, job.topic) == [0, 1]
    assert {record.key for record in kafka.consume(job.topic)} == {"ключ".encode()}


@pytest.mark.parametrize("new_producer", [False, True])
def test_a_topic_deleted_before_a_commit_is_named_within_seconds(
    kafka: KafkaBroker, make_job: JobMaker, make_topic: Callable[..., str], new_producer: bool
) -> None:
    other = make_topic("other")
    job = make_job(marker_topic=other)
    committer = job.committer()
    committer.open([])
    if not new_producer:
        committer.commit(1, job.write(1, [{"k": "a", "id": 0}]))
    epoch = job.write(2, [{"k": "a", "id": 1}])
    _delete(kafka, job.topic)
    started = time.monotonic()
    with pytest.raises(TopicRefused, match=f"sink 'out': topic '{job.topic}' doesn't exist .* Create it again"):
        committer.commit(2, epoch)
    assert time.monotonic() - started < 50
    committer.close()
    kafka.create_topic(job.topic)
    job.restore(2, committer.snapshot(), epoch)
    assert ids(kafka, job.topic) == [1]


def test_a_topic_deleted_under_an_at_least_once_sink_is_named_within_seconds(
    kafka: KafkaBroker, make_job: JobMaker
) -> None:
    job = make_job(delivery="at_least_once")
    writer = job.writer()
    _delete(kafka, job.topic)
    writer.write_batch(batch([{"k": "a", "id": 1}]))
    with pytest.raises(TopicRefused, match=f"topic '{job.topic}' doesn't exist"):
        writer.prepare_commit(1)
    writer.close()


def _delete(kafka: KafkaBroker, topic: str) -> None:
    kafka.delete_topic(topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)
