"""Joins of two keyed streams, as steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from checkpoint.options import Seconds
from checkpoint.state_backends import StateBackend
from pipeline.by_event_time import LATE
from pipeline.errors import PipelineError
from pipeline.joins import AsOfJoin, How, IntervalJoin, WindowJoin
from pipeline.on_error import OnError
from pipeline.operators import KeyedOperator
from pipeline.options import pipeline_options
from pipeline.streams.connected import ConnectedStreams
from pipeline.streams.stream import Stream, T
from pipeline.windows import Window

if TYPE_CHECKING:
    from pipeline.streams.keyed import KeyedStream

V = TypeVar("V")
R = TypeVar("R")


class JoinedStream(Stream[T]):
    """The results of a join."""

    def late(self) -> Stream[dict[str, Any]]:
        """The records that came too late to be joined, each once: dicts with `key`, `side` ("left" or "right") and
        `record`."""
        return self.side_output(LATE)


@pipeline_options
class JoinableStream(Stream[T]):
    """What a keyed stream has of joins."""

    @overload
    def join(
        self,
        other: KeyedStream[V],
        within: tuple[Seconds, Seconds] | None = None,
        how: How = "inner",
        select: None = None,
        *,
        window: Window | None = None,
        id: str | None = None,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> JoinedStream[dict[str, Any]]: ...
    @overload
    def join(
        self,
        other: KeyedStream[V],
        within: tuple[Seconds, Seconds] | None = None,
        how: How = "inner",
        *,
        select: Callable[[Any, Any], R],
        window: Window | None = None,
        id: str | None = None,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> JoinedStream[R]: ...
    def join(
        self,
        other: KeyedStream[Any],
        within: tuple[Seconds, Seconds] | None = None,
        how: How = "inner",
        select: Callable[[Any, Any], Any] | None = None,
        *,
        window: Window | None = None,
        id: str | None = None,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> JoinedStream[Any]:
        """Pairs of records of this stream, the left one, and of another, the right one, that have equal keys and whose
        times are near each other, or in one window: dicts with `key`, `left` and `right`.

            orders.key_by("id").join(payments.key_by("order"), within=(0, 3600), how="left")
            orders.key_by("user").join(clicks.key_by("user"), window=Session(1800))

        With `within`, a pair has the timestamp of the later one. A record without a partner is a result once the
        watermark tells that none can come any more; it has that time as its timestamp, or its own where that is later.
        With `window`, all results of a window come when it closes, and have that time as their timestamp, and its
        `start` and `end` beside `key`. A record
        that is late when it comes is joined with nothing: see `late` of what this returns.

        Args:
            other: may be this stream itself.
            within: how much later than a left record a right one may be, at least and at most, in seconds or as
                `timedelta`; both bounds are included. Negative: earlier.
            how: "inner" = pairs; "left", "right", "full" = also records of that side, or both, that have no partner;
                `None` is in the place of what is missing.
            window: instead of `within`: Tumbling, Sliding or Session. A session is one of the records of both streams.
            select: makes a result of a left and a right record, one of which may be `None` where `how` has it so.
            state_backend: where its state is; `None` = as `CheckpointConfig` says.
            on_error: as of `process`. A record on whose results `select` fails is as if it had not come; a result that
                comes by itself with the watermark fails the attempt.
        """
        if (within is None) == (window is None):
            raise PipelineError("join: give either within=(lower, upper) or window=Tumbling(…)")
        operator: KeyedOperator = (
            WindowJoin(window, how, select)
            if window is not None
            else IntervalJoin(within, how, select, whole=select is not None and on_error != "fail")
        )
        return _joined("join", self, other, operator, id, parallelism, state_backend, on_error)

    @overload
    def join_as_of(
        self,
        other: KeyedStream[V],
        how: Literal["inner", "left"] = "inner",
        select: None = None,
        *,
        max_age: Seconds | None = None,
        wait: bool = True,
        id: str | None = None,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> JoinedStream[dict[str, Any]]: ...
    @overload
    def join_as_of(
        self,
        other: KeyedStream[V],
        how: Literal["inner", "left"] = "inner",
        *,
        select: Callable[[Any, Any], R],
        max_age: Seconds | None = None,
        wait: bool = True,
        id: str | None = None,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> JoinedStream[R]: ...
    def join_as_of(
        self,
        other: KeyedStream[Any],
        how: Literal["inner", "left"] = "inner",
        select: Callable[[Any, Any], Any] | None = None,
        *,
        max_age: Seconds | None = None,
        wait: bool = True,
        id: str | None = None,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> JoinedStream[Any]:
        """Each record of this stream, the left one, with the newest record of another, the right one, that has an equal
        key and is not newer: dicts with `key`, `left` and `right`, and the timestamp of the left record.

            payments.key_by("currency").join_as_of(rates.key_by("currency"), how="left")

        The right stream is a table, each of its records the new version of a row. A record `None` there says that the
        row is gone. Of versions of one time the last one counts. A record that is late when it comes, of either side,
        is joined with nothing: see `late` of what this returns.

        Args:
            other: may be this stream itself.
            how: "inner" = records that find a version; "left" = also those that find none, with `None` in its place.
            select: makes a result of a left record and a version, which may be `None` with `how="left"`.
            max_age: how much older than the record a version may be, in seconds or as `timedelta`, the bound included;
                `None` = as old as it is.
            wait: a record waits until the watermark reaches it, when all versions up to it have come. `False` = it
                takes what is there at once, so that results depend on which record comes first.
            state_backend: where its state is; `None` = as `CheckpointConfig` says.
            on_error: as of `process`. A record on whose results `select` fails is as if it had not come; a result that
                comes by itself with the watermark fails the attempt.
        """
        operator = AsOfJoin(how, max_age, wait, select)
        return _joined("join_as_of", self, other, operator, id, parallelism, state_backend, on_error)


def _joined(
    method: str,
    left: Stream,
    right: Any,
    operator: KeyedOperator,
    id: str | None,
    parallelism: int | None,
    state_backend: StateBackend | None,
    on_error: OnError,
) -> JoinedStream[Any]:
    """Add a join.

    Args:
        method: after which a step without an id is named: `join-1`.

    Raises:
        PipelineError: the right stream is none, or isn't keyed.
    """
    from pipeline.streams.keyed import KeyedStream

    if id is not None and not isinstance(id, str):
        raise PipelineError(f"{method}: an id is a text, not {id!r}")
    if isinstance(right, Stream) and right._pipeline is not left._pipeline:
        raise PipelineError(f"{method} takes a stream of the same pipeline")
    if not isinstance(right, KeyedStream):
        what = "a stream without keys" if isinstance(right, Stream) else f"{right!r}"
        raise PipelineError(
            f"{method}: both streams must be keyed, and the right one is {what}: a.key_by(…).{method}(b.key_by(…), …)"
        )
    step = ConnectedStreams(left, right)._add(id, operator, parallelism, state_backend, on_error, method)
    return JoinedStream(left._pipeline, step)
