"""State of which all lives for a while only, by either clock, and what it must show: told by looking at all of the
input at once. No code of Weir is in the second half."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from timed_input import Arrival

from pipeline import TTL, KeyedOperator, ListState, MapState, ValueState


class Lifetimes(NamedTuple):
    """In milliseconds."""

    event: int
    processing: int


class Remembers(KeyedOperator):
    """Emits each record with what is known of earlier ones by the clock of the host, and for each record later on, by a
    timer, which records are known by event time then.

    Of what has come at the same moment nothing is told, since nobody prescribes its order.
    """

    recent: MapState[int, int]
    recent_list: ListState[Any]
    chain: ValueState[Any]
    """Goes on as long as records of the key follow each other."""
    near: MapState[int, int]
    near_list: ListState[Any]

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        now, id = ctx.processing_time, value["id"]
        chain = self.chain.value or []
        seen = [
            sorted(other for other, at in self.recent.items() if at < now),
            sorted(other for other, at in self.recent_list.get() if at < now),
            sorted(other for other, at in chain if at < now),
        ]
        self.recent[id] = now
        self.recent_list.append([id, now])
        self.chain.value = [*chain, [id, now]]
        self.near[id] = ctx.timestamp
        self.near_list.append([id, ctx.timestamp])
        ctx.timer(ctx.timestamp + later(id))
        yield {**value, "seen": seen}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        seen = [
            sorted(id for id, at in self.near.items() if at <= timestamp),
            sorted(id for id, at in self.near_list.get() if at <= timestamp),
        ]
        yield {"id": look_of(ctx.key, timestamp), "key": ctx.key, "at": timestamp, "seen": seen}


def remembering(lifetimes: Lifetimes) -> KeyedOperator:
    event, processing = TTL(lifetimes.event / 1000, time="event"), TTL(lifetimes.processing / 1000)

    class Forgets(Remembers):
        recent = MapState(ttl=processing)
        recent_list = ListState(ttl=processing)
        chain = ValueState(ttl=processing)
        near = MapState(ttl=event)
        near_list = ListState(ttl=event)

    return Forgets()


def later(id: int) -> int:
    """How long behind a record's time its timer is, in milliseconds."""
    return id * 37 % 250


def look_of(key: str, at: int) -> str:
    """The id of what a timer emits."""
    return f"{key} at {at}"


# -- the oracle -------------------------------------------------------------------------------------------------


def looks(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """What timers emit, each once, as if it had been read."""
    times = {(one.key, one.at + later(one.id)): one for one in arrivals}
    return [one._replace(id=look_of(key, at), at=at) for (key, at), one in times.items()]  # type: ignore[arg-type]


def seen(arrivals: Iterable[Arrival], sent: Mapping[int, int], lifetimes: Lifetimes) -> dict[Any, list[list[int]]]:
    """By id of a record or look what it shows. `sent`: when each record was processed, by the clock of the host."""
    found: dict[Any, list[list[int]]] = {}
    of_key: dict[str, list[Arrival]] = {}
    for one in arrivals:
        of_key.setdefault(one.key, []).append(one)
    for key, records in of_key.items():
        for one in records:
            now = sent[one.id]
            alive = sorted(r.id for r in records if now - lifetimes.processing < sent[r.id] < now)
            found[one.id] = [alive, alive, _chain(records, sent, now, lifetimes.processing)]
            at = one.at + later(one.id)
            near = sorted(r.id for r in records if at - lifetimes.event < r.at <= at)
            found[look_of(key, at)] = [near, near]
    return found


def _chain(records: list[Arrival], sent: Mapping[int, int], now: int, span: int) -> list[int]:
    """Back from now, up to the first pause that is too long."""
    chain: list[int] = []
    begin = now
    for one in sorted((r for r in records if sent[r.id] < now), key=lambda r: -sent[r.id]):
        if begin - sent[one.id] >= span:
            break
        begin = sent[one.id]
        chain.append(one.id)
    return sorted(chain)
