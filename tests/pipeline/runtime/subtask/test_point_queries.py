"""What a subtask answers to point queries, and how much of the task thread's time that takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from checkpoint.codec import decode, encode, encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import DeclaresState, KeyedBackend, ListState, MapState, ValueState, bind, make_backend
from pipeline.runtime import protocol
from pipeline.runtime.point_query import Found, PointQuery
from pipeline.runtime.subtask import point_queries
from pipeline.runtime.subtask.point_queries import PointQueries

MAX = 16


class Everything(DeclaresState):
    total = ValueState(default=0)
    bag = ValueState(default=list)
    items = ListState[Any]()
    seen = MapState[Any, Any]()


class Subtask:
    """A backend that `fill` has put something into, and whoever answers for it."""

    def __init__(self, backend: KeyedBackend | None) -> None:
        self.now = 100.0
        self.cost = 0.0
        """Seconds that an answer takes."""
        self.said: list[Any] = []
        self.queries = PointQueries(backend, self.report, lambda: self.now)

    def report(self, message: Any) -> None:
        self.now += self.cost
        self.said.append(message)

    def ask(self, key: Any, state: str | None = None, map_key: bytes | None = None, number: int = 1) -> Found:
        encoded = encode_key(key)
        query = PointQuery("totals", encoded, key_group(encoded, MAX), state, map_key)
        self.queries.add(protocol.Query(number, query))
        self.now += 1
        self.queries.answer(self.now)
        answered = self.said.pop()
        assert (type(answered), answered.number) == (protocol.QueryAnswered, number)
        found: Found = answered.found
        return found

    def add(self, count: int) -> None:
        for number in range(count):
            self.queries.add(protocol.Query(number, PointQuery("totals", encode_key("ann"), 0, "total")))


@pytest.fixture
def backend() -> KeyedBackend:
    return make_backend(range(MAX), MAX)


@pytest.fixture
def operator(backend: KeyedBackend) -> Any:
    made = Everything()
    bind(made, backend)
    key = encode_key("ann")
    backend.set_current_key(key, key_group(key, MAX))
    return made


def decoded(found: Found) -> dict[str, Any]:
    assert found.refused is None, found.refused
    return {state: decode(value) for state, value in found.states.items()}


def refused(found: Found) -> str:
    assert found.states == found.timers == {}
    assert found.refused is not None
    return found.refused


def test_all_that_a_key_has_and_each_part_of_it(backend: KeyedBackend, operator: Any) -> None:
    operator.total.value = 5
    operator.items.extend([1, (2,)])
    operator.seen[("a", 1)] = [3]
    backend.event_timers.register(20)
    backend.event_timers.register(10)
    backend.clear_current_key()
    subtask = Subtask(backend)
    found = subtask.ask("ann", number=7)
    assert decoded(found) == {"total": 5, "items": [1, (2,)], "seen": {("a", 1): [3]}}
    assert found.timers == {"event": (10, 20), "processing": ()}
    assert decoded(subtask.ask("ann", "items")) == {"items": [1, (2,)]}
    assert subtask.ask("ann", "items").timers == {}
    assert decoded(subtask.ask("ann", "seen", encode(("a", 1)))) == {"seen": [3]}
    assert decoded(subtask.ask("ann", "seen", encode(("a", 2)))) == {}
    assert decoded(subtask.ask("ann", "bag")) == {}
    assert subtask.ask("bob") == Found({}, {"event": (), "processing": ()})


def test_an_answer_is_a_copy(backend: KeyedBackend, operator: Any) -> None:
    operator.bag.value.append(1)
    found = Subtask(backend).ask("ann", "bag")
    operator.bag.value.append(2)
    assert decoded(found) == {"bag": [1]}


def test_what_would_take_too_long_is_refused(
    backend: KeyedBackend, operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_queries, "MOST_ENTRIES", 10)
    monkeypatch.setattr(point_queries, "MOST_TIMERS", 1)
    monkeypatch.setattr(point_queries, "LARGEST_ANSWER", 1000)
    subtask = Subtask(backend)
    operator.total.value = "x" * 600
    operator.seen.update(dict.fromkeys(range(10), "y" * 50))
    assert "what key 'ann' has takes 1,1" in refused(subtask.ask("ann"))
    assert len(decoded(subtask.ask("ann", "total"))["total"]) == 600
    operator.total.clear()
    operator.seen[10] = 1
    assert "state 'seen' of key 'ann' is too large to be looked at" in refused(subtask.ask("ann"))
    assert "no more than 10 entries are looked at, and there are 11" in refused(subtask.ask("ann", "seen"))
    assert decoded(subtask.ask("ann", "seen", encode(10))) == {"seen": 1}
    operator.seen.clear()
    assert decoded(subtask.ask("ann")) == {}
    backend.event_timers.register(1)
    backend.event_timers.register(2)
    assert "the timers of key 'ann' lie among too many others" in refused(subtask.ask("ann"))
    assert decoded(subtask.ask("ann", "total")) == {}


def test_what_cant_be_answered_is_refused_and_the_task_goes_on(backend: KeyedBackend, operator: Any) -> None:
    operator.bag.value.append(object())  # the next snapshot says so, too
    operator.total.value = 5
    subtask = Subtask(backend)
    assert refused(subtask.ask("ann")).startswith("state 'bag' of key 'ann': ")
    assert "is no map" in refused(subtask.ask("ann", "items", encode(1)))
    assert "unhashable" in refused(subtask.ask("ann", "seen", encode([1])))
    assert decoded(subtask.ask("ann", "total")) == {"total": 5}
    assert refused(Subtask(None).ask("ann")) == "step 'totals' has no state of keys"
    foreign = make_backend(range(1), MAX)
    bind(Everything(), foreign)
    assert "but owns 0..0" in refused(Subtask(foreign).ask("ann"))


@dataclass(frozen=True)
class Place:
    """Of a map's entry."""

    name: str

    def __hash__(self) -> int:
        raise OSError("no hash today")


