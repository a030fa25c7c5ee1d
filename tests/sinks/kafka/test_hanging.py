"""A broker that crashes right after it has acknowledged a commit, and never carries it out: the records and the marker
stay open for good, and no transaction is known to which they belong."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kafka_sink_helpers import FolderStaging, Job, commit_in_process, records

from checkpoint.committables import Committable
from pipeline.broker import NativeBroker
from pipeline.testing.kafka import KafkaBroker
from sinks.kafka.errors import MarkerLost
from sinks.kafka.hanging import held_up_partitions
from sinks.kafka.marker import Marker
from sinks.kafka.marker_group import HangingTransaction, MarkerGroup
from sinks.kafka.staged_rows import read_rows
from sinks.kafka.transactions import TransactionalProducer

pytestmark = pytest.mark.timeout(300)

TRIES = 12
"""About every second crash leaves a transaction that hangs."""


@dataclass
class Forgotten:
    """A job of which an epoch hangs."""

    job: Job
    state: Any
    """What its checkpoint has of the committer."""
    epoch: list[Committable]


@pytest.fixture(scope="module")
def careless() -> Iterator[KafkaBroker]:
    """One of a version that forgets."""
    with NativeBroker.start(version="4.4.0") as native:
        yield KafkaBroker("native", native)


MakeForgotten = Callable[..., Forgotten]


@pytest.fixture
def forgotten(careless: KafkaBroker, unique_name: Callable[[str], str], tmp_path: Path) -> MakeForgotten:
    """`forgotten(count, **options)`: an epoch of so many records that hangs."""

    def make(count: int, **options: Any) -> Forgotten:
        for number in range(TRIES):
            folder = tmp_path / str(number)
            folder.mkdir()
            topic = unique_name("out")
            careless.create_topic(topic, 3)
            job = Job(careless.bootstrap_servers, topic, unique_name("job"), folder, options=options)
            state, epoch = first_epoch(job), job.write(2, records(100, count))
            marker = Marker.from_wire(state[1:])
            last = epoch[-1].name if epoch else marker.last
            commit_and_crash(careless, job, replace(marker, checkpoint=2, last=last), epoch)
            if hangs(job):
                return Forgotten(job, state, epoch)
        raise AssertionError(f"the broker has carried out each of {TRIES} commits that it acknowledged before a crash")

    return make


def first_epoch(job: Job) -> Any:
    """Commit it; what a checkpoint has of the committer then."""
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 100)))
    committer.close()
    return committer.snapshot()


def commit_and_crash(broker: KafkaBroker, job: Job, marker: Marker, epoch: list[Committable]) -> None:
    """As the committer does, but for looking whether it is committed."""
    group = MarkerGroup(job.servers, {}, job.group, job.topic)
    producer = TransactionalProducer(job.servers, {}, job.group, "out", 1 << 20)
    producer.init()
    rows = [rows for segment in epoch for rows in read_rows(segment, FolderStaging(job.folder))]
    nothing = dict.fromkeys(("mid_produce", "after_produce", "before_commit"), lambda: None)
    metadata = group.metadata
    producer.transact(rows, group.offset(marker), metadata, **nothing)
    broker.kill()
    broker.restart()
    producer.discard(abort=False)
    group.close()


def hangs(job: Job) -> bool:
    with closing(MarkerGroup(job.servers, {}, job.group, job.topic)) as group:
        try:
            group.read()
        except HangingTransaction:
            return True
        return False


def output(broker: KafkaBroker, job: Job) -> list[int]:
    assert held_up_partitions(job.servers, {}, [job.topic]) == []
    return sorted(record.json()["id"] for record in broker.consume(job.topic))


@pytest.mark.sample(1 / 2)
def test_an_epoch_without_records_that_hangs_is_committed_again(
    careless: KafkaBroker, forgotten: MakeForgotten
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
def test_with_replay_nothing_is_lost_and_readers_go_on(careless: KafkaBroker, forgotten: MakeForgotten) -> None:
    lost = forgotten(100, on_marker_lost="replay")
    assert lost.job.restore(2, lost.state, lost.epoch) == lost.epoch
    assert set(output(careless, lost.job)) == set(range(200))
    assert lost.job.marker().offset == 2


@pytest.mark.matrix
def test_with_skip_nothing_is_doubled_and_readers_go_on(careless: KafkaBroker, forgotten: MakeForgotten) -> None:
    lost = forgotten(100, on_marker_lost="skip")
    assert lost.job.restore(2, lost.state, lost.epoch) == []
    found = output(careless, lost.job)
    assert found[:100] == list(range(100))
    assert len(found) == len(set(found))
    assert lost.job.marker().offset == 2


@pytest.mark.matrix
@pytest.mark.parametrize("step", ["committer.before_hanging", "committer.after_hanging"])
def test_a_crash_while_it_is_cleared_away_changes_nothing(
    careless: KafkaBroker, forgotten: MakeForgotten, step: str
) -> None:
    lost = forgotten(0)
    job = lost.job
    job.restored_checkpoint, job.restored_state = 2, lost.state
    code, _ = commit_in_process(job, [], [], step)
    assert code == -signal.SIGKILL
    assert job.restore(2, lost.state, []) == []
    assert output(careless, job) == list(range(100))


@pytest.mark.sample(1 / 2)
def test_a_running_committer_tells_nobody_of_a_commit_that_is_forgotten(
    careless: KafkaBroker, unique_name: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact, crashes = TransactionalProducer.transact, [False]

    def transact_and_crash(self: TransactionalProducer, *args: Any, **hooks: Any) -> None:
        transact(self, *args, **hooks)
        if crashes.pop():
            careless.kill()
            careless.restart()
        crashes.append(False)

    monkeypatch.setattr(TransactionalProducer, "transact", transact_and_crash)
    for _ in range(TRIES):
        topic = unique_name("out")
        careless.create_topic(topic, 3)
        job = Job(careless.bootstrap_servers, topic, unique_name("job"), tmp_path)
        job.restored_state, job.restored_checkpoint = first_epoch(job), 1
        committer = job.committer()
        committer.open([])
        epoch = job.write(2, records(100, 100))
        crashes[:] = [True]
        try:
            committer.commit(2, epoch)
        except MarkerLost:
            assert Marker.from_wire(committer.snapshot()[1:]).checkpoint == 1
            return
        finally:
            committer.close()
        assert output(careless, job) == list(range(200))
    raise AssertionError(f"the broker has carried out each of {TRIES} commits that it acknowledged before a crash")
