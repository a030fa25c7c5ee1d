"""A stream distributed by key, and what can be done with the records of a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from checkpoint.options import Seconds
from checkpoint.state import TTL
from checkpoint.state_backends import StateBackend
from pipeline.aggregates import Top, checked_aggregates
from pipeline.aggregates.running import running_aggregate, running_reduce
from pipeline.aggregates.selectors import Selector
from pipeline.by_key import distinct, latest_by_key, top_n
from pipeline.errors import PipelineError
from pipeline.on_error import OnError
from pipeline.operators import KeyedOperator
from pipeline.options import pipeline_options
from pipeline.streams.checks import check_reducing
from pipeline.streams.joined import JoinableStream
from pipeline.streams.stream import Stream, T

if TYPE_CHECKING:
    from pipeline.streams.windowed import Early, WindowedStream
    from pipeline.windows import Window
from pipeline.by_event_time import LATE


class StreamWithLate(Stream[T]):
    """What a step emits that leaves records out which come too late by event time."""

    def late(self) -> Stream[T]:
        """The records that came too late, each once."""
        return self.side_output(LATE)


@pipeline_options
class KeyedStream(JoinableStream[T]):
    """A stream distributed by key: its next step may be a `KeyedOperator`."""

    def aggregate(
        self,
        id: str | None = None,
        *,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        ttl: TTL | Seconds | None = None,
        on_error: OnError = "fail",
        **aggregates: Any,
    ) -> Stream[dict[str, Any]]:
        """For each record what its key's records have come to: a dict with the `key` and each result by its name.

            orders.key_by("user").aggregate(n=Count(), total=Sum("amount"))

        Args:
            state_backend: where its state is; `None` = as `CheckpointConfig` says.
            ttl: how long a key's results are kept after its last record, in seconds or as `timedelta` or `TTL`; `None`
                = for ever.
            on_error: as of `process`.
            aggregates: by the names of their results.
        """
        checked = checked_aggregates("aggregate", aggregates, ("id", "parallelism", "state_backend", "ttl", "on_error"))
        operator = running_aggregate(checked, ttl)
        return self._built_in("aggregate", id, operator, parallelism, state_backend, on_error)

    def reduce(
        self,
        function: Callable[[T, T], T],
        id: str | None = None,
        *,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        ttl: TTL | Seconds | None = None,
        on_error: OnError = "fail",
    ) -> Stream[T]:
        """For each record what `function(so_far, record)` makes of all records of its key. The first one comes as it
        is.

            prices.key_by("product").reduce(lambda lowest, price: min(lowest, price, key=itemgetter("amount")))

        Args:
            state_backend, ttl, on_error: as of `aggregate`.
        """
        check_reducing("reduce", function)
        return self._built_in("reduce", id, running_reduce(function, ttl), parallelism, state_backend, on_error)

    def distinct(
        self,
        id: str | None = None,
        *,
        within: Seconds | None = None,
        time: Literal["event", "processing"] = "event",
        lateness: Seconds = 0,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> StreamWithLate[T]:
        """The first record of each key that comes, and no other with that key.

            orders.key_by("id").distinct(within=3600)

        Args:
            within: seconds, or a `timedelta`, after which a key may come again; `None` = never, and every key is kept
                for ever.
            time: "event": a record is left out if one of its key has passed whose timestamp is less than `within`
                earlier or later. "processing": if one has passed less than `within` ago, by the clock of the host.
            lateness: how far (seconds or `timedelta`) behind the watermark it can still be told whether a record is the
                first; what is later goes to `late()` of what this returns. Each record's time is kept for this and
                `within`.
            state_backend: where its state is; `None` = as `CheckpointConfig` says.
            on_error: as of `process`.
        """
        stream = self._built_in("distinct", id, distinct(within, time, lateness), parallelism, state_backend, on_error)
        return StreamWithLate(stream._pipeline, stream._step)

    def latest_by_key(
        self,
        id: str | None = None,
        *,
        order: Literal["event", "arrival"] | Callable[[T], Any] = "event",
        deleted: Callable[[T], bool] | None = None,
        lateness: Seconds | None = None,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> StreamWithLate[T]:
        """A table with the newest record of each key: the records that change it, as they are.

            updates.key_by("id").latest_by_key("customers", deleted=lambda update: update["op"] == "delete")

        Older records that come later are left out. Of two that are equally new the one counts that comes last.

        Args:
            order: what makes a record newer: "event" = its timestamp; "arrival" = that it comes later; or a function of
                the record that gives its version, such as `lambda update: update["lsn"]`.
            deleted: whether a record says that there is no row any more. `None` as a record always does.
            lateness: with "event", for how long behind the watermark (seconds or `timedelta`) it is known that a row
                was deleted. What is later, and has no row, goes to `late()` of what this returns. `None` = for ever.
            state_backend: where the table is; `None` = as `CheckpointConfig` says.
            on_error: as of `process`.
        """
        operator = latest_by_key(order, deleted, lateness)
        stream = self._built_in("latest_by_key", id, operator, parallelism, state_backend, on_error)
        return StreamWithLate(stream._pipeline, stream._step)

    def window(self, window: Window, lateness: Seconds = 0, early: Early = None) -> WindowedStream[T]:
        """Take the records of each key together by windows of time.

            orders.key_by("user").window(Tumbling(60), lateness=5).aggregate(n=Count(), total=Sum("amount"))

        A window gives its result when the watermark has passed its end.

        Args:
            window: `Tumbling`, `Sliding` or `Session`; by number `CountWindow`, without an end `Global`.
            lateness: for how long (seconds or `timedelta`) behind its end a window takes late records. Each one gives a
                new result; the last result, with `final` true, comes when that time is over.
            early: results before the end of a window, with `final` false: "update" = for each record; seconds or
                `timedelta` = so often by the clock of the host, where something has changed.
        """
        from pipeline.streams.windowed import WindowedStream

        return WindowedStream(self, window, lateness, early)

    def top_n(
        self,
        n: int,
        by: Selector,
        id: str | None = None,
        *,
        of: Selector = None,
        smallest: bool = False,
        ttl: TTL | Seconds | None = None,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> Stream[dict[str, Any]]:
        """The n greatest records of each key, whenever a record changes which they are: a dict with `key`, and `top`, a
        list with the greatest first.

            orders.key_by("region").top_n(3, by="amount")

        Of equal ones the one with the earlier timestamp is in front, then the one that came first. The aggregate `Top`
        says the same of windows, and beside other aggregates.

        Args:
            by: what records are ordered by: a field name, an index or a function.
            of: what of a record is in the list; `None` = the record.
            smallest: the n least ones, least first.
            ttl: how long a key's records are kept after they last changed, in seconds or as `timedelta` or `TTL`;
                `None` = for ever.
            state_backend: where its state is; `None` = as `CheckpointConfig` says.
            on_error: as of `process`.
        """
        operator = top_n(Top(n, of, by=by, smallest=smallest), ttl)
        return self._built_in("top_n", id, operator, parallelism, state_backend, on_error)

    def _built_in(
        self,
        made_by: str,
        id: str | None,
        operator: KeyedOperator,
        parallelism: int | None,
        state_backend: StateBackend | None,
        on_error: OnError = "fail",
    ) -> Stream[Any]:
        """Add an operator of Weir's own.

        Args:
            made_by: the method, after which a step without an id is named: `window-1`.
        """
        if id is not None and not isinstance(id, str):
            raise PipelineError(f"{made_by}: an id is a text, not {id!r}")
        return self._operator(id, operator, parallelism, state_backend, on_error, made_by)
