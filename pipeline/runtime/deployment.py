"""What a subtask is made from: how it finds the driver, and the job and its place in it, as the driver sends them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from checkpoint.committables import SinkState
from checkpoint.config import CheckpointConfig
from checkpoint.elements import ChannelName, EdgeName
from checkpoint.in_flight.captured import Part
from checkpoint.in_flight.edges import EdgeShape
from checkpoint.in_flight.runs import Origin
from checkpoint.state.operator_lists import Stored
from checkpoint.storage.handles import FileHandle, StateFile
from pipeline.buffers import BufferConfig
from pipeline.runtime.liveness import Limits


@dataclass(frozen=True)
class Contact:
    """What Spark ships to every subtask, and may hand to anybody who asks its block managers: nothing secret."""

    driver: tuple[str, int]
    """Address of the driver's server, which gives the `JobSpec` to those who know the attempt's secret."""
    vanished: float
    """Seconds (see `Limits`)."""
    encrypt: bool = False
    """Whether connections are encrypted (see `pipeline.runtime.encryption`)."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """The same for every subtask of an attempt. Pickled, user code with its passwords included, and sent over the
    subtask's authenticated connection."""

    pipeline: str
    plan: bytes = field(repr=False)
    """From `pipeline.runtime.packing.pack_plan`."""
    max_parallelism: int
    buffers: BufferConfig
    checkpoint_uri: str
    checkpoints: CheckpointConfig
    """A job that was given none has the least that it needs."""
    attempt: int
    ownership: Any
    """Wire form of this attempt's `checkpoint.storage.fencing.Ownership`."""
    versions: dict[str, str]
    """Versions of Python and Weir on the driver, which workers must have, too."""
    probe: list[Any] | None
    """Wire form of a `checkpoint.storage.probe.Probe`: every worker must see the same checkpoint folder."""
    failpoints: list[Any]
    limits: Limits
    show_keys: bool
    """Whether status may name keys."""
    first_attempt: bool
    """Nothing has run yet: what a process lacks was lacking from the start, and won't be there at the next attempt."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One subtask's place."""

    subtask: int
    """Global number."""
    peers: dict[int, tuple[str, int]]
    """Data address of every subtask."""
    lineage: tuple[str, tuple[str, int] | None]
    restored_checkpoint: int
    """0 at a start without restore."""
    restored_from: tuple[str, str | None]
    """Arguments of the `CheckpointStorage` that the restored files are in: a savepoint has a folder of its own."""
    rewind: bool
    ignore_earlier_output: bool
    fork: bool
    """Whether the restored checkpoint is another pipeline's."""
    allow_unclaimed: bool
    replay: bool
    """Whether sources emit nothing new until what was restored has gone through the job."""
    same_topology: bool
    """Whether all edges are as they were in the restored checkpoint, at both ends."""
    restore: Restored


@dataclass(frozen=True)
class RestoredInFlight:
    """What a subtask needs to find what was in flight and comes to it (see `pipeline.runtime.restored_in_flight`)."""

    edges: dict[EdgeName, EdgeShape] = field(default_factory=dict)
    """The edges into its vertex as they were."""
    files: list[tuple[int, FileHandle]] = field(default_factory=list)
    """Channel state that may hold something for it, with the index of the old subtask that captured it."""
    assigned: dict[Origin, array[int]] = field(default_factory=dict)
    """New subtask of each row, on custom edges that have changed."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "edges": [[*edge, *shape.to_wire()] for edge, shape in self.edges.items()],
            "files": [[subtask, handle.to_wire()] for subtask, handle in self.files],
            "assigned": [
                [part.value, holder, *channel.edge, channel.upstream, channel.downstream, targets.tobytes()]
                for (part, holder, channel), targets in self.assigned.items()
            ],
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> RestoredInFlight:
        edges = {EdgeName(*row[:3]): EdgeShape.from_wire(row[3:]) for row in wire["edges"]}
        files = [(subtask, FileHandle.from_wire(handle)) for subtask, handle in wire["files"]]
        assigned = {
            Origin(Part(part), holder, ChannelName(EdgeName(*edge), upstream, downstream)): array("h", targets)
            for part, holder, *edge, upstream, downstream, targets in wire["assigned"]
        }
        return cls(edges, files, assigned)


@dataclass(frozen=True)
class Restored:
    """What of the restored checkpoint comes to one subtask, by step id."""

    keyed_state: dict[str, list[StateFile]] = field(default_factory=dict)
    """The lists of old subtasks that had some of its key groups, one after the other, for what it takes of them."""
    operators: dict[str, list[Any]] = field(default_factory=dict)
    """Each entry is one old subtask's `Operator.snapshot`."""
    broadcast: dict[str, dict[str, dict[bytes, bytes]]] = field(default_factory=dict)
    """One old subtask's broadcast state by its name; all had the same."""
    broadcast_contents: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What its entries are (`StateContent.to_wire`), by state."""
    lists: dict[str, Stored] = field(default_factory=dict)
    """Its part of operator list and union state."""
    sources: dict[str, list[Any]] = field(default_factory=dict)
    """Every old subtask's `SourceReader.snapshot`; a missing step wasn't in the checkpoint."""
    sinks: dict[str, SinkState] = field(default_factory=dict)
    """State of the writers that this subtask hosts."""
    event_time: dict[str, list[Any]] = field(default_factory=dict)
    """For the head step: every old subtask's watermarks of its inputs."""
    watermarks: dict[str, list[Any]] = field(default_factory=dict)
    """For steps that make watermarks: every old subtask's watermarks."""
    in_flight: RestoredInFlight = field(default_factory=RestoredInFlight)
