"""Records that a topic refuses once they are staged: they are named, and can be left out; all others come out."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deadlines import eventually
from kafka_sink_helpers import FolderStaging, Job, name, records

from checkpoint import failpoints
from checkpoint.committables import Committable, CommittableName
from checkpoint.errors import PermanentFailure
from pipeline.testing.kafka import KafkaBroker
from sinks.kafka.errors import CommitRefused, OutputAhead, RecordRefused
from sinks.kafka.rows import KafkaRows
from sinks.kafka.segments import SegmentStager
from sinks.kafka.skip import NotSkipped, StagedRecord, find_segment, save_records, skip, staged_records, to_commit
from sinks.kafka.staged_rows import read_rows
from sinks.kafka.transactions import TransactionalProducer

JobMaker = Callable[..., Job]
Segment = tuple[int, int]
LARGE = "x" * 20_000


def output(kafka: KafkaBroker, job: Job) -> list[int]:
    # The last transaction's marker counts a moment after its end was confirmed.
    end = kafka.end_offsets
    eventually(lambda: end(job.topic, "read_committed") == end(job.topic, "read_uncommitted"))
    return [record.json()["id"] for record in kafka.consume(job.topic)]


def skipped(
    job: Job,
    checkpoint: int,
    state: Any,
    pending: list[Committable],
    segment: tuple[int, int],
    rows: set[int],
    save: Path,
) -> int:
    restored = replace(job, restored_checkpoint=checkpoint, restored_state=state)
    committers = {0: restored.committer()}
    return skip(committers, {0: pending}, 0, CommittableName(*segment), rows, save, FolderStaging(job.folder))


@pytest.fixture
def stuck(make_job: JobMaker) -> tuple[Job, Any, list[Committable]]:
    """One epoch is committed, two are staged, and the topic would refuse a record in the second of two segments
    of epoch 2: job, state, what is pending in checkpoint 3."""
    job = make_job(max_transaction_bytes=30_000)
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 5)))
    committer.close()
    large = {"k": "large", "id": 302, "x": LARGE}
    second = job.write(2, records(5, 295), [*records(300, 2), large, *records(303, 300)])
    third = job.write(3, records(603, 5))
    assert len(second) > 1
    job.alter_topic("max.message.bytes", "2000")
    return job, committer.snapshot(), [*second, *third]


def place_of(job: Job, pending: list[Committable], id: int) -> tuple[Segment, int]:
    for one in pending:
        row = 0
        for rows in read_rows(one, FolderStaging(job.folder)):
            for value in rows.values:
                if json.loads(value or b"")["id"] == id:
                    return (one.name.epoch, one.name.index), row
                row += 1
    raise AssertionError(id)


def test_a_refused_commit_ends_the_job_and_says_where_the_record_is_and_how_to_go_on(
    kafka: KafkaBroker, stuck: tuple[Job, Any, list[Committable]]
) -> None:
    job, state, pending = stuck
    (epoch, index), row = place_of(job, pending, 302)
    with pytest.raises(CommitRefused) as caught:
        job.restore(3, state, pending)
    assert isinstance(caught.value, PermanentFailure)
    assert f"`weir sink skip SCRIPT out --writer 0 --segment {epoch}/{index} --row {row} --save FILE --yes`" in str(
        caught.value
    )
    assert f"topic '{job.topic}', partition 0, key b'large'" in str(caught.value)
    assert set(output(kafka, job)) <= set(range(302))


def test_what_is_skipped_is_in_the_file_and_all_else_comes_out_once(
    kafka: KafkaBroker, stuck: tuple[Job, Any, list[Committable]], tmp_path: Path
) -> None:
    job, state, pending = stuck
    segment, row = place_of(job, pending, 302)
    assert skipped(job, 3, state, pending, segment, {row}, tmp_path / "saved.jsonl") == segment[1] + 1
    [line] = (tmp_path / "saved.jsonl").read_text().splitlines()
    saved = json.loads(line)
    value = base64.b64decode(saved["value"])
    assert json.loads(value) == {"k": "large", "id": 302, "x": LARGE}
    assert (saved["topic"], saved["partition"], saved["timestamp"]) == (job.topic, None, None)
    assert (base64.b64decode(saved["key"]), saved["headers"], saved["row"]) == (b"large", [], row)

    left = job.restore(3, state, pending)
    assert [one.name for one in left] == [one.name for one in pending if one.name > CommittableName(*segment)]
    assert output(kafka, job) == [id for id in range(608) if id != 302]


def test_a_checkpoint_from_before_what_was_skipped_is_refused(
    stuck: tuple[Job, Any, list[Committable]], tmp_path: Path
) -> None:
    job, state, pending = stuck
    segment, row = place_of(job, pending, 302)
    skipped(job, 3, state, pending, segment, {row}, tmp_path / "saved.jsonl")
    with pytest.raises(OutputAhead):
        job.restore(1, state, [])


def test_several_records_with_all_that_they_have_are_saved(
    kafka: KafkaBroker, make_job: JobMaker, tmp_path: Path
) -> None:
    job = make_job(
        partitions=2,
        headers=lambda r: {"h": b"\xff", "none": None},
        timestamp=lambda r: 1_700_000_000_000 + r["id"],
        partitioner=lambda r, n: 1,
    )
    pending = job.write(1, [{"k": "a", "id": 0}, {"k": None, "id": 1, "x": LARGE}, {"k": "a", "id": 2}])
    job.alter_topic("max.message.bytes", "2000")
    committer = job.committer()
    committer.open([])
    with pytest.raises(CommitRefused, match="--segment 1/0 --row 1 --save"):
        committer.commit(1, pending)
    committer.close()
    skipped(job, 1, committer.snapshot(), pending, (1, 0), {1, 2}, tmp_path / "saved.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "saved.jsonl").read_text().splitlines()]
    assert [(one["row"], one["partition"], one["timestamp"]) for one in lines] == [
        (1, 1, 1_700_000_000_001),
        (2, 1, 1_700_000_000_002),
    ]
    assert lines[0]["headers"] == [["h", "/w=="], ["none", None]]
    assert output(kafka, job) == [0]


def test_records_that_are_the_same_are_refused_together(kafka: KafkaBroker, make_job: JobMaker, tmp_path: Path) -> None:
    job = make_job()
    large = {"k": "a", "id": 7, "x": LARGE}
    pending = job.write(1, [*records(0, 2), large, *records(2, 1), large, {**large, "id": 8}])
    job.alter_topic("max.message.bytes", "2000")
    committer = job.committer()
    committer.open([])
    with pytest.raises(CommitRefused, match="--segment 1/0 --row 2 --row 4 --save"):
        committer.commit(1, pending)
    committer.close()
    with pytest.raises(CommitRefused, match="--row 2 --row 4 --row 5 --save"):
        skipped(job, 1, committer.snapshot(), pending, (1, 0), {2, 4}, tmp_path / "first.jsonl")
    assert output(kafka, job) == []
    skipped(job, 1, committer.snapshot(), pending, (1, 0), {2, 4, 5}, tmp_path / "second.jsonl")
    assert output(kafka, job) == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, {"timestamp": lambda r: 1_700_000_000_000}])
def test_a_record_that_is_refused_while_others_are_being_sent_is_named(
    make_job: JobMaker, options: dict[str, Any]
) -> None:
    job = make_job(**options)
    pending = job.write(1, [{"k": "a", "id": -1, "x": LARGE}], *[records(i, 5_000) for i in range(0, 60_000, 5_000)])
    job.alter_topic("max.message.bytes", "10000")
    committer = job.committer()
    committer.open([])
    with pytest.raises(CommitRefused, match="--segment 1/0 --row 0 --save"):
        committer.commit(1, pending)
    committer.close()


def test_a_topic_whose_limit_was_lowered_takes_small_records_all_the_same(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that fitted its old limit don't any more; no record is to blame."""
    job = make_job()
    first, second = job.write(1, records(0, 1_000)), job.write(2, records(1_000, 1_000))
    job.alter_topic("max.message.bytes", "2000")
    committer = job.committer()
    committer.open([])
    steps: list[str] = []
    monkeypatch.setattr(failpoints, "hit", lambda step, subtask: steps.append(step))
    committer.commit(2, [*first, *second])
    committer.close()
    assert output(kafka, job) == list(range(2_000))
    assert steps.count("committer.before_init") == 1
    # Its transaction is not left open for as long as brokers may keep a new producer waiting.
    assert steps.index("committer.after_abort") < steps.index("committer.before_init")


