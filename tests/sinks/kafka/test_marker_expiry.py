"""Markers grow old: an idle sink writes its own again, and one that Kafka has really forgotten is an error."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka_sink_helpers import Job, records

from pipeline.testing import KafkaBroker
from sinks.kafka.errors import CommitFailed, ForeignMarker, MarkerLost
from sinks.kafka.transactions import TransactionalProducer

JobMaker = Callable[..., Job]


def ids(kafka: KafkaBroker, job: Job) -> list[int]:
    return [record.json()["id"] for record in kafka.consume(job.topic)]


def test_a_refresh_writes_the_marker_again_as_it_is(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    committer.commit(3, job.write(3, records(0, 5)))
    state, before = committer.snapshot(), job.marker()
    assert committer.refresh_interval < 24 * 3600
    job.delete_marker()
    committer.refresh()
    after = job.marker()
    assert (after.offset, after.metadata) == (before.offset, before.metadata)
    assert committer.snapshot() == state
    committer.commit(4, job.write(4, records(5, 5)))
    committer.close()
    assert ids(kafka, job) == list(range(10))


def test_a_refresh_of_unknown_outcome_is_found_out_and_nothing_is_committed_twice(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 5)))
    transact = TransactionalProducer.transact
    failures = iter([True])

    def answer_is_lost(self: TransactionalProducer, *args: object, **kwargs: object) -> None:
        transact(self, *args, **kwargs)  # type: ignore[arg-type]
        if next(failures, False):
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(TransactionalProducer, "transact", answer_is_lost)
    committer.refresh()
    committer.commit(2, job.write(2, records(5, 5)))
    committer.close()
    assert ids(kafka, job) == list(range(10))


def test_a_refresh_finds_out_that_somebody_else_writes_the_marker(make_job: JobMaker) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    other = job.committer()
    other.open([])
    other.commit(1, job.write(1, records(0, 5)))
    with pytest.raises(ForeignMarker, match="Two jobs must not use one transactional_id_prefix"):
        committer.refresh()
    committer.close()
    other.close()


@pytest.mark.matrix
def test_a_marker_that_kafka_has_forgotten_is_an_error_with_a_choice_and_a_refreshed_one_is_kept(
    tmp_path: Path,
) -> None:
    with KafkaBroker.start(
        kind="native", offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000
    ) as broker:
        jobs = {}
        for name in ("refreshed", "down"):
            broker.create_topic(name)
            folder = tmp_path / name
            folder.mkdir()
            jobs[name] = Job(broker.bootstrap_servers, name, name, folder)
        refreshed, down = jobs["refreshed"], jobs["down"]
        committer = refreshed.committer()
        committer.open([])
        committer.commit(1, refreshed.write(1, records(0, 5)))

        stopped = down.committer()
        stopped.open([])
        stopped.commit(1, down.write(1, records(0, 5)))
        state, second = stopped.snapshot(), down.write(2, records(5, 5))
        stopped.close()

        deadline = time.monotonic() + 100
        while down.marker().offset >= 0:
            assert time.monotonic() < deadline
            committer.refresh()
            time.sleep(2.0)  # between two looks
        assert refreshed.marker().offset == 1
        committer.commit(2, refreshed.write(2, records(5, 5)))
        committer.close()
        assert ids(broker, refreshed) == list(range(10))

        with pytest.raises(MarkerLost, match=r"no committed offset.*offsets.retention.minutes.*\"replay\".*\"skip\""):
            down.restore(2, state, second)
        assert ids(broker, down) == list(range(5))
        assert replace(down, options={"on_marker_lost": "replay"}).restore(2, state, second) == second
        assert ids(broker, down) == list(range(10))
        down.delete_marker()
        assert replace(down, options={"on_marker_lost": "skip"}).restore(2, state, second) == []
        assert ids(broker, down) == list(range(10))


def test_a_refresh_without_brokers_ends_like_a_commit(make_job: JobMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job()
    job.options = {**job.options, "outage_timeout": 0.1}
    committer = job.committer()
    committer.open([])

    def refused(self: TransactionalProducer, *args: object, **kwargs: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(TransactionalProducer, "transact", refused)
    with pytest.raises(CommitFailed, match=r"could not refresh the marker of writer 0: .*Check that the brokers"):
        committer.refresh()
    committer.close()
