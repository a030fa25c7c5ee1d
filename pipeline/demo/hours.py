"""Delay by airport and hour beside the weather: what the output must be, computed directly, and the check of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

_HOUR: Final = 3_600_000
_OLDEST: Final = 3 * _HOUR
"""Weather that is older than this at the end of an hour counts for none."""
_WINDS: Final = (("under 10 mph", 10.0), ("10 to 20 mph", 20.0), ("20 mph and more", float("inf")))

Hour: TypeAlias = tuple[str, int]
"""Airport, and the beginning in milliseconds since the epoch."""


@dataclass(frozen=True)
class HoursFindings:
    """The result of the check, in hours of airports."""

    expected: int
    lost: int
    duplicated: int
    wrong: int

    @property
    def ok(self) -> bool:
        return self.lost == self.duplicated == self.wrong == 0


class ExpectedHours:
    """The right output for each hour of each airport, without anything of the job's code."""

    def __init__(self, flights: Iterable[Mapping[str, Any]], weather: Iterable[Mapping[str, Any]]) -> None:
        hours: dict[Hour, list[int]] = {}
        for flight in flights:
            sums = hours.setdefault((flight["origin"], flight["at"] // _HOUR * _HOUR), [0, 0])
            sums[0] += 1
            sums[1] += flight["dep_delay"] or 0
        observed: dict[str, list[Mapping[str, Any]]] = {}
        for one in weather:
            observed.setdefault(one["origin"], []).append(one)
        times = {origin: [one["at"] for one in rows] for origin, rows in observed.items()}
        self.records: dict[Hour, dict[str, Any]] = {}
        for (origin, start), (count, minutes) in hours.items():
            last = start + _HOUR - 1
            place = bisect_right(times.get(origin, ()), last) - 1
            found = observed[origin][place] if place >= 0 else None
            if found is not None and found["at"] < last - _OLDEST:
                found = None
            self.records[origin, start] = {
                "origin": origin,
                "hour": start,
                "flights": count,
                "minutes": minutes,
                "wind": None if found is None else found["wind_speed"],
                "visib": None if found is None else found["visib"],
            }

    def findings(self, values: Iterable[bytes | None]) -> HoursFindings:
        """Compare the output with what it must be."""
        seen: set[Hour] = set()
        duplicated = wrong = 0
        for value in values:
            record = orjson.loads(value or b"null")
            hour = (record["origin"], record["hour"]) if isinstance(record, dict) else None
            if hour in seen:
                duplicated += 1
            elif hour is None or record != self.records.get(hour):
                wrong += 1
            if hour is not None:
                seen.add(hour)
        return HoursFindings(len(self.records), len(self.records.keys() - seen), duplicated, wrong)

    def delay_by_wind(self) -> list[tuple[str, int, float | None]]:
        """Flights and their mean delay in minutes, by how strong the wind was."""
        rows = []
        least = 0.0
        for label, most in _WINDS:
            hours = [one for one in self.records.values() if one["wind"] is not None and least <= one["wind"] < most]
            flights = sum(one["flights"] for one in hours)
            rows.append((label, flights, sum(one["minutes"] for one in hours) / flights if flights else None))
            least = most
        return rows
