"""What a start checks and decides before anything of the job runs. Nothing in here changes anything."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from checkpoint.committables import SinkState
from checkpoint.config import CheckpointConfig
from checkpoint.gate.gate_options import GateOptions
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.restore import RestorePoint, from_uri, newest, sink_state
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.graph import StepKind
from pipeline.plan import Plan, PlannedStep
from pipeline.runtime import error_text
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.start.restore_plan import check_restorable
from pipeline.runtime.driver.uncommitted import refuse_to_skip, uncommitted_output
from sinks.sink import Lineage, WriterRestore

_AT_ONCE: Final = 16
"""Sources and sinks whose brokers are asked at the same time; most of it is waiting."""


def check_arguments(restore: str, claim: bool | None, ignore_in_flight: int | None) -> None:
    """
    Raises:
        PipelineError: arguments of `Pipeline.start` that can't be, or don't go together.
    """
    if ignore_in_flight is not None and (type(ignore_in_flight) is not int or ignore_in_flight < 1):
        raise PipelineError(f"ignore_in_flight must be the id of a checkpoint, not {ignore_in_flight!r}")
    if claim is not None and restore in ("latest", "none"):
        raise PipelineError(
            f"claim={claim!r} says what becomes of the output in a checkpoint or savepoint that is named: "
            f"give its URI, not restore={restore!r}"
        )


# -- the pipeline -----------------------------------------------------------------------------------------------


def shared_names(plan: Plan, pipeline: str) -> Iterator[str]:
    """Sinks that would get in each other's way outside."""
    users: dict[str, str] = {}
    for vertex in plan.vertices:
        for step in vertex.steps:
            if step.kind is StepKind.SINK:
                for name in step.payload.exclusive_names(pipeline, step.id):
                    if users.setdefault(name, step.id) != step.id:
                        yield (
                            f"sinks {users[name]!r} and {step.id!r} would both use {name}, and so fence each other: "
                            "give one of them another id, or another prefix"
                        )


def invalid_steps(plan: Plan, pipeline: str) -> Iterator[str]:
    """What sources and sinks find wrong with themselves, such as a topic that doesn't exist. Asks the brokers."""
    steps = [
        (step, vertex.parallelism)
        for vertex in plan.vertices
        for step in vertex.steps
        if step.kind in (StepKind.SOURCE, StepKind.SINK)
    ]

    def wrong(step: PlannedStep, parallelism: int) -> str | None:
        try:
            step.payload.validate()
            if step.kind is StepKind.SINK:
                step.payload.validate_as(pipeline, step.id, parallelism)
        except Exception as error:
            return f"step {step.id!r}: {error_text.message(error)}"
        return None

    if steps:
        with ThreadPoolExecutor(min(len(steps), _AT_ONCE), thread_name_prefix="weir-check") as pool:
            yield from filter(None, pool.map(wrong, *zip(*steps, strict=True)))


def invisible_output(plan: Plan) -> Iterator[str]:
    """Sinks whose output would never be visible, since the pipeline has no folder for checkpoints."""
    unbounded = [v.head.id for v in plan.vertices if v.is_source and not v.head.payload.bounded]
    for vertex in plan.vertices:
        for step in vertex.steps:
            if unbounded and step.kind is StepKind.SINK and step.payload.needs_checkpoints:
                yield (
                    f"sink {step.id!r} commits when checkpoints complete, and source {unbounded[0]!r} never ends, "
                    "so nothing would ever be visible: give the pipeline checkpoints=CheckpointConfig(folder)"
                )


def open_gates(plan: Plan, config: CheckpointConfig) -> Iterator[str]:
    """Sources that backpressure can't hold with these options."""
    for vertex in plan.vertices:
        if vertex.is_source:
            options = GateOptions(
                config,
                max_span_records=vertex.head.payload.max_span_records,
                max_span_bytes=vertex.head.payload.max_span_bytes,
                window=vertex.head.payload.span_window,
                enabled=vertex.head.payload.active_backpressure,
            )
            if options.warning:
                yield f"source {vertex.head.id!r}: {options.warning}"


# -- what it restores -------------------------------------------------------------------------------------------


