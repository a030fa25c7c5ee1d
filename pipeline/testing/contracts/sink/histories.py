"""Other parallelism, other histories: rescaling, rewinds, a new lineage, forks."""

from __future__ import annotations

from collections import Counter

from pipeline.testing.contracts.common import canonical, lost_and_doubled, shown
from pipeline.testing.contracts.sink.rule import CRASHES, Crash, rule
from pipeline.testing.contracts.sink.sink_job import Checkpoint
from pipeline.testing.contracts.sink.stage import Stage
from sinks.sink import Lineage


@rule(
    "old-writers-are-committed",
    "commit for the writer that ctx.writer says: a committer makes all its names from it, never from the subtask "
    "that it happens to run in",
    crash=CRASHES,
)
def old_writers_are_committed(stage: Stage, crash: Crash) -> None:
    stage.close()
    stage.restart(3)
    stage.write(9)
    stage.checkpoint()
    last: Checkpoint | None = None
    for parallelism in (2, 1, 4):
        stage.write(9)
        last = stage.barrier()
        stage.complete(last)
        if parallelism == 1:
            stage.commit_unnoticed()
        crash(stage)
        stage.restart(parallelism, last)
        stage.commit_all()
        stage.expect(range(stage.position))
    stage.write(9)
    last = stage.barrier()
    stage.complete(last)
    crash(stage)
    stage.restart(1, last)
    stage.write(9)
    stage.commit_all()
    stage.checkpoint()
    stage.expect(range(54))


@rule(
    "rewind-goes-on",
    "with ctx.rewind go on from the checkpoint given, though output is ahead of it: keep the lineage beside "
    "the marker, and take nothing of the new one for committed",
)
def rewind_goes_on(stage: Stage) -> None:
    stage.write(5)
    first = stage.checkpoint()
    stage.write(5)
    stage.checkpoint()
    stage.close()
    parent = (stage.job.lineage.id, first.id)
    stage.restart(restore=first, rewind=True, lineage=Lineage("lineage-2", parent))
    stage.commit_all()
    stage.write(5)
    stage.checkpoint()
    stage.write(5)
    last = stage.barrier()
    stage.complete(last)
    stage.die()
    stage.restart(restore=last)
    stage.commit_all()
    found = Counter(map(canonical, stage.visible()))
    lost = [canonical(stage.record(n)) for n in range(15) if not found[canonical(stage.record(n))]]
    if lost:
        stage.broken(f"lost: {shown(lost)}")
    fresh = [canonical(stage.record(n)) for n in range(10, 15)]
    twice = [each for each in fresh if found[each] > 1]
    if twice and stage.exact:
        stage.broken(f"too often: {shown(twice)}")


@rule(
    "new-histories-lose-nothing",
    "tell committables apart by lineage, too, or return from highest_checkpoint() the largest id known "
    "outside: the ids of the new history are then larger",
)
def new_histories_lose_nothing(stage: Stage) -> None:
    """`start(restore="none")` in a new folder: ids begin again, unless the committer knows larger ones."""
    stage.write(3)
    stage.checkpoint()
    stage.write(3)
    stage.checkpoint()
    stage.close()
    stage.job.next_id = 1
    stage.restart(ignore_earlier_output=True, lineage=Lineage("lineage-2"))
    stage.position = 6
    stage.write(3)
    last = stage.barrier()
    stage.complete(last)
    stage.commit_unnoticed()
    stage.die()
    stage.restart(restore=last)
    stage.commit_all()
    stage.write(3)
    stage.checkpoint()
    stage.expect(range(12))


@rule(
    "forks-leave-the-original-alone",
    "make all names from ctx.pipeline, ctx.sink_id and ctx.writer, and with ctx.fork touch nothing of the "
    "pipeline that the checkpoint is of",
)
def forks_leave_the_original_alone(stage: Stage) -> None:
    """Another pipeline begins with this one's checkpoint; both go on."""
    stage.write(5)
    stage.checkpoint()
    stage.write(5)
    last = stage.barrier()
    stage.complete(last)
    original, pipeline, lineage = stage.attempt, stage.job.pipeline, stage.job.lineage
    stage.job.pipeline, next_id = f"{pipeline}-fork", stage.job.next_id
    stage.restart(restore=last, fork=True, lineage=Lineage("fork-1", (lineage.id, last.id)))
    stage.position = 10
    stage.write(5)
    stage.checkpoint()
    stage.close()
    stage.job.pipeline, stage.job.lineage, stage.attempt = pipeline, lineage, original
    stage.job.next_id = next_id
    stage.story.append("the original goes on")
    stage.commit_all()
    stage.position = 15
    stage.write(5)
    stage.checkpoint()
    found = stage.visible()
    lost, doubled = lost_and_doubled(map(stage.record, range(20)), found)
    if lost or (doubled and stage.exact):
        stage.broken(f"lost: {shown(lost)}; too often: {shown(doubled)}")