def test_a_question_for_an_entry_whose_class_is_missing_or_fails_ends_no_task(
    backend: KeyedBackend, operator: Any
) -> None:
    operator.seen["x"] = 1
    subtask = Subtask(backend)
    asked = encode(Place("x"))
    assert "OSError: no hash today" in refused(subtask.ask("ann", "seen", asked))
    gone = asked.replace(b"Place", b"Plage")
    assert "there is no such class in the modules that are loaded here" in refused(subtask.ask("ann", "seen", gone))
    assert decoded(subtask.ask("ann", "seen", encode("x"))) == {"seen": 1}


def test_questions_take_a_tenth_of_the_time_at_most(backend: KeyedBackend, operator: Any) -> None:
    subtask = Subtask(backend)
    subtask.cost = 0.0005
    subtask.add(1000)
    began, spent = subtask.now, 0.0
    while len(subtask.said) < 1000:
        turn = subtask.now
        subtask.queries.answer(turn)
        spent += subtask.now - turn
        assert subtask.now - turn <= 0.0025, "one turn holds records up for so long at most"
        subtask.now += 0.0001
    assert [message.number for message in subtask.said] == list(range(1000))
    assert 0.09 < spent / (subtask.now - began) < 0.11


@pytest.mark.parametrize("cost", [0.0, 0.3])
def test_one_is_answered_however_long_it_takes_and_an_idle_task_knows_when_it_is_time(
    backend: KeyedBackend, operator: Any, cost: float
) -> None:
    subtask = Subtask(backend)
    subtask.cost = cost
    assert subtask.queries.next_at is None
    subtask.add(3)
    at = subtask.queries.next_at
    assert at is not None
    assert at <= subtask.now
    subtask.queries.answer(subtask.now)
    assert len(subtask.said) == (1 if cost else 3)
    if cost:
        at = subtask.queries.next_at
        assert at == pytest.approx(subtask.now + 9 * cost)
        subtask.queries.answer(at - 0.001)
        assert len(subtask.said) == 1
        subtask.now = at
        subtask.queries.answer(at)
        assert len(subtask.said) == 2
    else:
        assert subtask.queries.next_at is None


def test_that_somebody_asks_makes_no_difference_to_a_snapshot() -> None:
    def records(ask: bool) -> Iterable[bytes]:
        backend = make_backend(range(MAX), MAX)
        operator: Any = Everything()
        bind(operator, backend)
        subtask = Subtask(backend)
        for number in range(200):
            key = encode_key(number % 7)
            backend.set_current_key(key, key_group(key, MAX))
            operator.total.value += number
            operator.bag.value.append(number)
            operator.seen[number] = [number]
            backend.event_timers.register(number)
            backend.clear_current_key()
            frozen = backend.freeze() if number % 50 == 0 else None
            if ask:
                for asked in (number % 7, "nobody"):
                    subtask.ask(asked)
            if frozen is not None:
                yield from written(frozen)
        yield from written(backend.freeze())

    def written(snapshot: Any) -> list[bytes]:
        pieces: list[bytes] = []
        snapshot.write(lambda piece: pieces.append(bytes(piece)), "none")
        return pieces

    assert list(records(ask=True)) == list(records(ask=False))
