"""What of a stream is asked of a service."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from checkpoint.options import Seconds
from pipeline.async_calls.function import AsyncFunction
from pipeline.async_calls.options import AsyncStep, Order, RetryOn, async_step
from pipeline.errors import PipelineError
from pipeline.graph import Input, StepKind
from pipeline.on_error import OnError, on_error_of
from pipeline.partitioners import Distribution, Partitioner
from pipeline.streams.checks import name_of
from pipeline.streams.failures import guard
from pipeline.user_code import is_async

if TYPE_CHECKING:
    from pipeline.job import Pipeline
    from pipeline.streams.stream import Stream

T = TypeVar("T", covariant=True)
U = TypeVar("U")


class AsksServices(Generic[T]):
    """Part of `Stream`, which takes the methods over, so that they go by its name."""

    if TYPE_CHECKING:
        _pipeline: Pipeline
        _partitioner: Partitioner | None

        def _input(self, number: int = 0) -> Input: ...

        def _add(self, kind: StepKind, id: str | None, payload: Any, parallelism: int | None) -> Stream: ...

    def map_async(
        self,
        function: Callable[[T], Awaitable[U]] | AsyncFunction,
        id: str | None = None,
        parallelism: int | None = None,
        capacity: int = 100,
        ordered: Order = True,
        timeout: Seconds | None = 30.0,
        retries: int = 0,
        backoff: Seconds = 0.1,
        retry_on: RetryOn = Exception,
        batch_size: int | None = None,
        batch_wait: Seconds = 0.05,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """One output for each record, for which a service is asked: `async def function(value)`, or an instance of an
        `AsyncFunction`. Requests run side by side in an event loop of the subtask.

        What is asked and not emitted is part of checkpoints and asked again after a restore, so each record is asked at
        least once and its result goes on exactly once. The step begins a task of its own. A request that fails fails
        the attempt, unless `on_error` says else.

        Args:
            capacity: records of a subtask that may be asked and not emitted; at that the step takes no more.
            ordered: `True` = results in the order of the records; "key" (behind `key_by`) = those of each key are;
                `False` = as they come. Watermarks stay between the records they were between in any case.
            timeout: seconds for each try; `None` = no limit.
            retries: how often a request is tried again that has failed or had no answer in time.
            backoff: seconds before the first retry; each further wait is twice as long, less up to a half at random.
            retry_on: the exceptions after which it is; others fail at once.
            batch_size: `function` gets a list of so many records at most, and returns a list with as many results.
            batch_wait: seconds that a record waits at most for others.
            on_error: as of `map`; for a request that failed, with all its retries.
        """
        _refuse_no_awaitable("map_async", function)
        return self._ask(
            "map_async",
            id,
            parallelism,
            ordered,
            lambda: async_step(
                function, capacity, ordered, timeout, retries, backoff, retry_on, batch_size, batch_wait
            ),
            on_error,
        )

    def _ask(
        self,
        who: str,
        id: str | None,
        parallelism: int | None,
        ordered: Order,
        make: Callable[[], AsyncStep],
        on_error: OnError = "fail",
    ) -> Stream:
        """
        Args:
            who: the method.
            make: may raise a ValueError.
        """
        if ordered == "key" and not (self._partitioner and self._partitioner.distribution is Distribution.KEYED):
            raise PipelineError(f'{who}(…, ordered="key") keeps the order of each key: put key_by(...) right before it')
        if self._pipeline._graph.has_broadcast(self._input()):
            raise PipelineError(
                f"{who} can't read a broadcast stream, whose records every subtask would ask for: put {who} before "
                "broadcast()"
            )
        try:
            step = make()
        except ValueError as error:
            raise PipelineError(f"{who}: {error}") from error
        policy = on_error_of(on_error, who if id is None else f"{who} {id!r}")
        stream = self._add(StepKind.MAP_ASYNC, id, step, parallelism)
        guard(self._pipeline, stream._step, policy)
        return stream


def _refuse_no_awaitable(who: str, function: Any) -> None:
    if isinstance(function, type):
        given = function.__name__
        advice = f"give an instance, {given}(…)" if issubclass(function, AsyncFunction) else "give an async def"
        raise PipelineError(f"{who} takes a function to await, and {given} is a class: {advice}")
    if not callable(function):
        raise PipelineError(f"{who} takes a function to await, an id as option; got {function!r}")
    if inspect.isasyncgenfunction(function):
        raise PipelineError(f"{who}: {name_of(function)} has a yield, so it returns no value: return the value")
    if not (is_async(function) or is_async(inspect.unwrap(function))):
        raise PipelineError(
            f"{who} takes a function to await, and {name_of(function)} is none: write it as async def, or use map"
        )
