"""What of a stream is asked of a service."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from checkpoint.options import Seconds
from pipeline.async_calls.cache import DEFAULT_CACHE, LookupCache
from pipeline.async_calls.function import AsyncFunction
from pipeline.async_calls.lookup import HOWS, How, LookupJoin
from pipeline.async_calls.options import AsyncStep, Order, RetryOn, async_step
from pipeline.errors import PipelineError
from pipeline.graph import Input, StepKind
from pipeline.on_error import OnError, on_error_of
from pipeline.partitioners import Distribution, Partitioner
from pipeline.streams.checks import name_of, refuse_no_value, refuse_other_arguments
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

    @overload
    def map_async(
        self,
        function: Callable[[T], Awaitable[U]],
        id: str | None = ...,
        parallelism: int | None = ...,
        capacity: int = ...,
        ordered: Order = ...,
        timeout: Seconds | None = ...,
        retries: int = ...,
        backoff: Seconds | None = ...,
        retry_on: RetryOn | None = ...,
        batch_size: None = ...,
        batch_wait: Seconds | None = ...,
        on_error: OnError = ...,
    ) -> Stream[U]: ...

    @overload
    def map_async(
        self,
        function: Callable[[list[T]], Awaitable[list[U]]],
        id: str | None = ...,
        parallelism: int | None = ...,
        capacity: int = ...,
        ordered: Order = ...,
        timeout: Seconds | None = ...,
        retries: int = ...,
        backoff: Seconds | None = ...,
        retry_on: RetryOn | None = ...,
        *,
        batch_size: int,
        batch_wait: Seconds | None = ...,
        on_error: OnError = ...,
    ) -> Stream[U]: ...

    @overload
    def map_async(
        self,
        function: AsyncFunction,
        id: str | None = ...,
        parallelism: int | None = ...,
        capacity: int = ...,
        ordered: Order = ...,
        timeout: Seconds | None = ...,
        retries: int = ...,
        backoff: Seconds | None = ...,
        retry_on: RetryOn | None = ...,
        batch_size: int | None = ...,
        batch_wait: Seconds | None = ...,
        on_error: OnError = ...,
    ) -> Stream[Any]: ...

    def map_async(
        self,
        function: Callable[[Any], Awaitable[Any]] | AsyncFunction,
        id: str | None = None,
        parallelism: int | None = None,
        capacity: int = 100,
        ordered: Order = True,
        timeout: Seconds | None = 30.0,
        retries: int = 0,
        backoff: Seconds | None = None,
        retry_on: RetryOn | None = None,
        batch_size: int | None = None,
        batch_wait: Seconds | None = None,
        on_error: OnError = "fail",
    ) -> Stream[Any]:
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
            backoff: seconds before the first retry, 0.1 by default; each further wait is twice as long, less up to a
                half at random.
            retry_on: the exceptions after which it is, by default all; others fail at once.
            batch_size: `function` gets a list of so many records at most, and returns a list with as many results.
            batch_wait: seconds that a record waits at most for others, 0.05 by default.
            on_error: as of `map`; for a request that failed, with all its retries.
        """
        _refuse_no_awaitable("map_async", function, "record" if batch_size is None else "records")
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

    def join_lookup(
        self,
        lookup: Callable[[Any], Awaitable[Any]] | AsyncFunction,
        id: str | None = None,
        parallelism: int | None = None,
        key: str | int | Callable[[T], Any] | None = None,
        how: How = "left",
        cache: LookupCache | None = DEFAULT_CACHE,
        select: Callable[[T, Any], Any] | None = None,
        capacity: int = 100,
        ordered: Order = True,
        timeout: Seconds | None = 30.0,
        retries: int = 0,
        backoff: Seconds | None = None,
        retry_on: RetryOn | None = None,
        batch_size: int | None = None,
        batch_wait: Seconds | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Each record with what a database or a service has for its key: `{"left": record, "right": found}`.

        It is a `map_async` step, with its options. A key that is being asked for is not asked for again by others; what
        was found is remembered. Put `key_by` before it, so that a key is asked for in one subtask only.

        Args:
            lookup: `async def lookup(key)`, or an instance of an `AsyncFunction`: what there is for a key, `None` =
                nothing. With `batch_size` it gets a list of different keys, and returns a list with what there is for
                each, or a dict by key.
            key: a field name, an index or a function; without one that of the `key_by` right before it.
            how: "left" = records for which there is nothing go on, with `None`; "inner" = they are left out.
            cache: how much is remembered and for how long; `None` = nothing.
            select: `select(record, found)` makes the result.
        """
        _refuse_no_awaitable("join_lookup", lookup, "key" if batch_size is None else "keys")
        by = self._partitioner.key if self._partitioner is not None else None
        if key is None and by is None:
            raise PipelineError("join_lookup needs to know what to look up: give key=, or put key_by(...) right before")
        if how not in HOWS:
            raise PipelineError(f'join_lookup: how must be "inner" or "left", not {how!r}')
        if cache is not None and not isinstance(cache, LookupCache):
            raise PipelineError(f"join_lookup: cache must be a LookupCache, or None for none, not {cache!r}")
        if select is not None:
            if not callable(select):
                raise PipelineError(f"join_lookup: select must be a function of (record, found), not {select!r}")
            refuse_no_value("join_lookup: select", select, "record", "found")
        if key is not None:
            refuse_no_value("join_lookup: key", key)
        field = key if key is not None else by.field if by is not None else None
        assert field is not None
        join = LookupJoin(lookup, field, how, cache, select, batch_size is not None)
        return self._ask(
            "join_lookup",
            id,
            parallelism,
            ordered,
            lambda: async_step(join, capacity, ordered, timeout, retries, backoff, retry_on, batch_size, batch_wait),
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


def _refuse_no_awaitable(who: str, function: Any, argument: str) -> None:
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
    refuse_other_arguments(who, function, argument)