def test_the_one_record_of_a_batch_that_a_topic_does_not_take_is_named(kafka: KafkaBroker, make_job: JobMaker) -> None:
    job = make_job()
    pending = job.write(1, [*records(0, 5), {"k": None, "id": 5}, *records(6, 5)])
    job.alter_topic("cleanup.policy", "compact")
    committer = job.committer()
    committer.open([])
    with pytest.raises(CommitRefused, match=r"row 5 .*INVALID_RECORD.*--segment 1/0 --row 5 --save"):
        committer.commit(1, pending)
    committer.close()
    assert output(kafka, job) == []


def test_older_epochs_of_other_writers_go_out_first(kafka: KafkaBroker, make_job: JobMaker, tmp_path: Path) -> None:
    """Epochs 1 and 3 were written by two subtasks, and epoch 2 by one of them: a key's records are with both."""
    job = make_job()
    opened = {writer: job.committer(writer) for writer in (0, 1)}
    states = {}
    for writer, committer in opened.items():
        committer.open([])
        states[writer] = committer.snapshot()
        committer.close()
    parts = [job.write(epoch, records(first, 3)) for epoch, first in ((1, 0), (2, 3), (3, 6), (3, 9), (4, 12))]
    pending = {0: [*parts[0], *parts[2], *parts[4]], 1: [*parts[1], *parts[3]]}
    committers = {
        writer: replace(job, restored_checkpoint=4, restored_state=states[writer]).committer(writer)
        for writer in (0, 1)
    }
    staging = FolderStaging(job.folder)
    assert skip(committers, pending, 0, CommittableName(3, 0), {1}, tmp_path / "saved.jsonl", staging) == 3
    assert output(kafka, job) == [0, 1, 2, 3, 4, 5, 6, 8]


