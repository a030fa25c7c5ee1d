"""A sink's definition: what the driver asks of it before an attempt, and what it pickles for the subtasks."""

from __future__ import annotations

import tempfile
from pathlib import Path

from checkpoint.counted import counted
from pipeline.testing.contracts.common import ContractBroken, check_unchanged
from pipeline.testing.contracts.sink.rule import rule
from pipeline.testing.contracts.sink.sink_job import SINK_ID, SinkJob
from pipeline.testing.contracts.sink.stage import SinkUnderTest, Stage, Terms
from sinks.sink import WriterRestore


def check_definition(terms: Terms) -> None:
    """`definition-pickles` and `validate-changes-nothing`, before any job is made with it."""
    subject = terms.factory()
    if not isinstance(subject, SinkUnderTest):
        raise TypeError(f"the factory returned a {type(subject).__name__}; it must make a SinkUnderTest")
    with tempfile.TemporaryDirectory(prefix="weir-contract-") as folder:
        before = SinkJob(subject.sink, Path(folder), "contract").pickled
    terms.watchdog.call("validate-changes-nothing", "validate", "return", subject.sink.validate)
    check_unchanged(subject.sink, before, "validate")
    found = list(subject.read())
    if found:
        raise ContractBroken(
            "validate-changes-nothing",
            f"before anything was written, {counted(len(found), 'record was', 'records were')} visible",
            "make a new or empty target for each call of the factory, and write nothing in validate()",
        )


@rule(
    "uncommitted-tells-the-truth",
    "let uncommitted() leave out only what certainly is committed, and check_restore() refuse only what open() would",
    needs_committer=True,
)
def uncommitted_tells_the_truth(stage: Stage) -> None:
    stage.write(6)
    first = stage.checkpoint()
    stage.write(6)
    last = stage.barrier()
    sink, job = stage.job.sink, stage.job
    for checkpoint in (first, last):
        state = checkpoint.state
        pending = state.pending.get(0, [])
        left = list(sink.uncommitted(job.pipeline, SINK_ID, 0, state.committers.get(0), pending))
        if checkpoint is last and [each.name for each in left] != [each.name for each in pending]:
            stage.broken(f"uncommitted() returned {left} of {pending}, of which nothing is committed")
    stage.complete(last)
    stage.die()
    held = last.state
    restore = WriterRestore(
        job.pipeline,
        SINK_ID,
        0,
        job.lineage,
        last.id,
        held.committers.get(0),
        held.pending.get(0, []),
        False,
        False,
    )
    stage.do("check_restore", lambda: sink.check_restore(restore))
    stage.expect_nothing_new(6)
    stage.restart(restore=last)
    stage.commit_all()
    stage.expect(range(12))
