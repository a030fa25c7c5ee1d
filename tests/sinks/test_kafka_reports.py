"""What users of other systems have reported about Kafka sinks, as inputs of a committer without a job around it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from deadlines import eventually
from kafka_sink_helpers import Job

from pipeline.testing import KafkaBroker
from sinks.kafka import committer as committer_module
from sinks.kafka.errors import CommitFailed, MarkerLost, RecordRefused

JobMaker = Callable[..., Job]


def ids(kafka: KafkaBroker, topic: str) -> list[int]:
    return [record.json()["id"] for record in kafka.consume(topic)]


def test_a_topic_that_is_deleted_before_the_commit_fails_it_and_one_created_anew_asks_for_a_choice(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka deletes the offsets at a topic with it, the marker too. It must neither hang nor write a part again."""
    monkeypatch.setattr(committer_module, "RETRY_SECONDS", 1.0)
    monkeypatch.setattr("sinks.kafka.transactions._DELIVERY_TIMEOUT", 5.0)
    job = make_job(config={"topic.metadata.propagation.max.ms": 500})
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, [{"k": "a", "id": 0}]))
    state = committer.snapshot()
    second = job.write(2, [{"k": "a", "id": 1}])
    kafka.delete_topic(job.topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    eventually(lambda: job.topic not in admin.list_topics(timeout=10).topics)

    with pytest.raises((RecordRefused, CommitFailed), match=f"commit checkpoint 2|{job.topic}"):
        committer.commit(2, second)
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
