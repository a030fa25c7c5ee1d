"""Input of joins in any order, joins that run over it with restores at any place, and what must come of it: told by
looking at all of the input at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import strategies as st

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.state.snapshot_reader import read_snapshot
from checkpoint.state_backends import StateBackend
from pipeline.operators import KeyedOperator
from pipeline.paged import directory
from pipeline.testing import OperatorHarness

KEYS = (None, "a", 1, True)
"""Each in a key group of its own."""


class Record(NamedTuple):
    side: str
    key: Any
    at: int
    number: int
    """Records with equal fields are different ones."""

    @property
    def value(self) -> dict[str, Any]:
        return {"side": self.side, "n": self.number}


class Watermark(NamedTuple):
    at: int


class Restore(NamedTuple):
    """A snapshot is taken, and the join goes on from it."""


Event: TypeAlias = Record | Watermark | Restore
Result: TypeAlias = tuple[int, Any, int | None, int | None]
"""Timestamp, key (as text, since True is 1 to Python), and the numbers of the left and the right record."""


def events(times: st.SearchStrategy[int] | None = None, most: int = 40) -> st.SearchStrategy[list[Event]]:
    """Any order, with late records and watermarks that go back."""
    at = st.integers(-15, 15) if times is None else times
    record = st.tuples(st.sampled_from(("left", "right")), st.sampled_from(KEYS[:2]), at).map(lambda r: Record(*r, 0))
    watermark = at.map(Watermark)
    one = st.one_of(record, record, record, watermark, st.just(Restore()))
    return st.lists(one, max_size=most).map(_numbered)


def _numbered(found: list[Any]) -> list[Event]:
    return [one._replace(number=i) if isinstance(one, Record) else one for i, one in enumerate(found)]


class Split(NamedTuple):
    """What an oracle makes of events: what is on time, in order of arrival, and what is late."""

    lefts: list[Record]
    rights: list[Record]
    late: list[Record]


def split(found: Iterable[Event], reached: Callable[[Any], int | None] = lambda key: None) -> Split:
    """`reached`: the watermark that a key had at first."""
    watermark: int | None = None
    result = Split([], [], [])
    for one in found:
        if isinstance(one, Watermark):
            watermark = one.at if watermark is None else max(watermark, one.at)
        elif isinstance(one, Record):
            known = [at for at in (watermark, reached(one.key)) if at is not None]
            if known and one.at <= max(known):
                result.late.append(one)
            else:
                (result.lefts if one.side == "left" else result.rights).append(one)
    return result


def same_key(one: Record, other: Record) -> bool:
    return type(one.key) is type(other.key) and one.key == other.key


def interval_oracle(lefts: Sequence[Record], rights: Sequence[Record], within: tuple[int, int], how: str) -> Counter:
    """`within`: in milliseconds."""
    lower, upper = within
    found: Counter = Counter()
    partners: Counter = Counter()
    for left in lefts:
        for right in rights:
            if same_key(left, right) and left.at + lower <= right.at <= left.at + upper:
                found[max(left.at, right.at), repr(left.key), left.number, right.number] += 1
                partners[left.number] += 1
                partners[right.number] += 1
    if how in ("left", "full"):
        for one in lefts:
            if not partners[one.number]:
                found[clamped(max(one.at, one.at + upper)), repr(one.key), one.number, None] += 1
    if how in ("right", "full"):
        for one in rights:
            if not partners[one.number]:
                found[clamped(max(one.at, one.at - lower)), repr(one.key), None, one.number] += 1
    return found


def as_of_oracle(lefts: Sequence[Record], rights: Sequence[Record], how: str, max_age: int | None) -> Counter:
    """`max_age`: in milliseconds. Of rights of one time the one that came last counts."""
    found: Counter = Counter()
    for left in lefts:
        newest: Record | None = None
        for right in rights:
            if same_key(left, right) and right.at <= left.at and (newest is None or right.at >= newest.at):
                newest = right
        if newest is not None and max_age is not None and left.at - newest.at > max_age:
            newest = None
        if newest is not None or how == "left":
            found[left.at, repr(left.key), left.number, None if newest is None else newest.number] += 1
    return found


def clamped(at: int) -> int:
    return max(-(2**63), min(at, MAX_WATERMARK))


class JoinRun:
    """A join over events, as one subtask."""

    def __init__(self, make: Callable[[], KeyedOperator], backend: StateBackend = "heap") -> None:
        """`make`: a new operator each time."""
        self._make = make
        self._backend = backend
        self.harness = OperatorHarness(make(), state_backend=backend)
        self.results: Counter = Counter()
        self.late: Counter = Counter()
        self.keys: set[Any] = set()

    @classmethod
    def together(cls, runs: Sequence[JoinRun]) -> JoinRun:
        """One that goes on for all of these, as after rescaling."""
        run = cls(runs[0]._make, runs[0]._backend)
        for one in runs:
            run._take(one)
        run.harness.close()
        run.harness = OperatorHarness.restore(
            run._make(), [one.harness.snapshot() for one in runs], state_backend=run._backend
        )
        for one in runs:
            one.harness.close()
        return run

    def feed(self, found: Iterable[Event]) -> JoinRun:
        for one in found:
            if isinstance(one, Watermark):
                self.harness.watermark(one.at)
            elif isinstance(one, Record):
                self.keys.add(one.key)
                process = self.harness.process if one.side == "left" else self.harness.process_connected
                process(one.value, key=one.key, timestamp=one.at)
            else:
                old = self.harness
                self.harness = OperatorHarness.restore(self._make(), old.snapshot(), state_backend=self._backend)
                self._gather(old)
                old.close()
        return self

    def end(self) -> JoinRun:
        self.harness.end_of_input()
        self._gather(self.harness)
        return self

    def kept(self, state: str | None = None) -> list[tuple[str, Any]]:
        """See `rows`."""
        return rows(self.harness, state)

    def _take(self, other: JoinRun) -> None:
        other._gather(other.harness)
        self.results += other.results
        self.late += other.late

    def _gather(self, harness: OperatorHarness) -> None:
        for at, output in zip(harness.timestamps, harness.outputs, strict=True):
            numbers = [None if output[side] is None else output[side]["n"] for side in ("left", "right")]
            self.results[at, repr(output["key"]), *numbers] += 1
        for one in harness.side_outputs.pop("late", ()):
            assert one["side"] == one["record"]["side"]
            self.late[repr(one["key"]), one["side"], one["record"]["n"]] += 1
        harness.outputs, harness.timestamps = [], []


def counted(late: Iterable[Record]) -> Counter:
    """Late records as `JoinRun.late` has them."""
    return Counter((repr(one.key), one.side, one.number) for one in late)


def rows(harness: OperatorHarness, state: str | None = None) -> list[tuple[str, Any]]:
    """What is kept now: names of states and values, of which pages are some; of one state, or of all, timers among
    them."""
    kept = [(row[1], row[4]) for row in read_snapshot(harness.snapshot().keyed_state) if state in (None, row[1])]
    return [one for one in kept if not (isinstance(one[1], list) and one[1][0] is None)]


SIZES = st.sampled_from((2, directory.MOST))
"""Of pages."""


@contextmanager
def pages_of(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "MOST", size)
        yield
