"""What users subclass to process records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from checkpoint.state import DeclaresState

if TYPE_CHECKING:
    # With defaults, a plain `Operator` takes and emits anything; Python 3.11 has no such variables at run time.
    from typing_extensions import TypeVar as TypeVarWithDefault

    In = TypeVarWithDefault("In", default=Any, contravariant=True)
    Out = TypeVarWithDefault("Out", default=Any, covariant=True)
    Connected = TypeVarWithDefault("Connected", default=Any, contravariant=True)
else:
    In = TypeVar("In", contravariant=True)
    Out = TypeVar("Out", covariant=True)
    Connected = TypeVar("Connected", contravariant=True)


class OperatorContext(Protocol):
    """What an operator may ask about the record in progress and its place in the job."""

    @property
    def key(self) -> Any:
        """The stream's key; `None` on a stream that isn't keyed."""

    @property
    def timestamp(self) -> int | None:
        """The record's time in milliseconds since the epoch, if its source knows one."""

    @property
    def watermark(self) -> int | None:
        """Current event time in milliseconds; `None` before the first watermark, and on a stream without any."""

    @property
    def key_watermark(self) -> int | None:
        """The highest event time that the current key has seen, in milliseconds: `watermark`, or what its key group had
        reached before the job was rescaled, where that is further.

        After rescaling, a subtask begins with the lowest watermark of those it goes on for, so for some of its keys
        `watermark` has gone back. A record that is at or below `key_watermark` is late for its key: timers up to there
        have fired, or are about to. Only in `process` and `on_timer` of a `KeyedOperator`; elsewhere it is `watermark`.
        """

    @property
    def processing_time(self) -> int:
        """The clock of the host in milliseconds since the epoch, as processing timers see it: Weir reads it between
        batches. Only in `process` and `on_timer` of a `KeyedOperator`."""

    def emit_at(self, timestamp: int) -> None:
        """What is emitted from here on gets this timestamp, until the record or timer is done; `ctx.timestamp` is it,
        too. Only in `process` and `on_timer` of a `KeyedOperator`.

        It may be at or below the watermark; what is late by that downstream, is late there.

        Args:
            timestamp: milliseconds since the epoch.
        """

    @property
    def subtask(self) -> int:
        """Index of this parallel instance, from 0."""

    @property
    def parallelism(self) -> int: ...

    def side_output(self, tag: str, value: Any) -> None:
        """Emit to `stream.side_output(tag)`."""

    def timer(self, at: int) -> None:
        """Have `on_timer(at, ctx)` called for the current key once the watermark reaches `at`.

        Only in `process` and `on_timer` of a `KeyedOperator`. Timers are part of the key's state; a key has at most one
        at a time. One that the watermark has reached already fires soon.

        Args:
            at: milliseconds since the epoch.
        """

    def processing_timer(self, at: int) -> None:
        """Like `timer`, by the clock of the host."""

    def delete_timer(self, at: int) -> None:
        """Take back what `timer(at)` set for the current key, if it has not fired."""

    def delete_processing_timer(self, at: int) -> None:
        """Take back what `processing_timer(at)` set for the current key, if it has not fired."""


class Operator(DeclaresState, Generic[In, Out, Connected]):
    """A step of the user's own; one copy works in each subtask.

    For type checkers it says what it takes and emits: `class Parse(Operator[bytes, Order])`; as the third type, what it
    takes from the second stream of `connect`. A plain `Operator` takes and emits anything.

    An instance is pickled on the driver, so open files and clients belong into `open`. An exception raised by any
    method fails the attempt; the job then restarts from its newest checkpoint, as its restart strategy says. With the
    step's option `on_error` those of `process`, `process_connected` and `on_timer` cost one record only: what it has
    changed in declared state is taken back. Attributes such as `self.count` are not state, and stay as they are.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            given = types if isinstance(types, tuple) else (types,)
            open_ = cls.__parameters__
            if open_ == (In, Out, Connected):  # those left out are of anything
                given = (*given, *[Any] * (len(open_) - len(given)))
            return super().__class_getitem__(given)

    def open(self, ctx: OperatorContext) -> None:
        """Called once in the subtask, after state is restored and before the first record."""

    def process(self, value: In, ctx: OperatorContext) -> Iterable[Out] | None:
        """Handle one record; return (or yield) what to emit. Emitted records keep the record's timestamp."""
        raise NotImplementedError(f"{type(self).__name__} must implement process")

    def process_connected(self, value: Connected, ctx: OperatorContext) -> Iterable[Out] | None:
        """Like `process`, for a record of the second stream of `connect`."""
        raise NotImplementedError(f"{type(self).__name__} must implement process_connected")

    def on_watermark(self, timestamp: int, ctx: OperatorContext) -> Iterable[Out] | None:
        """Event time has reached `timestamp`: no record up to it is expected any more, and all timers up to it have
        fired. What is returned goes downstream in front of the watermark, without a timestamp.

        There is no current key here, so a `KeyedOperator` can emit nothing: use timers.
        """
        return None

    def close(self) -> None:
        """Release what `open` made. Called once, also after a failure."""

    def snapshot(self, checkpoint_id: int) -> Any:
        """State of the operator's own, beside its keyed state: a value as any state may hold it, or `None`."""
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


class KeyedOperator(Operator[In, Out, Connected]):
    """An operator behind `key_by`, with state per key declared as class attributes.

    class RunningTotal(KeyedOperator):
        total = ValueState(default=0.0)

        def process(self, order, ctx):
            self.total.value += order["amount"]
            yield {"user": ctx.key, "total": self.total.value}
    """

    _inputs: ClassVar[tuple[str, str] | None] = None
    """What its two inputs are called, if it is one of Weir's own that has two."""
    _timers_can_be_left_out: ClassVar[bool] = True
    """Whether the step's `on_error` counts for timers, too: not where one that is left out takes more with it."""
    _timers_end: ClassVar[bool] = False
    """Whether its timers set others only as long as it keeps something, so that they come to an end by themselves."""

    def _keeps(self) -> tuple[str, ...]:
        """What it keeps and until when, if it is one of Weir's own that can tell; what nothing bounds it says, too."""
        return ()

    def on_timer(self, timestamp: int, ctx: OperatorContext) -> Iterable[Out] | None:
        """A timer of the current key is due; return (or yield) what to emit.

        Args:
            timestamp: what `ctx.timer` or `ctx.processing_timer` was given. `ctx.timestamp` is the same for an event
                timer and `None` for a processing timer, and so are the timestamps of what is emitted.
        """
        raise NotImplementedError(f"{type(self).__name__} set a timer, so it must implement on_timer")
