"""What a start would do, without doing anything: no process, no Spark, no ownership taken, nothing written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from checkpoint.elements import EdgeName
from checkpoint.storage.errors import StorageError
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, pack_state
from checkpoint.storage.restore import RestorePoint
from checkpoint.storage.storage import CheckpointStorage
from pipeline.dead_ends import unused_streams
from pipeline.errors import PipelineError
from pipeline.event_time_inputs import event_time_notes
from pipeline.graph import StepKind
from pipeline.operators import KeyedOperator
from pipeline.plan import Plan, PlannedEdge, PlannedStep, Vertex
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.owner_liveness import refuse_living_owner
from pipeline.runtime.driver.start.restore_plan import Misfit, misfits, wrong_kind
from pipeline.runtime.driver.start.start_checks import (
    claims_output,
    find_restore_point,
    invalid_steps,
    invisible_output,
    open_gates,
    shared_names,
)
from pipeline.runtime.driver.start.start_positions import fresh_sources, how_to_begin, recorded_starts
from pipeline.runtime.driver.start.state_fit import find_states, migrations, undeclared_states, unfit_states
from pipeline.runtime.driver.uncommitted import uncommitted_parts
from pipeline.runtime.packing import pack_plan
from pipeline.runtime.running_jobs import running_jobs
from pipeline.runtime.topology_changes import in_flight_misfits, replay_reasons

if TYPE_CHECKING:
    from pipeline.job import Pipeline

_NO_SINKS: Final = Plan((), ())
_NOT_STATE: Final = frozenset({"event_time", "watermarks", "broadcast_contents"})
"""Parts of snapshots that are made anew."""


@dataclass(frozen=True)
class StepView:
    id: str
    kind: str
    """A kind of step, or `keyed process`."""
    named: bool
    """The user gave the id; else it is made up from the step's place."""
    reads: tuple[str, ...]
    """The steps that it reads, and how their records are spread."""
    keeps: tuple[str, ...] = ()
    """What it keeps and until when, of windows and joins."""


@dataclass(frozen=True)
class VertexView:
    """Steps that run chained in one process for each subtask."""

    name: str
    parallelism: int
    steps: tuple[StepView, ...]


@dataclass(frozen=True)
class RestoredView:
    uri: str
    id: int
    kind: str
    pipeline: str
    """Name of the one that took it."""
    trigger_time: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class StateView:
    """A step's state in the checkpoint, and what becomes of it."""

    step: str
    parts: dict[str, int]
    """Bytes by kind of state: `keyed`, `operator`, `broadcast`, `source`, `sink`, `files`."""
    old_parallelism: int | None
    """`None`: there is none in the checkpoint."""
    parallelism: int | None
    """`None`: there is no such step any more."""
    fate: str
    """`restored`, `dropped`, `refused`, or `new` if the step begins without any."""


@dataclass(frozen=True)
class InFlightView:
    edge: EdgeName
    records: int
    fate: str
    """`restored`, `dropped` or `refused`."""


@dataclass(frozen=True)
class Preview:
    """What a start would do."""

    pipeline: str
    slots: int
    """Spark slots that it needs: one for each subtask, all at once."""
    max_parallelism: int
    checkpoints: str | None
    """Root folder of its checkpoints."""
    vertices: tuple[VertexView, ...]
    restored: RestoredView | None = None
    """`None`: it starts from nothing, or what it would restore can't be told."""
    state: tuple[StateView, ...] = ()
    in_flight: tuple[InFlightView, ...] = ()
    migrations: tuple[str, ...] = ()
    """States whose values don't fit their classes any more, and which `migrate` makes new ones of."""
    replays: tuple[str, ...] = ()
    """Why sources wait until the restored in-flight data has been replayed; empty if they don't."""
    uncommitted: dict[str, int] = field(default_factory=dict)
    """Committables by sink that are not known to be committed."""
    claims_output: bool = True
    """Whether they are the job's to commit."""
    runs: bool = False
    """Whether the job runs now, so that a start must take it over."""
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    """Why it would not start, with what to do; empty if it would."""