def find_restore_point(
    options: JobOptions, storage: CheckpointStorage, restarted: bool, damaged: Mapping[CheckpointRef, str]
) -> RestorePoint | None:
    """What is to be restored, whether it fits the pipeline or not.

    Args:
        restarted: for an attempt after the first, which goes on from the newest checkpoint.
        damaged: checkpoints that subtasks found to be damaged, and what they said.

    Raises:
        PipelineError: what the options ask for can't be.
        DamagedFile, StorageError: as `checkpoint.storage.restore`.
    """
    o, ignore = options, options.ignore_in_flight
    if restarted or o.restore == "latest":
        # For restarts, too: ids never repeat, so this is the checkpoint that the first attempt restored.
        point = newest(storage, o.checkpoints.on_damaged if o.checkpoints else "fail", damaged, ignore)
        if point is not None and point.storage.same_folder(storage):
            _refuse_other_spelling(o.name, point)
        if point is not None and point.claimed is None:
            # One of the job's own: `claim` is only about the one that was named.
            point = replace(point, claimed=point.metadata.pipeline == o.name)
    elif o.restore == "none":
        refuse_to_skip(o.plan, o.name, storage)
        point = None
    else:
        point = from_uri(o.restore, ignore)
    if not restarted and ignore is not None and (point is None or point.ref.id != ignore):
        raise PipelineError(
            f"ignore_in_flight={ignore}: {'nothing' if point is None else f'checkpoint {point.ref.id}'} is "
            "restored. Give the id of the checkpoint that is, or leave ignore_in_flight out"
        )
    if point is not None and o.claim and point.metadata.pipeline != o.name:
        raise PipelineError(
            f"claim=True: output that {point.uri} holds was prepared by pipeline {point.metadata.pipeline!r}, "
            "under whose name its sinks must commit it. Start a pipeline of that name, or leave claim out: "
            f"then {o.name!r} is a fork, and that output is left to {point.metadata.pipeline!r}"
        )
    return point


def _refuse_other_spelling(name: str, point: RestorePoint) -> None:
    """Some file systems ignore case, or how accents are encoded: there two pipelines have one folder."""
    theirs = point.metadata.pipeline
    if theirs != name and _folded(theirs) == _folded(name):
        raise PipelineError(
            f"the checkpoints in {point.storage.location} are those of pipeline {theirs!r}, and this file system takes "
            f"{name!r} for the same name: give this pipeline another name, or another folder for its checkpoints"
        )


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def restore_point(
    options: JobOptions, storage: CheckpointStorage, restarted: bool, damaged: Mapping[CheckpointRef, str]
) -> RestorePoint | None:
    """As `find_restore_point`; it fits the pipeline.

    Raises:
        PipelineError: it doesn't; says what to do.
    """
    point = find_restore_point(options, storage, restarted, damaged)
    if point is not None:
        check_restorable(point.metadata, options.plan, options.max_parallelism, options.allow_unclaimed)
    return point


def check_sinks(options: JobOptions, point: RestorePoint) -> None:
    """See whether sinks would refuse what is restored. Asks the brokers.

    Raises:
        PermanentFailure: one would.
    """
    o, metadata = options, point.metadata
    fork = metadata.pipeline != o.name
    claimed = claims_output(o, point)
    lineage = Lineage(metadata.lineage, metadata.lineage_parent)
    if o.rewind or not claimed:
        lineage = Lineage("new", (metadata.lineage, metadata.id))
    for vertex in o.plan.vertices:
        for step in vertex.steps:
            if step.kind is not StepKind.SINK:
                continue
            held = SinkState() if fork else sink_state(point.storage, metadata, step.id)
            pending = held.pending if claimed else {}
            for writer in sorted({*range(vertex.parallelism), *held.committers, *pending}):
                step.payload.check_restore(
                    WriterRestore(
                        o.name,
                        step.id,
                        writer,
                        lineage,
                        metadata.id,
                        held.committers.get(writer),
                        pending.get(writer, []),
                        o.rewind,
                        fork,
                    )
                )


def claims_output(options: JobOptions, point: RestorePoint | None) -> bool:
    """Whether output that was prepared and is not committed is this job's to commit."""
    return point is None or point.claimed_by(options.name, options.claim)


def unclaimed_output(options: JobOptions, point: RestorePoint) -> str | None:
    """What becomes of output that isn't this job's to commit; `None` if there is none. May ask the brokers."""
    theirs = point.metadata.pipeline
    left = uncommitted_output(options.plan, theirs, point.metadata, point.storage)
    if left is None:
        return None
    whose = f"is left to pipeline {theirs!r}" if theirs != options.name else "is DROPPED, since claim=False"
    return f"{left}; it {whose}"
