"""What users subclass to process records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from checkpoint.state import DeclaresState


class OperatorContext(Protocol):
    """What an operator may ask about the record in hand and its place in the job."""

    @property
    def key(self) -> Any:
        """The stream's key; `None` on a stream that isn't keyed."""

    @property
    def timestamp(self) -> int | None:
        """The record's time in milliseconds since the epoch, if its source knows one."""

    @property
    def watermark(self) -> int | None:
        """Current event time in milliseconds; `None` on a stream without watermarks."""

    @property
    def subtask(self) -> int:
        """Index of this parallel instance, from 0."""

    @property
    def parallelism(self) -> int: ...

    def side_output(self, tag: str, value: Any) -> None:
        """Emit to `stream.side_output(tag)`."""


class Operator:
    """A step of the user's own; one copy works in each subtask.

    An instance is pickled on the driver, so open files and clients belong into `open`. An exception raised by any
    method fails the attempt; the job then restarts from its newest checkpoint, as its restart strategy says.
    """

    def open(self, ctx: OperatorContext) -> None:
        """Called once in the subtask, after state is restored and before the first record."""

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any] | None:
        """Handle one record; return (or yield) what to emit. Emitted records keep the record's timestamp."""
        raise NotImplementedError(f"{type(self).__name__} must implement process")

    def close(self) -> None:
        """Release what `open` made. Called once, also after a failure."""

    def snapshot(self, checkpoint_id: int) -> Any:
        """State of the operator's own, beside its keyed state: a value that msgpack can carry, or `None`."""
        return None

    def restore(self, state: Any) -> None:
        """Called before `open` with what `snapshot` returned; once for each old subtask whose state comes here."""
        raise NotImplementedError(
            f"{type(self).__name__} returned state from snapshot but doesn't implement restore, so it can't be restored"
        )

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is durable. May come late or be skipped over; ids only grow."""

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint won't complete."""


class KeyedOperator(DeclaresState, Operator):
    """An operator behind `key_by`, with state per key declared as class attributes.

    class RunningTotal(KeyedOperator):
        total = ValueState(default=0.0)

        def process(self, order, ctx):
            self.total.value += order["amount"]
            yield {"user": ctx.key, "total": self.total.value}
    """
