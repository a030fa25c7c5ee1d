"""Exactly once into a real broker: crashes at each step, lost markers, rewinds, rivals, trouble.

Read with read_committed, as a user would, and compared with all that should be there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka_sink_helpers import Job, commit_in_process, name, records

from checkpoint import failpoints
from checkpoint.storage.fencing import Fenced
from pipeline.testing.kafka import KafkaBroker
from sinks import Lineage
from sinks.kafka.errors import (
    CommitFailed,
    EarlierOutput,
    ForeignMarker,
    MarkerLost,
    OutputAhead,
    RecordRefused,
)
from sinks.kafka.transactions import TransactionalProducer

JobMaker = Callable[..., Job]


def output(kafka: KafkaBroker, job: Job) -> list[int]:
    """Ids in the order of each partition, which with one partition is the order they were written in; also sees that no
    transaction is left open."""
    assert kafka.end_offsets(job.topic, "read_committed") == kafka.end_offsets(job.topic, "read_uncommitted")
    return [record.json()["id"] for record in kafka.consume(job.topic)]


def run(job: Job, epochs: dict[int, Sequence[dict[str, Any]]]) -> Any:
    """A run from the start that commits these epochs; what the next checkpoint would record."""
    committer = job.committer()
    committer.open([])
    for epoch, values in epochs.items():
        committer.commit(epoch, job.write(epoch, values))
    committer.close()
    return committer.snapshot()


# -- the ordinary way ----------------------------------------------------------------------------------------


def test_epochs_come_out_in_order_with_their_keys(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    run(job, {1: records(0, 5_000), 2: records(5_000, 10)})
    found = kafka.consume(job.topic)
    assert [r.json() for r in found] == records(0, 5_010)
    assert [r.key for r in found] == [r["k"].encode() for r in records(0, 5_010)]


def test_headers_partitions_timestamps_and_tombstones_come_out(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(
        partitions=3,
        key=lambda _: "key",
        headers=lambda r: {"h": b"\x00"} if r else None,
        timestamp=lambda r: 1_700_000_000_000 if r else None,
        partitioner=lambda r, n: n - 1,
    )
    run(job, {1: [{"id": 1}, None]})
    first, second = kafka.consume(job.topic)
    assert (first.partition, first.headers, first.timestamp) == (2, [("h", b"\x00")], 1_700_000_000_000)
    assert (second.partition, second.key, second.value, second.headers) == (2, b"key", None, [])


def test_a_key_goes_to_the_partition_that_kafkas_own_clients_choose(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(partitions=3)
    run(job, {1: records(0, 50)})
    ours = {r.key: r.partition for r in kafka.consume(job.topic)}
    kafka.produce(job.topic, records(0, 50), key=lambda r: r["k"])
    assert {r.key: r.partition for r in kafka.consume(job.topic)} == ours
    assert len(set(ours.values())) > 1


def test_several_topics_go_out_in_one_transaction(
    kafka: KafkaBroker, make_job: JobMaker, make_topic: Callable[..., str]
) -> None:
    job, other = make_job(), make_topic("other")
    first = job.topic
    job.options["topic"] = lambda r: other if r["id"] % 2 else first
    run(job, {1: records(0, 10)})
    assert [r.json()["id"] for r in kafka.consume(first)] == [0, 2, 4, 6, 8]
    assert [r.json()["id"] for r in kafka.consume(other)] == [1, 3, 5, 7, 9]


def test_every_commit_leaves_a_marker_with_checkpoint_lineage_and_last_segment(make_job: JobMaker) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    assert (job.marker().offset, '"last":null' in job.marker().metadata) == (0, True)
    committer.commit(4, job.write(4, records(0, 3)))
    assert job.marker().offset == 4
    assert '"lineage":"L1"' in job.marker().metadata
    assert '"last":[4,0]' in job.marker().metadata
    assert committer.highest_checkpoint() == 4
    committer.close()


def test_an_empty_epoch_advances_the_marker_and_keeps_the_last_segment(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 3)))
    committer.commit(2, [])
    assert (job.marker().offset, '"last":[1,0]' in job.marker().metadata) == (2, True)
    committer.close()
    assert output(kafka, job) == [0, 1, 2]


def test_committing_the_same_again_changes_nothing(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    epoch = job.write(1, records(0, 10))
    committer.commit(1, epoch)
    committer.commit(1, epoch)
    committer.commit(2, epoch)
    committer.close()
    assert output(kafka, job) == list(range(10))


def test_an_epoch_above_the_limit_goes_out_in_several_transactions(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(max_transaction_bytes=4_000)
    transactions = _count_transactions(monkeypatch)
    epoch = job.write(1, *[records(i, 10) for i in range(0, 300, 10)])
    assert len(epoch) > 3
    committer = job.committer()
    committer.open([])
    transactions.clear()
    committer.commit(1, epoch)
    committer.close()
    assert len(transactions) == len(epoch)
    assert output(kafka, job) == list(range(300))


def test_a_full_queue_is_backpressure(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(config={"queue.buffering.max.messages": 10})
    run(job, {1: records(0, 500)})
    assert output(kafka, job) == list(range(500))


def test_batches_fit_a_topic_with_a_small_limit(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(topic_config={"max.message.bytes": 3_000})
    run(job, {1: records(0, 1_000)})
    assert output(kafka, job) == list(range(1_000))


def test_a_record_larger_than_the_clients_own_limit_comes_out(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(topic_config={"max.message.bytes": 4_000_000})
    run(job, {1: [{"k": "a", "id": 1, "x": "x" * 3_000_000}, {"k": "a", "id": 2}]})
    assert output(kafka, job) == [1, 2]


# -- crashes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "pending"),
    [
        ("committer.before_commit", 2),
        ("committer.mid_produce", 2),
        ("committer.after_send_offsets", 2),
        ("committer.after_commit", 0),
    ],
)
def test_a_crash_at_any_step_of_a_commit_neither_loses_nor_doubles(
    kafka: KafkaBroker, make_job: JobMaker, step: str, pending: int
) -> None:
    job = make_job(max_transaction_bytes=100_000)
    state = run(job, {1: records(0, 100)})
    second = job.write(2, records(100, 3_000))[:1] + name(2, [])
    third = job.write(3, records(3_100, 50))
    code, _ = commit_in_process(replace(job, restored_checkpoint=1, restored_state=state), [], [(2, second)], step)
    assert code == -9
    left = job.restore(3, state, [*second, *third])
    assert len(left) == (2 if pending else 1)
    written = 100 + second[0].payload["rows"]
    assert output(kafka, job) == [*range(written), *range(3_100, 3_150)]
    assert job.restore(3, state, [*second, *third]) == []


def test_a_crash_between_two_transactions_of_an_epoch_repeats_none(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(max_transaction_bytes=4_000)
    state = run(job, {})
    epoch = job.write(1, records(0, 400))
    assert len(epoch) > 4

    class Crash(BaseException):
        pass

    _before_transaction(monkeypatch, 3, Crash())
    committer = job.committer()
    committer.open([])
    with pytest.raises(Crash):
        committer.commit(1, epoch)
    monkeypatch.undo()
    job.options["max_transaction_bytes"] = 64_000
    assert len(job.restore(1, state, epoch)) == len(epoch) - 2
    assert output(kafka, job) == list(range(400))


def test_what_a_crash_left_open_is_settled_by_the_next_producer(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    epoch = job.write(1, records(0, 10))
    code, _ = commit_in_process(job, [], [(1, epoch)], "committer.after_send_offsets")
    assert code == -9
    open_ends = kafka.end_offsets(job.topic, "read_uncommitted")
    assert open_ends != kafka.end_offsets(job.topic, "read_committed")
    again = replace(job, lineage=Lineage("L2"), ignore_earlier_output=True)
    run(again, {1: records(0, 10)})
    assert output(kafka, job) == list(range(10))


def test_epochs_of_aborted_checkpoints_are_known_by_name(kafka: KafkaBroker, make_job: JobMaker) -> None:
    # Epoch 2 was aborted and joined 3; the crash comes after 3's first transaction, the restore is from 4.
    job = make_job(max_transaction_bytes=3_000)
    state = run(job, {1: records(0, 10)})
    second, third, fourth = (job.write(n, records(10 * n, 10)) for n in (2, 3, 4))
    middle = job.restore(2, state, second)
    assert middle == second
    code, _ = commit_in_process(
        replace(job, restored_checkpoint=2, restored_state=state),
        second,
        [(3, [*second, *third])],
        "committer.after_commit",
    )
    assert code == -9
    assert job.restore(4, state, [*second, *third, *fourth]) == fourth
    assert output(kafka, job) == [*range(10), *range(20, 50)]


# -- lineages, lost markers ----------------------------------------------------------------------------------


def test_a_start_without_restore_where_output_is_committed_is_refused(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    run(job, {1: records(0, 5)})
    afresh = replace(job, lineage=Lineage("L2"))
    with pytest.raises(EarlierOutput, match=job.group):
        afresh.committer().open([])
    run(replace(afresh, ignore_earlier_output=True), {2: records(5, 5)})
    assert output(kafka, job) == list(range(10))


def test_output_ahead_stops_and_a_rewind_settles_by_the_old_marker(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    state = run(job, {1: records(0, 5)})
    second, third = job.write(2, records(5, 5)), job.write(3, records(10, 5))
    job.restore(2, state, second)
    # Not known to be committed when checkpoint 3 was taken, the second epoch lies in it as well.
    job.restore(3, state, [*second, *third])
    with pytest.raises(OutputAhead, match=r"checkpoint 2 is being restored.*checkpoint 3 of lineage L1"):
        job.restore(2, state, second)
    rewound = replace(job, lineage=Lineage("L2", ("L1", 2)), rewind=True)
    assert rewound.restore(2, state, second) == []
    assert '"parent":["L1",2]' in job.marker().metadata
    # It crashes before its first checkpoint and is started again; then it goes on.
    assert rewound.restore(2, state, second) == []
    again = replace(rewound, lineage=Lineage("L3", ("L1", 2)))
    again.restored_checkpoint, again.restored_state = 2, state
    committer = again.committer()
    committer.open(second)
    assert committer.highest_checkpoint() >= 2
    committer.commit(4, job.write(4, records(10, 5)))
    committer.close()
    assert output(kafka, job) == [*range(15), *range(10, 15)]
    with pytest.raises(OutputAhead, match="checkpoint 4 of lineage L3"):
        job.restore(2, state, second)


def test_ids_given_out_before_a_rewind_are_known_from_the_marker(make_job: JobMaker) -> None:
    job = make_job()
    state = run(job, {1: records(0, 5), 7: records(5, 5)})
    state[3], state[4] = 1, [1, 0]
    job.restored_checkpoint, job.restored_state = 1, state
    committer = replace(job, lineage=Lineage("L2", ("L1", 1)), rewind=True).committer()
    committer.open([])
    assert committer.highest_checkpoint() == 7
    committer.close()


def test_a_rewound_writer_whose_epoch_was_not_committed_commits_it(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    state = run(job, {5: records(0, 5)})
    sixth = job.write(6, records(5, 5))
    rewound = replace(job, lineage=Lineage("L2", ("L1", 6)), rewind=True)
    assert rewound.restore(6, state, sixth) == sixth
    assert rewound.restore(6, state, sixth) == []
    assert job.restore(6, state, sixth) == []
    assert output(kafka, job) == list(range(10))


@pytest.mark.parametrize(
    ("policy", "expected"), [("fail", None), ("replay", [*range(10), *range(5, 10)]), ("skip", [*range(10)])]
)
def test_a_marker_that_kafka_forgot_is_an_error_with_a_choice(
    kafka: KafkaBroker, make_job: JobMaker, policy: str, expected: list[int] | None
) -> None:
    job = make_job(on_marker_lost=policy)
    state = run(job, {1: records(0, 5)})
    second = job.write(2, records(5, 5))
    job.restore(2, state, second)
    job.delete_marker()
    if expected is None:
        with pytest.raises(MarkerLost, match="no committed offset"):
            job.restore(2, state, second)
    else:
        job.restore(2, state, second)
        assert output(kafka, job) == expected
        assert job.restore(2, state, second) == []


def test_another_lineages_marker_counts_as_lost(make_job: JobMaker) -> None:
    job = make_job()
    state = run(job, {1: records(0, 5)})
    run(replace(job, lineage=Lineage("L2"), ignore_earlier_output=True), {1: records(0, 5)})
    with pytest.raises(MarkerLost, match="lineage L2"):
        job.restore(1, state, [])


def test_a_marker_stays_where_it_is_when_the_sinks_topic_changes(
    kafka: KafkaBroker, make_job: JobMaker, make_topic: Callable[..., str]
) -> None:
    job = make_job()
    state = run(job, {1: records(0, 5)})
    second = job.write(2, records(5, 5))
    moved = replace(job, topic=make_topic("moved"))
    assert moved.restore(2, state, second) == second
    assert moved.restore(2, state, second) == []
    assert output(kafka, job) == list(range(10))


def test_a_marker_deleted_under_a_running_sink_is_written_again(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 5)))
    job.delete_marker()
    committer.commit(2, job.write(2, records(5, 5)))
    committer.close()
    assert job.marker().offset == 2
    assert output(kafka, job) == list(range(10))


# -- rivals --------------------------------------------------------------------------------------------------


def test_a_committer_that_was_fenced_stops_at_once(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    owned = True

    def check_owner() -> None:
        if not owned:
            raise Fenced("a newer driver owns the job")

    old = replace(job, check_owner=check_owner).committer()
    old.open([])
    first = job.write(1, records(0, 5))
    old.commit(1, first)
    owned = False
    new = replace(job, restored_checkpoint=1, restored_state=old.snapshot()).committer()
    new.open([])
    with pytest.raises(Fenced):
        old.commit(2, job.write(2, records(100, 5)))
    new.commit(2, job.write(2, records(5, 5)))
    for committer in (old, new):
        committer.close()
    assert output(kafka, job) == list(range(10))


def test_the_ownership_is_checked_before_others_are_fenced_and_before_a_commit(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job()
    allowed = 0

    def check_owner() -> None:
        nonlocal allowed
        allowed -= 1
        if allowed < 0:
            raise Fenced("a newer driver owns the job")

    committer = replace(job, check_owner=check_owner).committer()
    rival = job.committer()
    rival.open([])
    made = _producers_made(monkeypatch)
    with pytest.raises(Fenced):
        committer.open([])
    rival.commit(1, job.write(1, records(0, 5)))
    assert made == []
    rival.close()
    allowed = 100
    job.restored_checkpoint, job.restored_state = 1, rival.snapshot()
    committer = replace(job, check_owner=check_owner).committer()
    committer.open([])
    allowed = 0
    with pytest.raises(Fenced):
        committer.commit(2, job.write(2, records(5, 5)))
    committer.close()
    assert output(kafka, job) == list(range(5))


def test_two_jobs_under_one_name_are_found_out_and_neither_retries_for_ever(
    kafka: KafkaBroker, make_job: JobMaker
) -> None:
    job = make_job()
    old = job.committer()
    old.open([])
    new = job.committer()
    new.open([])
    new.commit(1, job.write(1, records(0, 5)))
    with pytest.raises(ForeignMarker, match=r"somebody else.*transactional_id_prefix"):
        old.commit(1, job.write(1, records(0, 5)))
    old.close()
    assert output(kafka, job) == list(range(5))


def test_of_two_running_jobs_with_one_prefix_and_sink_id_one_ends_and_the_other_loses_nothing(
    kafka: KafkaBroker, make_job: JobMaker
) -> None:
    """Pipelines of other names and folders: nothing but Kafka can tell."""
    mine = make_job(transactional_id_prefix=make_job().topic)
    theirs = replace(mine, pipeline="theirs", lineage=Lineage("L2"))
    first, second = mine.committer(), theirs.committer()
    first.open([])
    second.open([])
    second.commit(1, theirs.write(1, records(0, 5)))
    with pytest.raises(ForeignMarker, match="Two jobs must not use one transactional_id_prefix and sink id"):
        first.commit(1, mine.write(1, records(100, 5)))
    first.close()
    second.commit(2, theirs.write(2, records(5, 5)))
    with pytest.raises(EarlierOutput, match="another transactional_id_prefix"):
        mine.committer().open([])
    with pytest.raises(MarkerLost, match="lineage L2"):
        mine.restore(1, first.snapshot(), [])
    second.commit(3, theirs.write(3, records(10, 5)))
    second.close()
    assert output(kafka, mine) == list(range(15))


def test_a_committer_fenced_by_a_stalled_older_one_goes_on(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 5)))
    stalled = TransactionalProducer(job.servers, {}, job.group, "out", 1_000_000)
    stalled.init()
    committer.commit(2, job.write(2, records(5, 5)))
    committer.close()
    assert output(kafka, job) == list(range(10))


def test_a_sink_that_is_fenced_over_and_over_gives_up(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    original = TransactionalProducer.transact

    def fenced_first(self: TransactionalProducer, *args: Any, **options: Any) -> None:
        TransactionalProducer(job.servers, {}, job.group, "out", 1_000_000).init()
        original(self, *args, **options)

    monkeypatch.setattr(TransactionalProducer, "transact", fenced_first)
    with pytest.raises(CommitFailed, match=r"transactional id .* 4 times"):
        committer.commit(1, job.write(1, records(0, 5)))
    monkeypatch.undo()
    committer.close()
    assert output(kafka, job) == []


# -- trouble -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [False, True])
def test_a_commit_of_unknown_outcome_gets_a_new_producer_that_asks_the_marker(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    made = _producers_made(monkeypatch)
    _trouble_once(monkeypatch, after=committed)
    committer.commit(1, job.write(1, records(0, 2_000)))
    assert len(made) == 1
    assert committer.highest_checkpoint() == 1
    committer.commit(2, job.write(2, records(2_000, 5)))
    assert len(made) == 1
    committer.close()
    assert output(kafka, job) == list(range(2_005))


@pytest.mark.parametrize(
    ("said", "replaced"),
    [
        ("TxnCoordinator: Disconnected (after 3 ms)", True),
        # Perhaps the marker group's coordinator: the client would wait for it, though another has taken over.
        ("127.0.0.1:9092/2: Disconnected (after 3 ms)", True),
        ("127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused", False),
    ],
)
def test_a_producer_that_lost_a_connection_is_not_used_again(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch, said: str, replaced: bool
) -> None:
    job = make_job()
    made = _producers_made(monkeypatch)
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 5)))
    (used,) = made
    used.connection.log(logging.INFO, "%s [%s] %s", "FAIL", "rdkafka#1", said)
    committer.commit(2, job.write(2, records(5, 5)))
    assert (made != [used]) == replaced
    committer.close()
    assert output(kafka, job) == list(range(10))


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["committer.mid_produce", pytest.param("committer.after_send_offsets", marks=pytest.mark.matrix)]
)
def test_a_commit_goes_on_when_the_broker_restarts_in_its_middle(
    own_kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    job = make_job()
    job.servers = own_kafka.bootstrap_servers
    own_kafka.create_topic(job.topic)
    committer = job.committer()
    committer.open([])
    restarted = []

    def restart(at: str, subtask: int | None = None) -> None:
        if at == step and not restarted:
            restarted.append(at)
            own_kafka.kill()
            own_kafka.restart()

    monkeypatch.setattr(failpoints, "hit", restart)
    committer.commit(1, job.write(1, records(0, 3_000)))
    committer.commit(2, job.write(2, records(3_000, 10)))
    committer.close()
    assert restarted
    assert output(own_kafka, job) == list(range(3_010))


def test_a_client_that_does_not_return_is_left_behind(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stuck in a lock of its own: no other call must come to it, not even the one that aborts."""
    job = make_job()
    producer = TransactionalProducer(job.servers, {}, job.group, "out", 1_000_000)
    producer.init()
    producer.probe([])
    assert producer.in_transaction
    released = threading.Event()
    producer.calls.grace = 0.1
    with pytest.raises(KafkaException, match="didn't return"):
        producer.calls.run(0.1, lambda _: released.wait(30))
    monkeypatch.setattr(producer.calls, "run", lambda *_: pytest.fail("it was called again"))
    producer.discard(abort=True)
    released.set()


