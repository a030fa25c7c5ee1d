"""A commit that Kafka has acknowledged and never carries out, since a broker was away at that moment: the records and
the marker stay open for good, and no transaction is known to which they belong."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forgetful_brokers import ForgetfulBrokers
from kafka_sink_helpers import FolderStaging, Job, commit_in_process, records

from checkpoint.committables import Committable
from pipeline.testing.kafka import KafkaBroker
from sinks.kafka import marker_group
from sinks.kafka.errors import MarkerLost
from sinks.kafka.hanging import held_up_partitions
from sinks.kafka.marker import Marker
from sinks.kafka.marker_group import HangingTransaction, MarkerGroup
from sinks.kafka.staged_rows import read_rows
from sinks.kafka.transactions import TransactionalProducer

PATIENCE = 1.0
"""Seconds after which a marker hangs that was not committed."""


@dataclass
class Forgotten:
    """A job of which an epoch hangs."""

    job: Job
    state: Any
    """What its checkpoint has of the committer."""
    epoch: list[Committable]


@pytest.fixture(scope="module")
def careless() -> Iterator[ForgetfulBrokers]:
    with ForgetfulBrokers.start() as brokers:
        yield brokers


MakeForgotten = Callable[..., Forgotten]


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_group, "_LOOK_TIMEOUT", PATIENCE)


@pytest.fixture
def forgotten(careless: ForgetfulBrokers, unique_name: Callable[[str], str], tmp_path: Path) -> MakeForgotten:
    """`forgotten(count, **options)`: an epoch of so many records that hangs."""

    def make(count: int, **options: Any) -> Forgotten:
        folder = tmp_path / "staging"
        folder.mkdir()
        topic = unique_name("out")
        careless.create_topic(topic, 3)
        job = Job(careless.bootstrap_servers, topic, unique_name("job"), folder, options=options)
        state, epoch = first_epoch(job), job.write(2, records(100, count))
        marker = Marker.from_wire(state[1:])
        last = epoch[-1].name if epoch else marker.last
        commit_in_vain(careless, job, replace(marker, checkpoint=2, last=last), epoch)
        assert hangs(job)
        return Forgotten(job, state, epoch)

    return make


def first_epoch(job: Job) -> Any:
    """Commit it; what a checkpoint has of the committer then."""
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 100)))
    committer.close()
    return committer.snapshot()


def commit_in_vain(brokers: ForgetfulBrokers, job: Job, marker: Marker, epoch: list[Committable]) -> None:
    """As the committer does, but for looking whether it is committed."""
    group = MarkerGroup(job.servers, {}, job.group, job.topic)
    producer = TransactionalProducer(job.servers, {}, job.group, "out", 1 << 20)
    producer.init()
    rows = [rows for segment in epoch for rows in read_rows(segment, FolderStaging(job.folder))]
    nothing = dict.fromkeys(("mid_produce", "after_produce"), lambda: None)
    with ExitStack() as stack:
        leave = partial(stack.enter_context, brokers.leader_away())
        producer.transact(rows, group.offset(marker), group.metadata, **nothing, before_commit=leave)
    producer.discard(abort=False)
    group.close()


def hangs(job: Job) -> bool:
    with closing(MarkerGroup(job.servers, {}, job.group, job.topic)) as group:
        try:
            group.read(PATIENCE)
        except HangingTransaction:
            return True
        return False


def output(broker: KafkaBroker, job: Job) -> list[int]:
    assert held_up_partitions(job.servers, {}, [job.topic]) == []
    return sorted(record.json()["id"] for record in broker.consume(job.topic))


@pytest.mark.sample(1 / 4)
def test_an_epoch_without_records_that_hangs_is_committed_again(
    careless: ForgetfulBrokers, forgotten: MakeForgotten
) -> None:
    lost = forgotten(0)
    job = lost.job
    assert job.restore(2, lost.state, []) == []
    assert output(careless, job) == list(range(100))
    assert not hangs(job)


@pytest.mark.matrix
def test_one_with_records_ends_the_job_with_what_can_be_done_and_changes_nothing(forgotten: MakeForgotten) -> None:
    lost = forgotten(100)
    for _ in range(2):
        with pytest.raises(MarkerLost, match=r"hangs.*Kafka 4\.3 and 4\.4.*\"replay\".*\"skip\""):
            lost.job.restore(2, lost.state, lost.epoch)
    assert hangs(lost.job)


@pytest.mark.matrix
def test_with_replay_nothing_is_lost_and_readers_go_on(careless: ForgetfulBrokers, forgotten: MakeForgotten) -> None:
    lost = forgotten(100, on_marker_lost="replay")
    assert lost.job.restore(2, lost.state, lost.epoch) == lost.epoch
    assert set(output(careless, lost.job)) == set(range(200))
    assert lost.job.marker().offset == 2


@pytest.mark.matrix
def test_with_skip_nothing_is_doubled_and_readers_go_on(careless: ForgetfulBrokers, forgotten: MakeForgotten) -> None:
    lost = forgotten(100, on_marker_lost="skip")
    assert lost.job.restore(2, lost.state, lost.epoch) == []
    found = output(careless, lost.job)
    assert found[:100] == list(range(100))
    assert len(found) == len(set(found))
    assert lost.job.marker().offset == 2


@pytest.mark.matrix
@pytest.mark.parametrize("step", ["committer.before_hanging", "committer.after_hanging"])
def test_a_crash_while_it_is_cleared_away_changes_nothing(
    careless: ForgetfulBrokers, forgotten: MakeForgotten, step: str
) -> None:
    lost = forgotten(0)
    job = lost.job
    job.restored_checkpoint, job.restored_state = 2, lost.state
    code, _ = commit_in_process(job, [], [], step)
    assert code == -signal.SIGKILL
    assert job.restore(2, lost.state, []) == []
    assert output(careless, job) == list(range(100))


@pytest.mark.sample(1 / 4)
def test_a_running_committer_tells_nobody_of_a_commit_that_is_forgotten(
    careless: ForgetfulBrokers, unique_name: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique_name("out")
    careless.create_topic(topic, 3)
    job = Job(careless.bootstrap_servers, topic, unique_name("job"), tmp_path)
    job.restored_state, job.restored_checkpoint = first_epoch(job), 1
    committer = job.committer()
    committer.open([])
    epoch = job.write(2, records(100, 100))
    transact = TransactionalProducer.transact

    def transact_in_vain(
        self: TransactionalProducer, *args: Any, before_commit: Callable[[], None], **hooks: Any
    ) -> None:
        with ExitStack() as stack:

            def leave() -> None:
                before_commit()
                stack.enter_context(careless.leader_away())

            transact(self, *args, before_commit=leave, **hooks)

    monkeypatch.setattr(TransactionalProducer, "transact", transact_in_vain)
    with pytest.raises(MarkerLost):
        committer.commit(2, epoch)
    assert Marker.from_wire(committer.snapshot()[1:]).checkpoint == 1
    committer.close()
