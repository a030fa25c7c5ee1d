"""What the output must be, computed directly, and the check of every record against it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True)
class Carrier:
    """A carrier's figures at the end."""

    flights: int
    without_delay: int
    minutes: int
    worst: int | None

    @property
    def mean(self) -> float | None:
        """Minutes; `None` if no flight of it arrived."""
        arrived = self.flights - self.without_delay
        return self.minutes / arrived if arrived else None


class Expected:
    """The right output for each flight, by id, without anything of the job's code. 33 bytes a record."""

    _NO_WORST = -(2**62)

    def __init__(self, flights: Iterable[Mapping[str, Any]]) -> None:
        self.carriers: list[str] = []
        self._index: dict[str, int] = {}
        self._carrier = array("H")
        self._figures = tuple(array("q") for _ in range(4))
        self.final: dict[str, Carrier] = {}
        running: list[list[int]] = []
        for flight in flights:
            code, delay = flight["carrier"], flight["arr_delay"]
            index = self._index.get(code)
            if index is None:
                index = self._index[code] = len(self.carriers)
                self.carriers.append(code)
                running.append([0, 0, 0, self._NO_WORST])
            now = running[index]
            now[0] += 1
            if delay is None:
                now[1] += 1
            else:
                now[2] += delay
                now[3] = max(now[3], delay)
            self._carrier.append(index)
            for column, figure in zip(self._figures, now, strict=True):
                column.append(figure)
        for code, now in zip(self.carriers, running, strict=True):
            self.final[code] = Carrier(now[0], now[1], now[2], self._worst(now[3]))

    def __len__(self) -> int:
        return len(self._carrier)

    def record(self, id: int) -> dict[str, Any]:
        """The output for flight `id`."""
        flights, without_delay, minutes, worst = (column[id] for column in self._figures)
        return {
            "id": id,
            "carrier": self.carriers[self._carrier[id]],
            "flights": flights,
            "without_delay": without_delay,
            "minutes": minutes,
            "worst": self._worst(worst),
        }

    def _worst(self, figure: int) -> int | None:
        return None if figure == self._NO_WORST else figure


@dataclass(frozen=True)
class Findings:
    """The result of a check, in records."""

    records_in: int
    records_out: int
    lost: int
    """Flights without output."""
    duplicated: int
    """Outputs beyond the first of a flight."""
    wrong: int
    """First outputs of a flight with other content than expected or behind a later flight of the carrier, and records
    that are no output of any flight."""
    examples: tuple[str, ...] = ()
    """A few examples of what is wrong."""

    @property
    def ok(self) -> bool:
        return self.lost == self.duplicated == self.wrong == 0


class Validator:
    """Takes the output topic record by record, in the order of each partition."""

    _EXAMPLES = 5

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._seen = bytearray(len(expected))
        self._last: dict[str, int] = {}
        """By carrier, the largest id that has come."""
        self._out = self._duplicated = self._wrong = 0
        self._examples: list[str] = []

    def take(self, value: bytes | None) -> None:
        self._out += 1
        try:
            record = orjson.loads(value or b"")
        except ValueError:
            self._note(f"no JSON: {value!r}")
            return
        id = record.get("id") if isinstance(record, dict) else None
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < len(self._seen):
            self._note(f"an output of no flight: {record!r}")
            return
        if self._seen[id]:
            self._duplicated += 1
            return
        self._seen[id] = 1
        expected = self._expected.record(id)
        carrier = expected["carrier"]
        last = self._last.get(carrier, -1)
        self._last[carrier] = max(last, id)
        if record != expected:
            self._note(f"{record!r} should be {expected!r}")
        elif id < last:
            self._note(f"flight {id} of {carrier} comes behind its later flight {last}")

    def findings(self) -> Findings:
        """What was found; what has not come until now is lost."""
        lost = len(self._seen) - sum(self._seen)
        return Findings(len(self._seen), self._out, lost, self._duplicated, self._wrong, tuple(self._examples))

    def _note(self, what: str) -> None:
        self._wrong += 1
        if len(self._examples) < self._EXAMPLES:
            self._examples.append(what)