def test_trouble_that_lasts_ends_in_an_error_that_says_what_to_do(
    make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job()
    job.options = {**job.options, "outage_timeout": 0.5}
    monkeypatch.setattr("sinks.kafka.transactions.STEP_TIMEOUT", 0.3)
    job.servers = "127.0.0.1:1"
    with pytest.raises(CommitFailed, match=r"take over the output of writer 0.*tried for 0\.5 s.*127\.0\.0\.1:1"):
        job.committer().open([])


def test_trouble_that_trying_again_does_not_mend_leaves_no_transaction_open(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may come soon to end it, and readers would wait."""
    job = make_job()
    committer = job.committer()
    committer.open([])
    original = TransactionalProducer.transact

    def refused(self: TransactionalProducer, *args: Any, **options: Any) -> None:
        error = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not any more"))
        original(self, *args, **{**options, "before_commit": _raiser(error)})

    monkeypatch.setattr(TransactionalProducer, "transact", refused)
    with pytest.raises(CommitFailed, match="could not commit checkpoint 1"):
        committer.commit(1, job.write(1, records(0, 5)))
    assert output(kafka, job) == []
    committer.close()


def test_a_record_that_the_broker_refuses_is_named_and_nothing_of_its_epoch_is_out(
    kafka: KafkaBroker, make_job: JobMaker
) -> None:
    job = make_job()
    state = run(job, {1: records(0, 5)})
    second = job.write(2, [*records(5, 5), {"k": "large", "id": 10, "x": "x" * 20_000}])
    job.alter_topic("max.message.bytes", "2000")
    with pytest.raises(RecordRefused, match=rf"topic '{job.topic}'.*MSG_SIZE_TOO_LARGE.*start again"):
        job.restore(2, state, second)
    assert output(kafka, job) == list(range(5))
    job.alter_topic("max.message.bytes", "100000")
    assert job.restore(2, state, second) == second
    assert output(kafka, job) == list(range(11))


def test_a_damaged_segment_leaves_no_transaction_open(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job(max_transaction_bytes=10_000)
    state = run(job, {1: records(0, 5)})
    second = job.write(2, records(5, 5), records(10, 5))
    third = job.write(3, records(15, 5))
    (job.folder / third[0].files[0].path).write_bytes(b"damaged")
    committer = replace(job, restored_checkpoint=1, restored_state=state).committer()
    committer.open([])
    with pytest.raises(OSError, match="damaged"):
        committer.commit(3, [*second, *third])
    committer.close()
    assert output(kafka, job) == list(range(5))


def test_closing_ends_an_open_transaction(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    committer = job.committer()
    committer.open([])
    with pytest.raises(failpoints.InjectedFailure):
        _with_failpoint(job, "committer.after_send_offsets", lambda: committer.commit(1, job.write(1, records(0, 5))))
    assert output(kafka, job) == []
    committer.close()


def test_the_snapshot_is_the_last_marker_known_to_be_committed(make_job: JobMaker) -> None:
    job = make_job()
    seen: list[Any] = []
    committer = replace(job, check_owner=lambda: seen.append(committer.snapshot())).committer()
    committer.open([])
    before = committer.snapshot()
    seen.clear()
    committer.commit(1, job.write(1, records(0, 5)))
    assert seen
    assert seen == [before] * len(seen)
    assert committer.snapshot()[:-1] == [job.topic, "L1", None, 1, [1, 0]]
    committer.close()


# -- inside --------------------------------------------------------------------------------------------------


def _count_transactions(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    made: list[None] = []
    original = TransactionalProducer.transact

    def counted(self: TransactionalProducer, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        made.append(None)

    monkeypatch.setattr(TransactionalProducer, "transact", counted)
    return made


def _producers_made(monkeypatch: pytest.MonkeyPatch) -> list[TransactionalProducer]:
    """Those that committers begin from now on."""
    made: list[TransactionalProducer] = []
    original = TransactionalProducer.init

    def init(self: TransactionalProducer) -> None:
        made.append(self)
        original(self)

    monkeypatch.setattr(TransactionalProducer, "init", init)
    return made


def _before_transaction(monkeypatch: pytest.MonkeyPatch, nth: int, error: BaseException) -> None:
    made = 0
    original = TransactionalProducer.transact

    def failing(self: TransactionalProducer, pieces: Any, offset: Any, *args: Any, **options: Any) -> None:
        nonlocal made
        made += offset.offset > 0
        if made == nth:
            raise error
        original(self, pieces, offset, *args, **options)

    monkeypatch.setattr(TransactionalProducer, "transact", failing)


def _trouble_once(monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    trouble = [KafkaException(KafkaError(KafkaError._TIMED_OUT, "commit took too long"))]
    original = TransactionalProducer.transact

    def troubled(self: TransactionalProducer, *args: Any, **options: Any) -> None:
        if trouble and not after:
            options["before_commit"] = _raiser(trouble.pop())
        original(self, *args, **options)
        if trouble:
            raise trouble.pop()

    monkeypatch.setattr(TransactionalProducer, "transact", troubled)


def _raiser(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def _with_failpoint(job: Job, step: str, call: Callable[[], None]) -> None:
    directory = job.folder.parent / "failpoint"
    directory.mkdir()
    point = failpoints.Failpoint(step, "fail", subtask=0, nth=1, times=1, directory=str(directory), text="on purpose")
    failpoints.install([point.to_wire()])
    try:
        call()
    finally:
        failpoints.install([])
