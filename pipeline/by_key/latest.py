"""`latest_by_key`: a table of the newest version of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias

from checkpoint.errors import Explained
from checkpoint.options import Seconds
from checkpoint.shown import shown
from checkpoint.state import TTL, ValueState
from pipeline.by_event_time import LATE
from pipeline.by_key.common import timestamp_of
from pipeline.errors import PipelineError
from pipeline.lazy_results import check_answer
from pipeline.operators import KeyedOperator, OperatorContext
from pipeline.user_code import is_async, is_generator, takes
from pipeline.windows.durations import milliseconds

Order: TypeAlias = Literal["event", "arrival"] | Callable[[Any], Any]
_NOTHING: Final = ()


class BadVersion(Explained, ValueError):
    """A record of which it can't be told whether it is newer."""


class LatestByArrival(KeyedOperator):
    """Each record is newer than those before it."""

    order: ClassVar[str] = "arrival"
    """What makes a record newer, for checkpoints."""

    row: ValueState[Any] = ValueState()
    """The newest version; `None` = there is no row."""

    def __init__(self, deleted: Callable[[Any], Any] | None) -> None:
        self._deleted = deleted

    def _deletes(self, value: Any) -> bool:
        if value is None or self._deleted is None:
            return value is None
        answer = self._deleted(value)
        check_answer("latest_by_key: deleted", answer)
        return bool(answer)

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        return self._put(value) if not self._deletes(value) else self._remove(value)

    def _put(self, value: Any) -> Iterable[Any]:
        self.row.value = value
        return (value,)

    def _remove(self, value: Any) -> Iterable[Any]:
        """Only where there is a row does that change anything."""
        if self.row.value is None:
            return _NOTHING
        self.row.clear()
        return (value,)

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"order": self.order}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["order"] != self.order:
            raise PipelineError(
                f"latest_by_key: the checkpoint has a table in the order {state['order']}, and the step goes by "
                f"{self.order} now: there is nothing by which its rows could be older or newer than what comes. Give "
                "the step another id, so that it begins anew, and leave the old state behind"
            )


class LatestByVersion(LatestByArrival):
    """A record is newer whose version isn't below that of the row. A row that was deleted leaves the version of that,
    or an older record that comes later would bring it back."""

    order = "a function"

    version: ValueState[Any] = ValueState()
    """Of the row; `None` = there is none."""
    deletion: ValueState[Any] = ValueState()
    """The version that has deleted the row; `None` = none has."""

    def __init__(self, version_of: Callable[[Any], Any], deleted: Callable[[Any], Any] | None) -> None:
        super().__init__(deleted)
        self._version_of = version_of

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        return self._take(value, _checked(self._version_of(value), value))

    def _take(self, value: Any, version: Any) -> Iterable[Any]:
        known = self._known()
        if known is not None and _is_below(version, known, value):
            return _NOTHING
        if self._deletes(value):
            self.version.clear()
            self.deletion.value = version
            return self._remove(value)
        if self.deletion.value is not None:
            self.deletion.clear()
        self.version.value = version
        return self._put(value)

    def _known(self) -> Any:
        version = self.version.value
        return self.deletion.value if version is None else version


class LatestByTime(LatestByVersion):
    """The version is the record's timestamp."""

    order = "event"

    needs_event_time: ClassVar[str | None] = None

    def __init__(self, lateness: int | None, deleted: Callable[[Any], Any] | None) -> None:
        """`lateness`: milliseconds for which a deletion is known; `None` = for ever."""
        super().__init__(lambda value: None, deleted)
        self._lateness = lateness

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        at, watermark = timestamp_of("latest_by_key", value, ctx), ctx.key_watermark
        if (
            self._lateness is not None
            and watermark is not None
            and at <= watermark - self._lateness
            and self._known() is None
        ):
            ctx.side_output(LATE, value)  # the row may have been deleted by a later version, which is forgotten
            return _NOTHING
        return self._take(value, at)


def _checked(version: Any, value: Any) -> Any:
    if version is None or version != version:
        raise BadVersion(
            f"latest_by_key: the version of a record is {version!r}, so it can't be told whether it is newer: "
            f"{shown(value, 200)}"
        )
    return version


def _is_below(version: Any, known: Any, value: Any) -> bool:
    try:
        return bool(version < known)
    except TypeError as error:
        raise BadVersion(
            f"latest_by_key: the version {shown(version)} can't be compared with {shown(known)}, which the key has: "
            f"{shown(value, 200)}"
        ) from error


def latest_by_key(order: Order, deleted: Callable[[Any], Any] | None, lateness: Seconds | None) -> KeyedOperator:
    """See `KeyedStream.latest_by_key`.

    Raises:
        PipelineError: the options don't go together.
    """
    if not callable(order) and order not in ("event", "arrival"):
        raise PipelineError(
            f'latest_by_key: order must be "event", "arrival" or a function that gives a record\'s version, '
            f"not {order!r}"
        )
    for name, function in (("order", order), ("deleted", deleted)):
        if callable(function) and (is_async(function) or is_generator(function)):
            raise PipelineError(f"latest_by_key: {name} must be a plain def that returns a value")
        if callable(function) and not takes(function, 1):
            raise PipelineError(f"latest_by_key: {name} can't be called with (record)")
    if deleted is not None and not callable(deleted):
        raise PipelineError(f"latest_by_key: deleted must be a function of a record, not {deleted!r}")
    if lateness is not None and order != "event":
        raise PipelineError('latest_by_key: lateness is by event time, so it goes with order="event" only')
    if order == "arrival":
        return LatestByArrival(deleted)
    if callable(order):
        return LatestByVersion(order, deleted)
    if lateness is None:
        return LatestByTime(None, deleted)
    late = milliseconds(lateness, "latest_by_key: lateness")

    class LatestForgetting(LatestByTime):
        needs_event_time = "frees what it knows of deleted rows by event time"
        deletion = ValueState(ttl=TTL(late / 1000, time="event"))

    return LatestForgetting(late, deleted)
