"""`OperatorHarness`: one operator, run as in a job, without one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, Unpack

from checkpoint.codec import copied, decode, encode, encode_key
from checkpoint.elements import ChannelName, EdgeName
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.key_groups import key_group
from checkpoint.options import named_options
from checkpoint.state import BroadcastState, KeyedBackend, StateAccessError, descriptors_of, make_backend, read_batches
from checkpoint.state.operator_lists import shared_out
from checkpoint.state_backends import StateBackend, checked_state_backend
from pipeline.graph import StepKind
from pipeline.on_error import ERRORS, OnError, on_error_of
from pipeline.operators import KeyedOperator, Operator
from pipeline.plan import PlannedStep, Vertex
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.streams.checks import check_operator_itself
from pipeline.testing.clock import ManualClock
from pipeline.testing.source_record import SourceFields, SourceRecord, check_source_fields

_MAX_PARALLELISM = 128
_STEP = "operator"
_INPUT = ChannelName(EdgeName("test", _STEP, ""), 0, 0)

Method: TypeAlias = Literal["process", "process_connected"]
Broadcast: TypeAlias = Method | None


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """What a checkpoint would hold of the operator."""

    keyed_state: bytes
    """A state file (see `checkpoint.state.snapshot_format`), timers included; empty if there is no keyed state."""
    operator_state: bytes
    """`Operator.snapshot`, as msgpack."""
    broadcast_state: bytes
    """As msgpack."""
    operator_lists: bytes
    """Operator list and union state, as msgpack."""
    event_time: bytes
    """The watermark, as msgpack."""
    broadcast_contents: bytes = encode({})
    """What the entries of broadcast state are, as msgpack."""


@named_options
class OperatorHarness:
    """Runs an operator record by record.

    What goes in and comes out is encoded and decoded as by a channel, so that a test can't pass on what a job would
    refuse.

        harness = OperatorHarness(RunningTotal())
        harness.process({"user": "ann", "amount": 2.5}, key="ann")
        assert harness.outputs == [{"user": "ann", "total": 2.5}]

    Time passes only when the test says so: event time by `watermark`, processing time by `advance_time`. So does the
    time to live of state:

        harness = OperatorHarness(FirstOrders())  # with seen = ValueState(ttl=3600)
        assert harness.process({"amount": 5}, key="ann") == [{"user": "ann", "first": 5}]
        assert harness.process({"amount": 6}, key="ann") == []
        harness.advance_time(3600)
        assert harness.process({"amount": 7}, key="ann") == [{"user": "ann", "first": 7}]
    """

    def __init__(
        self,
        operator: Operator,
        broadcast: Broadcast = None,
        clock: ManualClock | None = None,
        state_backend: StateBackend = "heap",
        on_error: OnError = "fail",
    ):
        """
        Args:
            operator: the one to run.
            broadcast: the method for records of a broadcast stream. They have no key, and may change broadcast state.
            clock: processing time, in seconds since the epoch; without one it begins at 0.
            state_backend: where keyed state is, as `CheckpointConfig` has it.
            on_error: as of `process`; `errors` has what was left out.

        Raises:
            PipelineError: a job would refuse the operator, wherever it stands.
        """
        self._prepare(operator, broadcast, clock, state_backend, on_error)
        self._open()

    @classmethod
    def restore(
        cls,
        operator: Operator,
        snapshot: HarnessSnapshot | Sequence[HarnessSnapshot],
        broadcast: Broadcast = None,
        clock: ManualClock | None = None,
        state_backend: StateBackend = "heap",
        on_error: OnError = "fail",
    ) -> OperatorHarness:
        """A new harness for a new operator, with the state of a snapshot. Timers that are due fire at the next
        `watermark` or `advance_time`.

        Args:
            snapshot: several stand for as many subtasks, each with keys of its own, that have become this one. Event
                time is that of the slowest.
        """
        snapshots = [snapshot] if isinstance(snapshot, HarnessSnapshot) else list(snapshot)
        if not snapshots:
            raise ValueError("there is no snapshot to restore")
        harness = cls.__new__(cls)
        harness._prepare(operator, broadcast, clock, state_backend, on_error)
        harness._chain.restore_broadcast(
            _STEP, decode(snapshots[0].broadcast_state), contents=decode(snapshots[0].broadcast_contents)
        )
        lists = {i: decode(one.operator_lists) for i, one in enumerate(snapshots)}
        harness._chain.restore_lists(_STEP, shared_out(lists, len(snapshots), 0, 1))
        for one in snapshots:
            if harness._backend is not None and one.keyed_state:
                harness._backend.restore(read_batches(one.keyed_state))
            state = decode(one.operator_state)
            if state is not None:
                operator.restore(state)
        times = [decode(one.event_time) for one in snapshots]
        slowest = min(times, key=lambda time: -math.inf if time["emitted"] is None else time["emitted"])
        groups = _furthest(group for time in times for group in time.get("groups", ()))
        harness._seen.update(group for time in times for group in time.pop("seen"))
        reached = [[group, group + 1, watermark] for group, watermark in groups.items()]
        harness._event_time.restore([{**slowest, "groups": reached}], {}, same_topology=True)
        harness._open()
        return harness

    def _prepare(
        self,
        operator: Operator,
        broadcast: Broadcast,
        clock: ManualClock | None,
        backend: StateBackend,
        on_error: OnError,
    ) -> None:
        if broadcast not in (None, "process", "process_connected"):
            raise ValueError(f'broadcast must be None, "process" or "process_connected", not {broadcast!r}')
        check_operator_itself(operator)
        self.operator = operator
        self.outputs: list[Any] = []
        """All that was emitted, in order."""
        self.timestamps: list[int | None] = []
        """The timestamp of each of them, in milliseconds; `None` = it has none."""
        self.side_outputs: dict[str, list[Any]] = {}
        """What was emitted to side outputs, by tag."""
        self.errors: list[dict[str, Any]] = []
        """The records and timers that the operator failed on and that were left out, as `stream.errors()` has them."""
        self.clock = clock or ManualClock()
        """Processing time."""
        self._record = RecordInProgress()
        self._backend: KeyedBackend | None = None
        self._checkpoint = 0
        self._seen: set[int] = set()
        """The key groups of all keys that there were."""
        if isinstance(operator, KeyedOperator):
            self._backend = make_backend(
                range(_MAX_PARALLELISM), _MAX_PARALLELISM, state_backend=checked_state_backend(backend)
            )
        self._broadcast = broadcast
        inputs = frozenset({} if broadcast is None else {int(broadcast == "process_connected")})
        step = PlannedStep(
            _STEP,
            StepKind.PROCESS,
            operator,
            None,
            None,
            connected=True,
            broadcast_inputs=inputs,
            on_error=on_error_of(on_error, "OperatorHarness"),
        )
        self._chain = Chain(
            Vertex(0, _STEP, 1, 0, (step,)),
            self._record,
            {_STEP: _HarnessContext(self._record, self.side_outputs)},
            {},
            {(_STEP, None): [self._emit], (_STEP, ERRORS): [self._keep_error]},
            self._backend,
            self.clock,
        )
        self._event_time = EventTime(
            chain=self._chain,
            backend=self._backend,
            writers=[],
            mailbox=Mailbox(),
            channels=[_INPUT],
            clock=self.clock,
            wall_clock=self.clock,
        )

    def _open(self) -> None:
        self._chain.open()
        self._event_time.open()

    def _emit(self, output: Any) -> None:
        self.outputs.append(copied(output))
        self.timestamps.append(self._record.timestamp)

    def _keep_error(self, letter: Any) -> None:
        self.errors.append(copied(letter))

    def process(
        self, value: Any, key: Any = None, timestamp: int | None = None, **source: Unpack[SourceFields]
    ) -> list[Any]:
        """Process one record; returns what it emitted.

        Timers that it sets for a time that has passed fire at the next `watermark` or `advance_time`.

        Args:
            timestamp: milliseconds since the epoch.
            source: what `ctx` tells of the record in a step that is chained to its source: topic, partition, offset,
                headers and kafka_key, as far as they are given.

        Raises:
            EncodingError: the record, its key or an output couldn't travel in a channel.
            TypeError: the timestamp is no int.
        """
        return self._process("process", value, key, timestamp, source)

    def process_connected(
        self, value: Any, key: Any = None, timestamp: int | None = None, **source: Unpack[SourceFields]
    ) -> list[Any]:
        """Process one record of the second of two connected streams; like `process`."""
        return self._process("process_connected", value, key, timestamp, source)

    def _process(self, method: Method, value: Any, key: Any, timestamp: int | None, source: SourceFields) -> list[Any]:
        if timestamp is not None and type(timestamp) is not int:
            raise TypeError(f"a timestamp is an int, in milliseconds since the epoch, or None, not {timestamp!r}")
        record = self._record
        self._leave_record()
        self._event_time.on_clock(self.clock())
        record.timestamp = timestamp
        broadcast = method == self._broadcast
        if broadcast and key is not None:
            raise ValueError(f"{method} gets records of a broadcast stream in this harness, and those have no key")
        if self._backend is not None and not broadcast:
            encoded = encode_key(key)
            record.key_bytes, record.key_group = encoded, key_group(encoded, _MAX_PARALLELISM)
            self._seen.add(record.key_group)
            self._backend.set_current_key(encoded, record.key_group)
        before = len(self.outputs)
        push = self._chain.push if method == "process" else self._chain.push_connected
        assert push is not None
        check_source_fields(source)
        record.row, record.source_rows = 0, [SourceRecord(source)] if source else None
        try:
            push(copied(value))
        except StateAccessError as error:
            states = descriptors_of(type(self.operator)).values()
            if broadcast or not any(isinstance(state, BroadcastState) for state in states):
                raise
            name = type(self.operator).__name__
            raise StateAccessError(
                f"{error}. If {method} gets the records of a broadcast stream, tell the harness: "
                f'OperatorHarness({name}(…), broadcast="{method}")'
            ) from error
        finally:
            record.source_rows = None
        return self.outputs[before:]

    def watermark(self, timestamp: int) -> list[Any]:
        """Event time reaches `timestamp`, in milliseconds: timers up to it fire in order, then `on_watermark` is
        called. A watermark that is not ahead of the last one does nothing.

        Returns:
            What was emitted.

        Raises:
            TypeError: it is no int.
            ValueError: it is outside of 64 bits.
        """
        if type(timestamp) is not int:
            raise TypeError(f"a watermark is an int, in milliseconds since the epoch, not {timestamp!r}")
        if not -MAX_WATERMARK - 1 <= timestamp <= MAX_WATERMARK:
            raise ValueError(f"a watermark at {timestamp} is outside of what 64 bits can hold; the end is 2**63 - 1")
        self._event_time.on_watermark(_INPUT, timestamp)
        return self._fire()

    def advance_time(self, seconds: float) -> list[Any]:
        """Let processing time pass: timers up to then fire in order.

        Returns:
            What was emitted.
        """
        self._event_time.on_clock(self.clock.advance(seconds))
        return self._fire()

    def end_of_input(self) -> list[Any]:
        """All input has ended: event time ends as with `watermark(2**63 - 1)`, and processing timers that are not due
        never fire.

        Returns:
            What was emitted.
        """
        self._event_time.end_of_input()
        return self._fire()

    @property
    def timers_dropped(self) -> int:
        """Event timers that were not set, since timers would have set each other for ever at the end of event time."""
        return 0 if self._backend is None else self._backend.event_timers.dropped

    def _fire(self) -> list[Any]:
        before = len(self.outputs)
        self._event_time.fire()
        return self.outputs[before:]

    def snapshot(self) -> HarnessSnapshot:
        """Take a checkpoint of the operator."""
        self._checkpoint += 1
        self._leave_record()
        self._event_time.on_clock(self.clock())
        state = encode(self._chain.snapshot(self._checkpoint).get(_STEP))
        keyed = bytearray()
        if self._backend is not None:
            self._backend.freeze().write(keyed.extend, "none")
        broadcast = self._chain.broadcast_snapshot().get(_STEP, {})
        lists = self._chain.freeze_lists()
        return HarnessSnapshot(
            bytes(keyed),
            state,
            encode(broadcast),
            encode(lists[_STEP].stored() if _STEP in lists else {}),
            encode(self._event_time_of_own_keys()),
            encode(self._chain.broadcast_contents().get(_STEP, {})),
        )

    def _event_time_of_own_keys(self) -> dict[str, Any]:
        """Another harness, which may become one with this, has keys of its own."""
        state = self._event_time.snapshot()
        groups = [
            [group, group + 1, watermark]
            for first, stop, watermark in state.get("groups", ())
            for group in sorted(self._seen & set(range(first, stop)))
        ]
        return {**state, "groups": groups, "seen": sorted(self._seen)}

    def complete_checkpoint(self) -> None:
        """Tell the operator that the checkpoint last taken is complete."""
        self._leave_record()
        self._chain.notify(self._checkpoint, completed=True)

    def abort_checkpoint(self) -> None:
        """Tell the operator that the checkpoint last taken won't complete."""
        self._leave_record()
        self._chain.notify(self._checkpoint, completed=False)

    def close(self) -> None:
        self._leave_record()
        self._chain.close()
        if self._backend is not None:
            self._backend.close()

    def _leave_record(self) -> None:
        """Where there is no record, there is no key, either."""
        self._record.leave()
        if self._backend is not None:
            self._backend.clear_current_key()


def _furthest(groups: Iterable[Sequence[int]]) -> dict[int, int]:
    """How far each key group has come, where several harnesses may have had keys of one group."""
    found: dict[int, int] = {}
    for group, _, watermark in groups:
        found[group] = max(watermark, found.get(group, watermark))
    return found


class _HarnessContext(Context):
    """Keeps every side output, read or not."""

    __slots__ = ("_kept",)

    def __init__(self, record: RecordInProgress, kept: dict[str, list[Any]]):
        super().__init__(record, 0, 1)
        self._kept = kept

    def side_output(self, tag: str, value: Any) -> None:
        keep = partial(self._keep, tag)
        if self.held is None:
            keep(copied(value))
        else:
            self.held.append((keep, copied(value), self.timestamp))

    def _keep(self, tag: str, value: Any) -> None:
        self._kept.setdefault(tag, []).append(value)
