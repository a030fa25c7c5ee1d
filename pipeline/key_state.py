"""The state of one key while its job runs: `handle.state("totals").get("ann")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from checkpoint.codec import UnfitClass, decode, decode_opaquely, encode, encode_key
from checkpoint.counted import counted
from checkpoint.key_groups import key_group
from checkpoint.options import Seconds, one_of, seconds
from checkpoint.shown import shown
from checkpoint.state.binding import descriptors_of
from checkpoint.state.descriptors import KeyedStateDescriptor
from checkpoint.storage.restore import NotACheckpoint, RestorePoint
from checkpoint.storage.storage import CheckpointStorage
from checkpoint.tables.one_key import KeyRows, rows_of_key
from checkpoint.tables.point import DeletedMeanwhile, NoSuchTable, open_point
from pipeline.errors import PipelineError
from pipeline.operators import KeyedOperator
from pipeline.plan import Plan
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.point_queries import JobQueries, NotAnswered
from pipeline.runtime.point_query import Found, PointQuery

At: TypeAlias = Literal["live", "checkpoint"]

TIMEOUT: Final = 10.0
"""Seconds."""
_ALL: Final[Any] = object()
_READS: Final = 3
"""A checkpoint that is deleted while it is read was followed by a newer one."""


class KeyTimer(NamedTuple):
    """A timer that is set."""

    at: int
    """Milliseconds since the epoch."""
    clock: str
    """`event` or `processing`."""


@dataclass(frozen=True)
class KeyState:
    """What a key has in the state of a step: a copy, which may be changed."""

    step: str
    key: Any
    states: Mapping[str, Any]
    """By name, as checkpoints hold it: of `ListState` a list, of `MapState` a dict (or the value of the entry that was
    asked for), of `AggregatingState` the accumulator. States in which the key has nothing are left out, whatever their
    default."""
    as_of: int | Literal["live"]
    """The id of the checkpoint that this is in, or `"live"`: as it was when the key's owner answered. That may be newer
    than any checkpoint, and is gone if the job fails before the next one."""
    checkpoint: int | None
    """The id of a complete checkpoint that this is as new as, or newer: the newest one, or what the job was restored
    from. `None`: there is none yet."""
    timers: tuple[KeyTimer, ...] = ()
    """Where all states were asked for: the timers that are set for the key, the first one first."""
    asked: tuple[str, ...] = field(default=(), repr=False)
    """Names of the states that were asked for."""

    @property
    def value(self) -> Any:
        """Of the one state that was asked for, or that the step has; `None` if the key has nothing in it.

        Raises:
            ValueError: there are several.
        """
        if len(self.asked) != 1:
            raise ValueError(
                f"step {self.step!r} has {counted(len(self.asked), 'state')}, {', '.join(self.asked)}: ask for one of "
                "them by its name, or look into `states`"
            )
        return self.states.get(self.asked[0])


class Answered(NamedTuple):
    """As `KeyState`, with encoded values."""

    found: Found
    as_of: int | Literal["live"]
    checkpoint: int | None
    asked: tuple[str, ...]


class StepState:
    """The state of keys of one step of a job that runs. Thread-safe."""

    def __init__(self, options: JobOptions, queries: JobQueries, step: str):
        """
        Raises:
            PipelineError: there is no such step, or it has no state of keys; lists those that have.
        """
        self._options = options
        self._queries = queries
        self._step = step
        self._declared = _declared(options.plan, step)

    def __repr__(self) -> str:
        return f"<state of {self._step!r}: {', '.join(self._declared)}>"

    def get(
        self,
        key: Any,
        state: str | None = None,
        *,
        map_key: Any = _ALL,
        at: At = "live",
        timeout: Seconds = TIMEOUT,
    ) -> KeyState:
        """What a key has. The subtask that owns the key answers between two records; nothing is changed by that.

        While the job is being restarted the query waits for the next attempt.

        Args:
            key: as the function of `key_by` gives it: `1`, `1.0` and `"1"` are different keys.
            state: its name; `None` = all, and the key's timers.
            map_key: with the name of a `MapState`, of this entry only.
            at: `"live"`: as it is now; `"checkpoint"`: as it is in the newest complete checkpoint, which is read from
                storage, without the job.
            timeout: of a live answer.

        Raises:
            PipelineError: there is no such state, no checkpoint, or nothing of the step in it; says what there is.
            EncodingError: nothing of that type is a key.
            NotAnswered (a RuntimeError): the job has ended, or the key has more than a running job hands out.
            TimeoutError: there is no answer yet; says what it waited for.
            StorageError: the checkpoint can't be read.
        """
        entry = None if map_key is _ALL else _encoded_entry(map_key)
        answered = self.look_up(encode_key(key), state, entry, at, timeout)
        timers = [KeyTimer(time, clock) for clock, times in answered.found.timers.items() for time in times]
        return KeyState(
            self._step,
            key,
            {name: _decoded(value) for name, value in answered.found.states.items()},
            answered.as_of,
            answered.checkpoint,
            tuple(sorted(timers)),
            answered.asked,
        )

    def look_up(
        self, key: bytes, state: str | None, map_key: bytes | None, at: At = "live", timeout: Seconds = TIMEOUT
    ) -> Answered:
        """As `get`, with everything encoded."""
        one_of(at, "at", ("live", "checkpoint"))
        patience = seconds(timeout, "timeout", 0.0)
        self._check(state, map_key)
        asked = tuple(self._declared) if state is None else (state,)
        if at == "checkpoint":
            point, rows = self._in_checkpoint(key)
            return Answered(_part(rows, state, map_key), point.metadata.id, point.metadata.id, asked)
        query = PointQuery(self._step, key, key_group(key, self._options.max_parallelism), state, map_key)
        answer = self._queries.ask(query, patience)
        return Answered(answer.found, "live", answer.checkpoint, asked)

    def _check(self, state: str | None, map_key: bytes | None) -> None:
        if state is not None and state not in self._declared:
            there = ", ".join(self._declared) or "none"
            raise PipelineError(f"step {self._step!r} has no state of keys called {state!r}; it has {there}")
        if map_key is None:
            return
        if state is None or self._declared[state].content is not dict:
            maps = ", ".join(name for name, one in self._declared.items() if one.content is dict) or "none"
            raise PipelineError(f"only a MapState has entries: name one of step {self._step!r}, which has {maps}")

    def _in_checkpoint(self, key: bytes) -> tuple[RestorePoint, KeyRows]:
        config = self._options.checkpoints
        if config is None:
            raise PipelineError("the job takes no checkpoints; CheckpointConfig says where they go")
        folder = CheckpointStorage(config.uri, self._options.name).uri_of()
        for reads_left in reversed(range(_READS)):
            try:
                point = open_point(folder)
            except NotACheckpoint as error:
                raise PipelineError(f"the job has no complete checkpoint yet: {error}") from error
            try:
                return point, rows_of_key(point, self._step, key)
            except NoSuchTable as error:
                raise PipelineError(str(error)) from error
            except DeletedMeanwhile:
                if not reads_left:
                    raise
        raise AssertionError("the last read returns or raises")


def _declared(plan: Plan, step: str) -> dict[str, KeyedStateDescriptor[Any]]:
    """The states of keys of a step, by name."""
    keyed = {
        vertex.head.id: _states_of(vertex.head.payload)
        for vertex in plan.vertices
        if isinstance(vertex.head.payload, KeyedOperator)
    }
    if step in keyed:
        return keyed[step]
    there = "; ".join(f"{id!r} ({', '.join(states) or 'timers only'})" for id, states in keyed.items()) or "none"
    is_there = any(one.id == step for vertex in plan.vertices for one in vertex.steps)
    problem = f"step {step!r} has no state of keys" if is_there else f"there is no step {step!r}"
    raise PipelineError(f"{problem}; steps with state of keys: {there}")


def _states_of(operator: KeyedOperator) -> dict[str, KeyedStateDescriptor[Any]]:
    return {name: one for name, one in descriptors_of(type(operator)).items() if isinstance(one, KeyedStateDescriptor)}


def _encoded_entry(map_key: Any) -> bytes:
    try:
        hash(map_key)
    except TypeError as error:
        raise PipelineError(f"{shown(map_key)} is no key of a map: {error}") from None
    return encode(map_key)


def _decoded(value: bytes) -> Any:
    try:
        return decode(value)
    except UnfitClass:
        return decode_opaquely(value)


def _part(rows: KeyRows, state: str | None, map_key: bytes | None) -> Found:
    """What was asked for of all that a key has."""
    if state is None:
        return Found(rows.states, rows.timers)
    value = rows.states.get(state)
    if value is None or map_key is None:
        return Found({} if value is None else {state: value})
    entries = decode_opaquely(value)
    wanted = decode_opaquely(map_key)
    return Found({state: encode(entries[wanted])} if wanted in entries else {})


__all__ = ["At", "KeyState", "KeyTimer", "NotAnswered", "StepState"]
