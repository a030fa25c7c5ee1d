"""`ctx`: what user code sees beside the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from checkpoint.codec import decode_key
from checkpoint.event_time.group_watermarks import GroupWatermarks
from checkpoint.state import KeyedBackend, StateAccessError
from pipeline.plan import Vertex
from pipeline.runtime.subtask.record_in_progress import RecordInProgress

_CACHED_KEYS: Final = 100_000


class Context:
    """One for each step of a subtask, for as long as that runs.

    Implements `pipeline.operators.OperatorContext`.
    """

    __slots__ = (
        "_decoded",
        "_record",
        "backend",
        "groups",
        "held",
        "parallelism",
        "side_outputs",
        "subtask",
        "watermark",
    )

    def __init__(self, record: RecordInProgress, subtask: int, parallelism: int):
        self._record = record
        self._decoded = record.decoded
        self.subtask = subtask
        self.parallelism = parallelism
        self.watermark: int | None = None
        """Event time at this step. Its domain shows it (`TimeDomain.show`), in front of what `on_watermark` emits."""
        self.backend: KeyedBackend | None = None
        """Keeps the step's timers; `None` = it can't have any."""
        self.groups: GroupWatermarks | None = None
        """Knows the key groups that are ahead of `watermark`; `None` = there are none."""
        self.side_outputs: dict[str, Callable[[Any], None]] = {}
        """Those of the step that somebody reads, by tag."""
        self.held: list[tuple[Callable[[Any], None], Any, int | None]] | None = None
        """What the step emits while that is held back, where to and with which timestamp: it has `on_error`, and is not
        done yet."""

    @property
    def timestamp(self) -> int | None:
        return self._record.timestamp

    @property
    def key_watermark(self) -> int | None:
        """See `pipeline.operators.OperatorContext`."""
        groups, record = self.groups, self._record
        if groups is None or record.key_bytes is None:
            return self.watermark
        return groups.of(record.key_group, self.watermark)

    @property
    def processing_time(self) -> int:
        """See `pipeline.operators.OperatorContext`."""
        now = self._with_timers("processing_time").processing_clock.latest
        assert now is not None  # it began with the subtask
        return now

    def emit_at(self, timestamp: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("emit_at")
        self._record.timestamp = timestamp

    def show_timestamp(self, timestamp: int | None) -> None:
        """What is handed on next has this timestamp, which it was emitted with."""
        self._record.timestamp = timestamp

    @property
    def key(self) -> Any:
        encoded = self._record.key_bytes
        if encoded is None:
            return None
        decoded = self._decoded.get(encoded)
        return self._decode(encoded) if decoded is None else decoded  # a key that is None is decoded again each time

    def keys_of(self, encoded: list[bytes | None]) -> list[Any]:
        """`key` of many records, by their `key_bytes`."""
        known, decode = self._decoded, self._decode
        return [None if one is None else known[one] if one in known else decode(one) for one in encoded]

    def _decode(self, encoded: bytes) -> Any:
        if len(self._decoded) >= _CACHED_KEYS:
            self._decoded.clear()
        decoded = self._decoded[encoded] = decode_key(encoded)
        return decoded

    def side_output(self, tag: str, value: Any) -> None:
        emit = self.side_outputs.get(tag)
        # A side output that nobody reads is dropped, as in Flink.
        if emit is not None and not self._record.muted:
            emit(value)

    def timer(self, at: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("timer").event_timers.register(at, self._record.timestamp)

    def processing_timer(self, at: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("processing_timer").processing_timers.register(at)

    def delete_timer(self, at: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("delete_timer").event_timers.delete(at)

    def delete_processing_timer(self, at: int) -> None:
        """See `pipeline.operators.OperatorContext`."""
        self._with_timers("delete_processing_timer").processing_timers.delete(at)

    def _with_timers(self, method: str) -> KeyedBackend:
        backend = self.backend
        if backend is None:
            raise StateAccessError(
                f"ctx.{method} was called outside of a KeyedOperator; timers belong to a key, so derive the operator "
                "from KeyedOperator and put key_by(...) right before it"
            )
        return backend

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that aren't slots: what the source offers (offset, headers, …).
        rows = None if name.startswith("_") else self._record.source_rows
        if rows is not None:
            return getattr(rows[self._record.row], name)
        raise AttributeError(
            f"ctx.{name} isn't there: ctx has key, timestamp, watermark, key_watermark, processing_time, "
            "subtask, parallelism, emit_at, side_output, timer, processing_timer, delete_timer and "
            "delete_processing_timer, and in steps chained to a Kafka source headers, topic, partition, offset and "
            "kafka_key"
        )


def contexts_of(vertex: Vertex, record: RecordInProgress, subtask: int) -> dict[str, Context]:
    """A context for each step of a vertex, by step id."""
    return {step.id: Context(record, subtask, vertex.parallelism) for step in vertex.steps}
