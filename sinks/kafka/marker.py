"""The marker: how far a writer's output is committed, kept in Kafka in the same transaction as the output.

It is a committed offset of the writer's own consumer group: the offset is the checkpoint id, the rest is its metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from sinks.kafka.errors import ForeignMarker
from sinks.recovery import OutputMarker
from sinks.sink import CommittableName, Lineage

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Marker(OutputMarker):
    committer: str = ""
    """The committer that wrote it: one of another driver may give the same names to other records."""

    def to_metadata(self) -> str:
        """The offset's metadata: about 200 bytes of JSON (brokers allow 4,096)."""
        fields = {
            "weir": _FORMAT,
            "lineage": self.lineage.id,
            "parent": self.lineage.parent,
            "last": self.last.to_wire() if self.last else None,
            "writer": self.committer,
        }
        return orjson.dumps(fields).decode()

    @classmethod
    def from_metadata(cls, group: str, checkpoint: int, metadata: str | None) -> Marker:
        """
        Raises:
            ForeignMarker: the offset was not written by Weir.
        """
        try:
            fields = orjson.loads(metadata or "")
            if fields["weir"] != _FORMAT:
                raise ValueError(f"format {fields['weir']}")
            parent, last = fields["parent"], fields["last"]
            return cls(
                Lineage(fields["lineage"], (parent[0], parent[1]) if parent else None),
                checkpoint,
                CommittableName.from_wire(last) if last else None,
                fields["writer"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ForeignMarker(
                f"group {group!r} has a committed offset that is not a marker of this version of Weir ({error}): "
                f"{metadata!r}. Leave groups with a sink's names to the sink, or set another transactional_id_prefix."
            ) from error

    def to_wire(self) -> list[Any]:
        """For a checkpoint; msgpack-able."""
        last = self.last.to_wire() if self.last else None
        parent = list(self.lineage.parent) if self.lineage.parent else None
        return [self.lineage.id, parent, self.checkpoint, last, self.committer]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> Marker:
        lineage, parent, checkpoint, last, committer = wire
        return cls(
            Lineage(lineage, (parent[0], parent[1]) if parent else None),
            checkpoint,
            CommittableName.from_wire(last) if last else None,
            committer,
        )

    def __str__(self) -> str:
        last = f"segment {self.last.epoch}/{self.last.index}" if self.last else "no segment"
        return f"checkpoint {self.checkpoint} of lineage {self.lineage.id}, up to {last}"
