"""A stream cut into windows, and what comes out of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from checkpoint.options import Seconds
from checkpoint.state_backends import StateBackend
from pipeline.aggregates import Aggregate, Aggregation, checked_aggregates
from pipeline.by_event_time import LATE
from pipeline.errors import PipelineError
from pipeline.on_error import OnError
from pipeline.options import pipeline_options
from pipeline.streams.checks import check_reducing, expected
from pipeline.streams.stream import Stream, T
from pipeline.windows import Window
from pipeline.windows.durations import milliseconds
from pipeline.windows.operator import Options, TimeWindows
from pipeline.windows.operator_choice import operator_of
from pipeline.windows.reduced import Reduced

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from pipeline.streams.keyed import KeyedStream

    Early: TypeAlias = Seconds | Literal["update"] | None

U = TypeVar("U", covariant=True)

_OPTIONS = ("parallelism", "state_backend", "on_error")


class WindowResults(Stream[dict[str, Any]], Generic[U]):
    """The results of windows: dicts with `key`, `start` and `end` (milliseconds since the epoch), `final`, and each
    aggregate by its name. The timestamp of a result is end - 1. `U`: of what type the records of the windows are."""

    def late(self) -> Stream[U]:
        """The records that were too late for all their windows: each is there once, and in no result.

        Raises:
            PipelineError: they are windows for which no record is ever late.
        """
        if not isinstance(self._step.payload, TimeWindows):
            raise PipelineError("late() of windows: they go by no event time, so no record is ever late")
        return self.side_output(LATE)


@pipeline_options
class WindowedStream(Generic[T]):
    """A keyed stream cut into windows: `aggregate` says what becomes of the records of each."""

    def __init__(self, stream: KeyedStream[T], window: Window, lateness: Seconds, early: Early) -> None:
        if not isinstance(window, Window):
            raise PipelineError(f"window: {expected('a kind of windows such as Tumbling(60)', window)}")
        self._stream = stream
        self._window = window
        self._options = Options(milliseconds(lateness, "window: lateness", 0), _early(early))
        self._results: WindowResults[T] | None = None
        self.used = False
        self.made_by = "window"
        stream._pipeline._graph.derived.append(self)

    def aggregate(
        self,
        id: str | None = None,
        /,
        *,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
        **aggregates: Any,
    ) -> WindowResults[T]:
        """What the records of each window come to: `aggregate(n=Count(), total=Sum("amount"))`.

        Args:
            id: of the step, under which checkpoints have its state; `None` = such as `window-1`.
            state_backend: where its state is; `None` = as `CheckpointConfig` says.
            on_error: what becomes of a record that an aggregate fails on, as of `process`. A window whose result fails
                fails the attempt.
            aggregates: by the names of their results.
        """
        return self._add(
            id, checked_aggregates("aggregate", aggregates, _OPTIONS), parallelism, state_backend, on_error
        )

    def reduce(
        self,
        function: Callable[[T, T], T],
        id: str | None = None,
        *,
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> WindowResults[T]:
        """What `function(a, b)` makes of the records of each window, in the results under `value`. One record comes as
        it is. Records of a sliding window or session may also be joined in parts, so it must not matter how they are
        grouped: `function(a, function(b, c))` is `function(function(a, b), c)`. The parts are joined in order of time,
        within a part records come in the order of their arrival."""
        check_reducing("reduce", function)
        return self._add(id, {"value": Reduced(function)}, parallelism, state_backend, on_error)

    def late(self) -> Stream[T]:
        """As `late` of what `aggregate` returned, which must have been called."""
        if self._results is None:
            raise PipelineError(
                "late() of windows: call aggregate(…) first, which makes the step that knows what is late"
            )
        return self._results.late()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and hasattr(Stream, name):
                raise AttributeError(
                    f"a window has no {name} before it has results: put aggregate(…) or reduce(…) first"
                )
            raise AttributeError(
                f"windows have no {name!r}; say what becomes of their records, as in aggregate(n=Count()) or reduce(…)"
            )

    @property
    def step_index(self) -> int:
        return self._stream.step_index

    def _add(
        self,
        id: str | None,
        aggregates: dict[str, Aggregate],
        parallelism: int | None,
        state_backend: StateBackend | None,
        on_error: OnError,
    ) -> WindowResults[T]:
        self.used = True
        operator = operator_of(self._window, Aggregation(aggregates), self._options)
        stream = self._stream._built_in("window", id, operator, parallelism, state_backend, on_error)
        self._results = WindowResults(stream._pipeline, stream._step)
        return self._results


def _early(given: Any) -> int | None:
    if given is None:
        return None
    if given == "update":
        return 0
    if isinstance(given, str):
        raise PipelineError(
            f'window: early must be "update", or seconds from one early result to the next, not {given!r}'
        )
    return milliseconds(given, "window: early")