def test_no_record_is_named_if_the_topic_takes_all_of_them_by_the_time_of_the_look(
    kafka: KafkaBroker, make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Naming the first one of the batch would have a good record left out."""
    job = make_job()
    pending = job.write(1, [*records(0, 5), {"k": None, "id": 5}, *records(6, 5)])
    probe = TransactionalProducer.probe

    def mended(self: TransactionalProducer, pieces: Iterable[KafkaRows]) -> None:
        job.alter_topic("cleanup.policy", "delete")
        probe(self, pieces)

    monkeypatch.setattr(TransactionalProducer, "probe", mended)
    job.alter_topic("cleanup.policy", "compact")
    committer = job.committer()
    committer.open([])
    with pytest.raises(RecordRefused, match="the topic seems to accept it again") as caught:
        committer.commit(1, pending)
    assert not isinstance(caught.value, PermanentFailure)
    assert "weir sink skip" not in str(caught.value)
    committer.close()
    job.restore(1, committer.snapshot(), pending)
    assert output(kafka, job) == list(range(11))


def test_nothing_is_committed_if_the_record_is_not_there_or_cannot_be_saved(
    kafka: KafkaBroker, stuck: tuple[Job, Any, list[Committable]], tmp_path: Path
) -> None:
    job, state, pending = stuck
    exists = tmp_path / "exists"
    exists.write_text("precious")
    for segment, row, save, message in (
        ((1, 0), 0, tmp_path / "new", "segment 1/0 is not waiting to be committed.*Waiting are: 2/0, 2/1"),
        ((3, 0), 5, tmp_path / "new", "segment 3/0 has no row 5: its 5 rows"),
        ((2, 0), 0, exists, "exists; name a new file"),
        ((2, 0), 0, tmp_path / "no" / "folder", "can't be saved"),
    ):
        with pytest.raises(NotSkipped, match=message):
            skipped(job, 3, state, pending, segment, {row}, save)
    assert exists.read_text() == "precious"
    assert not (tmp_path / "new").exists()
    assert output(kafka, job) == list(range(5))


# -- without a broker -------------------------------------------------------------------------------------------------


def named(*names: Segment) -> list[Committable]:
    return [Committable(CommittableName(*each), {"rows": 3}) for each in names]


def test_older_epochs_of_all_writers_and_older_segments_of_its_own_are_committed_with_a_segment() -> None:
    waiting = {0: named((1, 0), (2, 0), (2, 1), (3, 0)), 1: named((1, 0), (2, 0), (3, 0)), 2: named((3, 0))}
    found = to_commit(waiting, 0, CommittableName(2, 0))
    assert found == {(1, 0): named((1, 0)), (1, 1): named((1, 0)), (2, 0): named((2, 0))}


def test_a_segment_that_does_not_wait_is_told_with_those_that_do() -> None:
    waiting = named((1, 0), (2, 3))
    assert find_segment(waiting, CommittableName(2, 3)) is waiting[1]
    with pytest.raises(NotSkipped, match=r"segment 2/0 is not waiting .*Waiting are: 1/0, 2/3$"):
        find_segment(waiting, CommittableName(2, 0))
    with pytest.raises(NotSkipped, match=r"Waiting are: none$"):
        find_segment([], CommittableName(2, 0))


def test_records_are_found_by_their_numbers_over_the_pieces_of_a_segment(tmp_path: Path) -> None:
    staging = FolderStaging(tmp_path)
    stager = SegmentStager(staging, "s", 10_000_000, 0)
    large = b"x" * 1_100_000
    stager.append(KafkaRows("t", None, [b"0", large], keys=[None, b"k"], partitions=[-1, 0], timestamps=[None, 5]))
    stager.append(KafkaRows("t", None, [b"2"], keys=[b"k"], partitions=[3], timestamps=[6]))
    (segment,) = name(4, stager.finish())
    assert len(list(read_rows(segment, staging))) > 1
    place = CommittableName(4, 0)
    assert staged_records(segment, staging, {2, 0}) == [
        StagedRecord(place, 0, "t", None, None, None, b"0", ()),
        StagedRecord(place, 2, "t", 3, 6, b"k", b"2", ()),
    ]
    assert staged_records(segment, staging, {1})[0].partition == 0
    with pytest.raises(NotSkipped, match=r"segment 4/0 has no row 3: its 3 rows are numbered from 0"):
        staged_records(segment, staging, {1, 3, 7})


def test_saved_records_are_lines_of_a_new_file(tmp_path: Path) -> None:
    one = StagedRecord(CommittableName(4, 1), 2, "t", None, 6, None, b"v", (("h", b"1"), ("n", None)))
    save_records(tmp_path / "saved", [one, replace(one, row=3, partition=0, key=b"k")])
    lines = [json.loads(line) for line in (tmp_path / "saved").read_text().splitlines()]
    assert [(line["segment"], line["row"], line["partition"], line["key"]) for line in lines] == [
        ("4/1", 2, None, None),
        ("4/1", 3, 0, "aw=="),
    ]
    assert lines[0]["headers"] == [["h", "MQ=="], ["n", None]]
    with pytest.raises(NotSkipped, match="exists; name a new file"):
        save_records(tmp_path / "saved", [one])
    with pytest.raises(NotSkipped, match="the records can't be saved in"):
        save_records(tmp_path / "missing" / "saved", [one])
