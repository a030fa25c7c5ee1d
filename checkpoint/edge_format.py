"""How the records of one edge become bytes: in channels, in channel state, and when what was in flight is spread anew.

The plan says which format an edge has (`PlannedEdge.format`), and a checkpoint remembers it (`EdgeShape.format`).
`checkpoint.row_format` is the one there is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from checkpoint.codec import encode_key
from checkpoint.elements import Payload

NO_KEY: Final = encode_key(None)
"""Key of a record that has none, on an edge whose batches have keys since others have one. Its key group is the first
of the subtask it belongs to, so that all such records of a subtask stay together when they are rescaled."""


class DecodedRows(NamedTuple):
    """A batch as Python lists, one item a record."""

    values: list[Any]
    timestamps: list[int | None] | None
    """Event times in ms; `None` if no record has one."""
    keys: list[bytes] | None
    """Encoded keys; `None` where the edge carries none."""
    key_groups: list[int] | None


class StoredRows(NamedTuple):
    """A batch as columns of channel state (see `checkpoint.in_flight.channel_state`)."""

    values: Any
    timestamps: Any
    key_groups: Any
    """`None` where the edge carries no keys."""
    keys: Any
    """`None` where the edge carries no keys."""


class BatchBuilder(Protocol):
    """Collects records for one channel until the batch is sealed. Not thread-safe."""

    size: int
    """Bytes of the records so far, as they count against credit."""

    @property
    def rows(self) -> int:
        """How many records there are."""

    def append(self, value: bytes, timestamp: int | None) -> None:
        """Add a record of an edge that carries no keys: its value as `codec.encode` gives it, its event time in ms."""

    def append_keyed(self, value: bytes, timestamp: int | None, key: bytes, group: int) -> None:
        """Add a record of an edge that carries keys: `key` as `codec.encode_key` gives it, `group` its key group."""

    def seal(self) -> Any:
        """The records so far as a batch; the builder is empty afterwards.

        Raises:
            ValueError: records with and without keys were mixed, or the batch exceeds 2 GiB.
        """


class EdgeFormat(ABC):
    """A batch is a `pyarrow.RecordBatch`, or a slice of one; its payload is what travels of it. Knows of no records
    itself, so that all subtasks share one instance."""

    carries_keys: bool
    """Batches have each record's key and key group."""

    @abstractmethod
    def builder(self) -> BatchBuilder:
        """An empty batch in the making."""

    @abstractmethod
    def to_frame(self, batch: Any) -> Any:
        """The batch as a `pyarrow.Buffer`. Of a slice only the rows it shows are written."""

    @abstractmethod
    def from_frame(self, frame: Payload) -> Any:
        """The batch of a payload; it refers to the payload's memory.

        Raises:
            ValueError: the payload is cut off or damaged, or lacks the keys of an edge that carries them. (The other
                way round Arrow can't tell: a payload with keys, taken for one without, loses them.)
        """

    @abstractmethod
    def rows(self, batch: Any) -> DecodedRows:
        """Decode a batch.

        Raises:
            DecodingError: a value is damaged.
        """

    @abstractmethod
    def pieces(self, batch: Any, target: int) -> Iterator[Any]:
        """The batch cut into slices of up to `target` bytes, or of one row."""

    @abstractmethod
    def to_stored(self, batch: Any) -> StoredRows:
        """The columns of channel state."""

    @abstractmethod
    def from_stored(self, rows: StoredRows) -> Any:
        """The batch that `to_stored` gave the columns of."""

    @abstractmethod
    def with_keys(self, batch: Any, key_groups: Any, keys: Any) -> Any:
        """A batch of any edge as one of this edge, which carries keys, with these key groups and keys (Arrow arrays)
        instead of what it has."""

    @abstractmethod
    def without_keys(self, batch: Any) -> Any:
        """A batch of any edge as one of this edge, which carries no keys."""

    def rest(self, batch: Any, start: int) -> Any:
        """The rows from `start` on, without copying: what is left of a batch when a barrier falls into it."""
        return batch.slice(start)
