"""`map_async`: records go to an event loop, and their results go on when it is their turn."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from checkpoint.codec import EncodingError, copied, decode, encode
from checkpoint.counted import counted
from checkpoint.edge_format import NO_KEY, BatchBuilder, EdgeFormat
from checkpoint.elements import ChannelName, Data, EdgeName, IdleStatus, InFlight, InOrder, Watermark
from checkpoint.errors import PermanentFailure
from checkpoint.in_flight.restored_input import InFlightEntry, RestoredInput
from checkpoint.shown import shown
from pipeline.async_calls.element_queue import ElementQueue
from pipeline.async_calls.loop import Loop, LoopThread
from pipeline.async_calls.options import NOTHING, AsyncStep
from pipeline.async_calls.requests import RequestResult
from pipeline.runtime import error_text
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Push, Site
from pipeline.runtime.subtask.steps.failed_records import NEVER

_ALL: Final = object()
"""The lane of records that all stay in order."""
_MESSAGE: Final = 500
"""Characters of what a request failed with."""


class RequestFailed(RuntimeError):
    """A request failed, with all its retries."""


@dataclass(frozen=True, slots=True)
class AwaitingResult:
    """A record that waits for its result."""

    channel: ChannelName
    """Where it came from."""
    encoded: bytes
    timestamp: int | None
    key: bytes | None
    group: int


@dataclass(frozen=True, slots=True)
class Control:
    """Something of a channel that may not overtake its records."""

    channel: ChannelName
    element: InOrder
    restored: bool


@dataclass(frozen=True, slots=True)
class EndOfRestored:
    """All that was in flight in the restored checkpoint is in front of it."""


def compile_map_async(site: Site) -> CompiledStep:
    calls = AsyncCalls(site)
    return CompiledStep(calls.push, runs=calls, calls=calls)


class AsyncCalls:
    """The requests of a subtask. Used by the task thread, between whose records all of it happens.

    The step is the head of its vertex: what it has taken of an input channel and not emitted yet is in flight on that
    channel, as if it were still queued there. So it is captured, spread anew and restored by what does that for all.
    """

    def __init__(self, site: Site) -> None:
        step: AsyncStep = site.step.payload
        self.id = site.step.id
        self.options = step
        self.queue: ElementQueue[AwaitingResult, Control | EndOfRestored] = ElementQueue()
        self.channel: ChannelName | None = None
        """Where the records that are pushed come from."""
        self.wake: Callable[[], None] = lambda: None
        """Called by another thread when there are answers."""
        self.failed: Callable[[AwaitingResult, Exception], None] = self._fail
        """Takes a record whose request failed, when its turn has come, and the error as it is told."""
        self._loop: Loop | None = None
        self.quiet_since = site.clock()
        """When the last answer came, or the first request began."""
        self._clock = site.clock
        self._interrupt = site.interrupt
        self._record = site.record
        self._downstream: Push = site.downstream
        self._policy = site.failed
        if site.failed is not None:
            self.failed = self._left_out

    @property
    def loop(self) -> Loop:
        """A thread, if nobody has set another one."""
        if self._loop is None:
            self._loop = LoopThread(self.id, self.options, lambda: self.wake())
        return self._loop

    @loop.setter
    def loop(self, loop: Loop) -> None:
        self._loop = loop

    def open(self) -> None:
        self.loop.open()

    def close(self) -> None:
        self.loop.close()

    # -- in -----------------------------------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        """Ask for a record."""
        assert self.channel is not None
        record = self._record
        if not self.queue.records:
            self.quiet_since = self._clock()
        encoded = encode(value)
        taken = AwaitingResult(self.channel, encoded, record.timestamp, record.key_bytes, record.key_group)
        self.loop.ask(self.queue.add(taken, self._lane(taken)), value, encoded)
        if self.full:
            self.flush()
            self._interrupt()

    def wait(self, control: Control | EndOfRestored) -> None:
        """Something that may not overtake records has come behind them."""
        self.queue.add_control(control)
        self.flush()

    def flush(self) -> None:
        """Nothing may fill the batch that is to be asked any more, or something waits for it."""
        if self.options.batch_size is not None:
            self.loop.flush()

    @property
    def full(self) -> bool:
        """Whether no more records may be pushed."""
        return self.queue.records >= self.options.capacity

    def _lane(self, taken: AwaitingResult) -> Hashable:
        if self.options.ordered == "key":
            return taken.key
        return _ALL if self.options.ordered else None

    # -- out ----------------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Take the answers that have come."""
        answers = self.loop.answers()
        if answers:
            self.quiet_since = self._clock()
        while answers:
            answer = answers.popleft()
            self.queue.done(answer.token, answer)

    def hand_on(self, interrupted: Callable[[], bool]) -> Control | EndOfRestored | None:
        """Emit results whose turn it is, up to a control, which is returned. Whoever calls it does what the control
        says before the next record."""
        record, queue = self._record, self.queue
        try:
            while not interrupted():
                place = queue.take()
                if place is None:
                    return queue.take_control()
                taken = place.record
                record.timestamp, record.key_bytes, record.key_group = taken.timestamp, taken.key, taken.group
                answer: RequestResult = place.outcome
                if self._policy is not None:
                    self._policy.count()  # not when it is asked: many may fail long after that
                if answer.error is not None:
                    self.failed(taken, self._failure(taken, answer))
                elif answer.value is not NOTHING:
                    self._emit(taken, answer.value)
        finally:
            record.leave()
        return None

    def _emit(self, taken: AwaitingResult, value: Any) -> None:
        if self._policy is not None:
            try:
                value = copied(value)
            except EncodingError as error:
                self.failed(taken, error)
                return
        self._downstream(value)

    def _left_out(self, taken: AwaitingResult, error: Exception) -> None:
        """For a step with `on_error`."""
        cause = error.__cause__
        if isinstance(cause, NEVER) or not (cause is None or isinstance(cause, Exception | CancelledError)):
            raise error
        assert self._policy is not None
        self._policy.handle(error, self._policy.note(taken.encoded), cause)

    def _failure(self, taken: AwaitingResult, answer: RequestResult) -> Exception:
        assert answer.error is not None
        tries = "" if answer.tries == 1 else f", {counted(answer.tries, 'time')}"
        kind = PermanentFailure if isinstance(answer.error, PermanentFailure) else RequestFailed
        failure = kind(
            f"map_async {self.id!r}: the request for {shown(decode(taken.encoded), 200)} failed{tries}: "
            f"{error_text.cut(error_text.summary(answer.error), _MESSAGE)}"
        )
        failure.__cause__ = answer.error
        return failure

    def _fail(self, taken: AwaitingResult, error: Exception) -> None:
        raise error

    # -- in flight ----------------------------------------------------------------------------------------------

    def rest(self, format_of: Callable[[EdgeName], EdgeFormat]) -> list[InFlightEntry]:
        """All that was taken and not emitted, as elements of the channels that it came from, in order."""
        return list(self._rest(format_of))

    def _rest(self, format_of: Callable[[EdgeName], EdgeFormat]) -> Iterator[InFlightEntry]:
        batch: tuple[ChannelName, EdgeFormat, BatchBuilder] | None = None
        for taken, control in self.queue.rest():
            if batch is not None and (taken is None or taken.channel != batch[0]):
                yield _sealed(*batch)
                batch = None
            if taken is not None:
                if batch is None:
                    its = format_of(taken.channel.edge)
                    batch = (taken.channel, its, its.builder())
                _append(batch[1], batch[2], taken)
            elif isinstance(control, Control) and isinstance(control.element, Watermark | IdleStatus):
                yield control.channel, control.element
        if batch is not None:
            yield _sealed(*batch)


def _append(edge_format: EdgeFormat, builder: BatchBuilder, taken: AwaitingResult) -> None:
    if edge_format.carries_keys:
        builder.append_keyed(taken.encoded, taken.timestamp, NO_KEY if taken.key is None else taken.key, taken.group)
    else:
        builder.append(taken.encoded, taken.timestamp)


def _sealed(channel: ChannelName, edge_format: EdgeFormat, builder: BatchBuilder) -> tuple[ChannelName, InFlight]:
    rows = builder.rows
    frame = edge_format.to_frame(builder.seal())
    return channel, Data(frame, frame.size, rows)


class InFrontOf:
    """The rest of a subtask's restored input with what an async step has taken in front of it."""

    def __init__(self, calls: AsyncCalls, restored: RestoredInput, format_of: Callable[[EdgeName], EdgeFormat]) -> None:
        self._calls = calls
        self._restored = restored
        self._format_of = format_of

    def rest(self) -> list[InFlightEntry]:
        return [*self._calls.rest(self._format_of), *self._restored.rest()]