def preview(
    pipeline: Pipeline,
    restore: str = "latest",
    *,
    claim: bool | None = None,
    allow_unclaimed: bool = False,
    ignore_in_flight: int | None = None,
    offline: bool = False,
) -> Preview:
    """What `pipeline.start` with the same arguments would do, by the same rules. What only running can tell is left
    out: whether Spark has the slots, the folder can be written, and visible output is ahead of the checkpoint.

    Args:
        offline: ask no brokers whether topics exist and which output is committed.

    Raises:
        PipelineError: the graph can't run, or the arguments don't go together.
    """
    options = pipeline.options(
        restore,
        claim=claim,
        rewind=False,
        allow_unclaimed=allow_unclaimed,
        ignore_in_flight=ignore_in_flight,
        spark=None,
    )
    plan = options.plan
    refusals = list(_unfit(options, offline))
    restored: dict[str, Any] = {}
    owner = _owner(options)
    said = _namesakes(options) if owner is None else [owner]
    try:
        storage = None if options.checkpoints is None else CheckpointStorage(options.checkpoints.uri, options.name)
        point = _point(options, storage, offline)
        if storage is not None:
            said += _beginnings(options, storage, point)
        if point is not None:
            found = _Restore(options, point, offline)
            refusals += found.refusals()
            restored = found.views()
    except (PipelineError, StorageError, ValueError) as error:
        refusals.append(str(error))
    return Preview(
        options.name,
        plan.subtasks,
        options.max_parallelism,
        None if options.checkpoints is None else options.checkpoints.uri,
        tuple(_vertices(pipeline, plan)),
        runs=owner is not None,
        warnings=(*said, *_warnings(pipeline, plan)),
        refusals=tuple(refusals),
        **restored,
    )


def _unfit(options: JobOptions, offline: bool) -> Iterator[str]:
    yield from shared_names(options.plan, options.name)
    if not offline:
        yield from invalid_steps(options.plan, options.name)
    if options.checkpoints is None:
        yield from invisible_output(options.plan)
    try:
        pack_plan(options.plan)
    except PipelineError as error:
        yield str(error)


def _point(options: JobOptions, storage: CheckpointStorage | None, offline: bool) -> RestorePoint | None:
    if options.restore == "none" and offline:
        return None  # what is looked at is whether brokers have the last run's output
    if storage is None:
        if options.restore in ("latest", "none"):
            return None
        storage = CheckpointStorage("/", None)  # not looked at
    return find_restore_point(options, storage, False, {})


def _beginnings(options: JobOptions, storage: CheckpointStorage, point: RestorePoint | None) -> list[str]:
    """Where sources begin that no checkpoint has state of, if an earlier start has settled it."""
    recorded, said = recorded_starts(storage, point, options.restore)
    begins = [
        how_to_begin(step, recorded.get(step.id))
        for step in fresh_sources(options.plan, point.metadata if point else None)
    ]
    return [*said, *(begin.text for begin in begins if begin.text is not None)]


def _warnings(pipeline: Pipeline, plan: Plan) -> Iterator[str]:
    yield from unused_streams(pipeline._graph)
    made_up = [step.id for step in pipeline._graph.steps if not step.named and step.kind is not StepKind.UNION]
    if made_up:
        yield (
            f"ids made up from their place in the graph: {', '.join(made_up)}. A step added before one renames it, and "
            "what a checkpoint has under its old id is lost or refused: give ids to steps that stay"
        )
    stateful = [id for step in pipeline._graph.steps if (id := step.id) in made_up and step.kind is StepKind.PROCESS]
    if stateful:
        yield (
            f"{', '.join(stateful)}: these steps keep state, and their ids are made up. With a step like one added "
            "before it, the new one would take over the state of the old one: give each an id before the job has its "
            "first checkpoint"
        )
    yield from event_time_notes(plan)
    if pipeline.checkpoints is not None:
        yield from open_gates(plan, pipeline.checkpoints)


def _owner(options: JobOptions) -> str | None:
    """That the job runs now, by its newest owner; `None` if it doesn't."""
    try:
        if options.checkpoints is not None:
            refuse_living_owner(CheckpointStorage(options.checkpoints.uri, options.name), options.name)
    except PipelineError as error:
        return str(error)
    except StorageError:
        pass  # told where the checkpoints are read
    return None


def _namesakes(options: JobOptions) -> list[str]:
    """Jobs of this name that run here, be it over other checkpoint folders."""
    try:
        running = [job for job in running_jobs() if job.name == options.name]
    except (OSError, RuntimeError):
        return []  # nobody has asked for them
    return [
        f"a job called {job.name!r} runs at {job.address}: while it does, a start with the same checkpoint folder "
        "is refused, unless it has --take-over"
        for job in running
    ]


# -- graph ------------------------------------------------------------------------------------------------------


def _vertices(pipeline: Pipeline, plan: Plan) -> Iterator[VertexView]:
    named = {step.id: step.named for step in pipeline._graph.steps}
    for vertex in plan.vertices:
        steps = (
            StepView(step.id, _kind(step), named[step.id], _reads(step, vertex, plan), _keeps(step))
            for step in vertex.steps
        )
        yield VertexView(vertex.name, vertex.parallelism, tuple(steps))


def _keeps(step: PlannedStep) -> tuple[str, ...]:
    return step.payload._keeps() if isinstance(step.payload, KeyedOperator) else ()


def _kind(step: PlannedStep) -> str:
    return f"keyed {step.kind.value}" if isinstance(step.payload, KeyedOperator) else step.kind.value


