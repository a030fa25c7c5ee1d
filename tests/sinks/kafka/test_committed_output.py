"""What of a checkpoint is committed, asked from outside of the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kafka_sink_helpers import Job, records

from checkpoint.committables import Committable
from sinks import Lineage
from sinks.kafka.errors import EarlierOutput, MarkerLost, OutputAhead
from sinks.kafka.marker_group import MarkerGroup
from sinks.sink import WriterRestore

pytestmark = pytest.mark.sample(1)  # quick, and what each step of a commit rests on

JobMaker = Callable[..., Job]


@pytest.fixture
def committed(make_job: JobMaker) -> tuple[Job, Any, list[Committable]]:
    """Of three epochs the second is the last that is committed: job, what checkpoint 1 has of the committer, and what
    checkpoint 3 holds."""
    job = make_job()
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 5)))
    state = committer.snapshot()
    second, third = job.write(2, records(5, 5)), job.write(3, records(10, 5))
    committer.commit(2, second)
    committer.close()
    return job, state, [*second, *third]


def uncommitted(job: Job, state: Any, pending: Sequence[Committable]) -> Sequence[Committable]:
    return job.sink.uncommitted(job.pipeline, "out", 0, state, pending)


def check(job: Job, checkpoint: int, state: Any, pending: Sequence[Committable] = (), **options: Any) -> None:
    how: dict[str, Any] = {"rewind": False, "fork": False, **options}
    restore = WriterRestore(job.pipeline, "out", 0, job.lineage, checkpoint, state, pending, **how)
    job.sink.check_restore(restore)


def test_what_is_behind_the_marker_is_not_committed(committed: tuple[Job, Any, list[Committable]]) -> None:
    job, state, pending = committed
    assert uncommitted(job, state, pending) == pending[1:]
    assert uncommitted(job, state, pending[:1]) == []


def test_the_marker_is_looked_for_where_the_checkpoint_says_it_is(
    committed: tuple[Job, Any, list[Committable]], make_topic: Callable[..., str]
) -> None:
    job, state, pending = committed
    moved = replace(job, topic=make_topic("moved"))
    assert uncommitted(moved, state, pending) == pending[1:]
    with pytest.raises(OutputAhead):
        check(moved, 1, state)


def test_where_it_cannot_be_told_nothing_counts_as_committed(committed: tuple[Job, Any, list[Committable]]) -> None:
    job, state, pending = committed
    topic, _, *rest = state
    assert uncommitted(job, [topic, "another lineage", *rest], pending) == pending
    assert uncommitted(replace(job, pipeline="another"), state, pending) == pending
    job.delete_marker()
    assert uncommitted(job, state, pending) == pending


def test_a_restore_is_refused_by_the_marker_before_anything_is_touched(
    committed: tuple[Job, Any, list[Committable]],
) -> None:
    job, state, pending = committed
    check(job, 2, state, pending[:1])
    check(job, 3, state, pending)
    with pytest.raises(OutputAhead, match="checkpoint 1 is being restored"):
        check(job, 1, state)
    check(replace(job, lineage=Lineage("L2", ("L1", 1))), 1, state, rewind=True)
    with pytest.raises(EarlierOutput):
        check(replace(job, lineage=Lineage("L2")), 0, None)
    assert job.marker().offset == 2


def test_what_is_done_about_a_lost_marker_is_the_sinks_choice(committed: tuple[Job, Any, list[Committable]]) -> None:
    job, state, pending = committed
    job.delete_marker()
    with pytest.raises(MarkerLost, match="no committed offset"):
        check(job, 3, state, pending)
    job.options["on_marker_lost"] = "replay"
    check(job, 3, state, pending)


def test_without_brokers_nothing_is_told_and_nothing_refused(
    committed: tuple[Job, Any, list[Committable]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, state, pending = committed
    monkeypatch.setattr("sinks.kafka.marker_group._LOOK_TIMEOUT", 0.1)
    monkeypatch.setattr(MarkerGroup.read, "__defaults__", (0.1,))
    monkeypatch.setattr("sinks.kafka.committed_output._LOOK", 0.1)
    away = replace(job, servers="127.0.0.1:1")
    check(away, 1, state)
    assert uncommitted(away, state, pending) == pending
