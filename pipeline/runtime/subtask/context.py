"""`ctx`: what user code sees beside the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from checkpoint.codec import decode_key
from checkpoint.state import HeapBackend, StateAccessError

_CACHED_KEYS = 100_000


class Context:
    """One for each subtask; the record loop moves it from record to record.

    Implements `pipeline.operators.OperatorContext`.
    """

    __slots__ = (
        "_decoded",
        "backend",
        "key_bytes",
        "key_group",
        "parallelism",
        "row",
        "side_outputs",
        "source_rows",
        "source_splits",
        "subtask",
        "timestamp",
        "watermark",
    )

    def __init__(self, subtask: int, parallelism: int):
        self.subtask = subtask
        self.parallelism = parallelism
        self.timestamp: int | None = None
        self.watermark: int | None = None
        """At this place of the chain: steps behind `assign_timestamps` have another one."""
        self.key_bytes: bytes | None = None
        self.key_group = 0
        """Of `key_bytes`; meaningless without a key."""
        self.row = 0
        self.source_rows: Sequence[Any] | None = None
        """What the source knows of each record of its batch; `row` is the one in progress."""
        self.source_splits: Any = None
        """Of the source's batch: a list with the split of each record, or the split of all of them."""
        self.backend: HeapBackend | None = None
        """Keeps the timers of the operator that is running; `None` = it can't have any."""
        self.side_outputs: dict[str, Callable[[Any], None]] = {}
        """By tag, those of the step that is running."""
        self._decoded: dict[bytes, Any] = {}

    @property
    def key(self) -> Any:
        encoded = self.key_bytes
        if encoded is None:
            return None
        decoded = self._decoded.get(encoded)
        if decoded is None:  # or the key is None, which is decoded again each time
            if len(self._decoded) >= _CACHED_KEYS:
                self._decoded.clear()
            decoded = self._decoded[encoded] = decode_key(encoded)
        return decoded

    def side_output(self, tag: str, value: Any) -> None:
        emit = self.side_outputs.get(tag)
        # A side output that nobody reads is dropped, as in Flink.
        if emit is not None:
            emit(value)

    def timer(self, at: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("timer").event_timers.register(at, self.timestamp)

    def processing_timer(self, at: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("processing_timer").processing_timers.register(at)

    def delete_timer(self, at: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("delete_timer").event_timers.delete(at)

    def delete_processing_timer(self, at: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("delete_processing_timer").processing_timers.delete(at)

    def _with_timers(self, method: str) -> HeapBackend:
        backend = self.backend
        if backend is None:
            raise StateAccessError(
                f"ctx.{method} was called outside of a KeyedOperator; timers belong to a key, so derive the operator "
                "from KeyedOperator and put key_by(...) right before it"
            )
        return backend

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that aren't slots: what the source offers (offset, headers, …).
        rows = self.source_rows
        if rows is not None and not name.startswith("_"):
            return getattr(rows[self.row], name)
        raise AttributeError(
            f"ctx.{name} isn't there: ctx has key, timestamp, watermark, subtask, parallelism, side_output, timer, "
            "processing_timer, delete_timer and delete_processing_timer, and in steps chained to a Kafka source "
            "headers, topic, partition, offset and kafka_key"
        )
