"""What a subtask is made from: the job as Spark ships it, and its place in it as the driver assigns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from checkpoint.handles import FileHandle
from pipeline.buffers import BufferConfig


@dataclass(frozen=True)
class JobSpec:
    """The same for every subtask of an attempt. Pickled by Spark, user code included."""

    pipeline: str
    plan: bytes
    """From `pipeline.runtime.packing.pack_plan`."""
    max_parallelism: int
    buffers: BufferConfig
    checkpoint_uri: str
    compression: Literal["lz4", "zstd", "none"]
    interval: float | None
    """Seconds; `None` without periodic checkpoints."""
    timeout: float
    min_pause: float
    max_concurrent: int
    owner_epoch: int
    claim: Any
    """Wire form of this attempt's `checkpoint.owners.Claim`."""
    driver: tuple[str, int]
    """Address of the coordinator server."""
    secret: bytes
    """Authenticates every connection of this attempt."""
    versions: dict[str, str]
    """Versions of Python and Weir on the driver, which workers must have, too."""
    probe: list[Any] | None
    """Wire form of a `checkpoint.probe.Probe`: every worker must see the same checkpoint folder."""
    failpoints: list[Any]


@dataclass(frozen=True)
class Deployment:
    """One subtask's place. Travels as msgpack."""

    subtask: int
    """Global number."""
    peers: dict[int, tuple[str, int]]
    """Data address of every subtask."""
    lineage: tuple[str, tuple[str, int] | None]
    restored_checkpoint: int
    """0 at a start without restore."""
    rewind: bool
    ignore_earlier_output: bool
    allow_unclaimed: bool
    restore: Restored

    def to_wire(self) -> dict[str, Any]:
        return {
            "subtask": self.subtask,
            "peers": [[i, host, port] for i, (host, port) in self.peers.items()],
            "lineage": [self.lineage[0], list(self.lineage[1]) if self.lineage[1] else None],
            "restored_checkpoint": self.restored_checkpoint,
            "rewind": self.rewind,
            "ignore_earlier_output": self.ignore_earlier_output,
            "allow_unclaimed": self.allow_unclaimed,
            "restore": self.restore.to_wire(),
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Deployment:
        id, parent = wire["lineage"]
        return cls(
            wire["subtask"],
            {i: (host, port) for i, host, port in wire["peers"]},
            (id, (parent[0], parent[1]) if parent else None),
            wire["restored_checkpoint"],
            wire["rewind"],
            wire["ignore_earlier_output"],
            wire["allow_unclaimed"],
            Restored.from_wire(wire["restore"]),
        )


@dataclass(frozen=True)
class Restored:
    """What of the restored checkpoint comes to one subtask, by step id."""

    keyed_state: dict[str, list[FileHandle]] = field(default_factory=dict)
    operators: dict[str, list[Any]] = field(default_factory=dict)
    """Each entry is one old subtask's `Operator.snapshot`."""
    sources: dict[str, list[Any]] = field(default_factory=dict)
    """Every old subtask's `SourceReader.snapshot`; a missing step wasn't in the checkpoint."""
    sinks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """`pending` and `committers` of the owners hosted here, as `SinkDriver.snapshot` wrote them."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "keyed_state": {id: [h.to_wire() for h in handles] for id, handles in self.keyed_state.items()},
            "operators": self.operators,
            "sources": self.sources,
            "sinks": self.sinks,
        }

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Restored:
        return cls(
            {id: [FileHandle.from_wire(h) for h in handles] for id, handles in wire["keyed_state"].items()},
            wire["operators"],
            wire["sources"],
            wire["sinks"],
        )
