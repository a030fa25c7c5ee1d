"""One checkpoint in one subtask: from its snapshot until everything is there that its acknowledgement needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from checkpoint.barriers.events import Barrier
from checkpoint.elements import ChannelName, InFlight
from checkpoint.in_flight.captured import CapturedState
from checkpoint.in_flight.restored_input import InFlightEntry
from checkpoint.storage.metadata import OperatorSnapshot


class PendingSnapshot:
    """Parts arrive from the task thread (what was in flight), the network thread (barriers that leave, captures that
    close) and the snapshot pool (state that is written); whoever brings the last one completes it, so that a record
    which takes long holds nothing up.
    """

    def __init__(
        self,
        barrier: Barrier,
        outputs: Iterable[ChannelName],
        inputs: Iterable[ChannelName],
        restored: list[InFlightEntry],
        statistics: dict[str, Any],
        complete: Callable[[PendingSnapshot], None],
    ) -> None:
        """
        Args:
            outputs: channels whose queues the barrier has to leave.
            inputs: channels whose barrier has to arrive.
            restored: what is left of the restored input.
            complete: called once, by whichever thread brings the last part.
        """
        self.barrier = barrier
        self.checkpoint_id = barrier.checkpoint_id
        self.statistics = statistics
        self.captured = CapturedState(restored, {}, {})
        self.operators: Mapping[str, OperatorSnapshot] | None = None
        self.reused_bytes = 0
        """Of its files: the sizes of those of earlier checkpoints."""
        self._outputs = set(outputs)
        self._inputs = set(inputs)
        self._complete = complete
        self._over = False
        self._lock = threading.Lock()

    def output_captured(self, channel: ChannelName, elements: list[InFlight]) -> None:
        """The barrier has overtaken this in an output queue. Comes before `barrier_left` of that channel."""
        if elements:
            self.captured.outputs[channel] = elements

    def barrier_left(self, channel: ChannelName) -> None:
        with self._lock:
            self._outputs.discard(channel)
        self._look()

    def input_captured(self, channel: ChannelName, elements: list[InFlight]) -> None:
        with self._lock:
            self._inputs.discard(channel)
            if elements:
                self.captured.inputs[channel] = elements
        self._look()

    def state_written(self, operators: Mapping[str, OperatorSnapshot], complete: Callable[[], None]) -> None:
        """`complete`: called instead of what was given at first, if this is the last part."""
        self.operators = operators
        if self._is_last():
            complete()

    def drop(self) -> None:
        """The checkpoint is given up: it will never complete here."""
        with self._lock:
            self._over = True

    def waiting(self) -> tuple[list[ChannelName], list[ChannelName]]:
        """Output channels that the barrier has not left, and input channels on which it has not arrived."""
        with self._lock:
            return sorted(self._outputs), sorted(self._inputs)

    def _look(self) -> None:
        if self._is_last():
            self._complete(self)

    def _is_last(self) -> bool:
        """Whether everything is there, and nobody has seen that before."""
        with self._lock:
            if self._over or self._outputs or self._inputs or self.operators is None:
                return False
            self._over = True
        return True
