"""`OperatorHarness`: one operator, run as in a job, without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoint.codec import decode, encode, encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import HeapBackend, bind, read_snapshot
from pipeline.operators import KeyedOperator, Operator
from pipeline.runtime.context import Context

_MAX_PARALLELISM = 128


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """What a checkpoint would hold of the operator."""

    keyed_state: bytes
    """A state file (see `checkpoint.state.snapshot`); empty for an operator without keyed state."""
    operator_state: bytes
    """`Operator.snapshot`, as msgpack."""


class OperatorHarness:
    """Runs an operator record by record.

    What goes in and comes out is encoded and decoded as by a channel (tuples become lists, what msgpack can't carry is
    refused), so that a test can't pass on what a job would change.

        harness = OperatorHarness(RunningTotal())
        harness.process({"user": "ann", "amount": 2.5}, key="ann")
        assert harness.outputs == [{"user": "ann", "total": 2.5}]
    """

    def __init__(self, operator: Operator):
        self._prepare(operator)
        operator.open(self._context)

    @classmethod
    def restore(cls, operator: Operator, snapshot: HarnessSnapshot) -> OperatorHarness:
        """A new harness for a new operator, with the state of a snapshot."""
        harness = cls.__new__(cls)
        harness._prepare(operator)
        if harness._backend is not None and snapshot.keyed_state:
            harness._backend.restore(read_snapshot(snapshot.keyed_state))
        state = decode(snapshot.operator_state)
        if state is not None:
            operator.restore(state)
        operator.open(harness._context)
        return harness

    def _prepare(self, operator: Operator) -> None:
        self.operator = operator
        self.outputs: list[Any] = []
        """All that was emitted, in order."""
        self.side_outputs: dict[str, list[Any]] = {}
        """What was emitted to side outputs, by tag."""
        self._context = _HarnessContext(self.side_outputs)
        self._backend: HeapBackend | None = None
        self._checkpoint = 0
        if isinstance(operator, KeyedOperator):
            self._backend = HeapBackend(range(_MAX_PARALLELISM), _MAX_PARALLELISM)
            bind(operator, self._backend)

    def process(self, value: Any, key: Any = None, timestamp: int | None = None) -> list[Any]:
        """Process one record; returns what it emitted. `timestamp`: milliseconds since the epoch.

        Raises:
            EncodingError: the record, its key or an output couldn't travel in a channel.
        """
        context = self._context
        context.timestamp = timestamp
        context.key_bytes = None
        if self._backend is not None:
            encoded = encode_key(key)
            context.key_bytes = encoded
            self._backend.set_current_key(encoded, key_group(encoded, _MAX_PARALLELISM))
        emitted = [decode(encode(output)) for output in self.operator.process(decode(encode(value)), context) or ()]
        self.outputs += emitted
        return emitted

    def snapshot(self) -> HarnessSnapshot:
        """Take a checkpoint of the operator."""
        self._checkpoint += 1
        self._leave_record()
        state = encode(self.operator.snapshot(self._checkpoint))
        keyed = bytearray()
        if self._backend is not None:
            self._backend.freeze().write(keyed.extend, "none")
        return HarnessSnapshot(bytes(keyed), state)

    def complete_checkpoint(self) -> None:
        """Tell the operator that the checkpoint last taken is complete."""
        self._leave_record()
        self.operator.on_checkpoint_complete(self._checkpoint)

    def abort_checkpoint(self) -> None:
        """Tell the operator that the checkpoint last taken won't complete."""
        self._leave_record()
        self.operator.on_checkpoint_aborted(self._checkpoint)

    def close(self) -> None:
        self._leave_record()
        self.operator.close()

    def _leave_record(self) -> None:
        """Where there is no record, there is no key, either."""
        self._context.key_bytes = None
        if self._backend is not None:
            self._backend.clear_current_key()


class _HarnessContext(Context):
    """Keeps every side output, read or not."""

    __slots__ = ("_kept",)

    def __init__(self, kept: dict[str, list[Any]]):
        super().__init__(0, 1)
        self._kept = kept

    def side_output(self, tag: str, value: Any) -> None:
        self._kept.setdefault(tag, []).append(decode(encode(value)))