def _reads(step: PlannedStep, vertex: Vertex, plan: Plan) -> tuple[str, ...]:
    if step.chained_to is not None:
        return (f"{_output(step.chained_to, step.tag)}, chained",)
    return tuple(f"{_output(edge.upstream_step, edge.tag)}, {_spread(edge)}" for edge in plan.inputs_of(vertex.index))


def _output(step: str, tag: str | None) -> str:
    return step if tag is None else f"{step} ({tag})"


def _spread(edge: PlannedEdge) -> str:
    return str(edge.partitioner.key or edge.partitioner.distribution.value)


# -- restore ----------------------------------------------------------------------------------------------------


class _Restore:
    """What a start would do with a checkpoint."""

    def __init__(self, options: JobOptions, point: RestorePoint, offline: bool):
        self._o = options
        self._point = point
        self._metadata = point.metadata
        self._snapshots = {
            id: [point.storage.unspill(snapshot) for snapshot in self._metadata.operator(id)]
            for id in self._metadata.step_ids
        }
        self._offline = offline
        self._found = find_states(point, self._snapshots)
        self._misfits = [
            *misfits(self._metadata, options.plan, options.max_parallelism),
            *self._wrong_kinds(),
            *undeclared_states(options.plan, self._metadata.id, self._found, self._snapshots),
            *unfit_states(options.plan, self._metadata.id, self._found),
        ]

    def refusals(self) -> list[str]:
        return [one.message for one in self._misfits if not (one.droppable and self._o.allow_unclaimed)]

    def views(self) -> dict[str, Any]:
        """Fields of `Preview`."""
        o, metadata, point = self._o, self._metadata, self._point
        sinks = _NO_SINKS if self._offline else o.plan
        return {
            "restored": RestoredView(
                point.uri, metadata.id, metadata.kind.value, metadata.pipeline, metadata.trigger_time
            ),
            "state": tuple(self._state()),
            "in_flight": tuple(self._in_flight()),
            "migrations": tuple(migrations(o.plan, self._found)),
            "replays": tuple(replay_reasons(metadata, o.plan)),
            "uncommitted": dict(uncommitted_parts(sinks, metadata.pipeline, metadata, point.storage)),
            "claims_output": claims_output(o, point),
        }

    def _wrong_kinds(self) -> Iterator[Misfit]:
        for vertex in self._o.plan.vertices:
            for step in vertex.steps:
                states = [snapshot.state for snapshot in self._snapshots.get(step.id, ())]
                misfit = wrong_kind(step, self._metadata.id, states)
                if misfit is not None:
                    yield misfit

    def _state(self) -> Iterator[StateView]:
        unfit = {id for misfit in self._misfits for id in misfit.steps}
        dropping = self._o.allow_unclaimed
        lasting = {id for misfit in self._misfits if not misfit.droppable for id in misfit.steps}
        before = _parallelism(self._metadata)
        now = {step.id: (step, vertex) for vertex in self._o.plan.vertices for step in vertex.steps}
        for id in [*now, *sorted(before.keys() - now.keys())]:
            parts = _sizes(self._snapshots.get(id, ()))
            step, vertex = now.get(id, (None, None))
            fate = "restored" if id not in unfit else "refused" if id in lasting or not dropping else "dropped"
            if not parts:
                if step is None or step.kind not in (StepKind.SOURCE, StepKind.PROCESS) or id in before:
                    continue
                fate = "new"
            yield StateView(id, parts, before.get(id), None if vertex is None else vertex.parallelism, fate)

    def _in_flight(self) -> Iterator[InFlightView]:
        refused = {name for name, _ in in_flight_misfits(self._metadata, self._o.plan)}
        for name, count in self._metadata.in_flight_rows().items():
            yield InFlightView(name, count, "refused" if name in refused else "restored")
        for name, count in self._point.left_out.items():
            yield InFlightView(name, count, "dropped")


def _parallelism(metadata: CheckpointMetadata) -> dict[str, int]:
    """By step id."""
    return {
        id: vertex.parallelism
        for vertex in metadata.vertices.values()
        for subtask in vertex.subtasks
        for id in subtask.operators
    }


def _sizes(snapshots: Iterable[OperatorSnapshot]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for snapshot in snapshots:
        state = {part: value for part, value in snapshot.state.items() if part not in _NOT_STATE}
        found = {part: len(pack_state({part: value})) for part, value in state.items()}
        for part, handles in (
            ("keyed", [listed.file for listed in snapshot.keyed_state]),
            ("files", snapshot.files),
        ):
            if handles:
                found[part] = sum(handle.size for handle in handles)
        for part, size in found.items():
            sizes[part] = sizes.get(part, 0) + size
    return sizes
