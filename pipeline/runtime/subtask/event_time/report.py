"""What a subtask tells of its event time: how far it is, what comes late, who holds it back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from checkpoint.counted import counted
from checkpoint.elements import ChannelName
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.combiner import WatermarkCombiner
from checkpoint.state.timers import Timers
from checkpoint.waiting import Waiting, WaitKind
from pipeline.runtime.subtask.event_time.domains import TimeDomain

_LOG = logging.getLogger(f"weir.{__name__}")
HELD_BACK: Final = 10.0
"""Seconds without a new watermark after which the subtask says who holds back others."""
STANDS_STILL: Final = 60.0
"""Seconds after which it says so when nobody else is ahead: perhaps there is just nothing to do."""
FAR_AHEAD: Final = 60_000
"""Milliseconds by which a watermark may be ahead of the host's clock without a word."""
_SECONDS: Final = range(10**9, 10**10)
"""Watermarks that were taken from seconds rather than milliseconds since the epoch: from the years 2001 to 2286, which
as milliseconds are the first months of 1970."""
_BETWEEN_LINES: Final = 30.0
"""Seconds between two log lines about one thing."""
_IDLE: Final = "idle_after or quiet_after leaves out what is quiet"
_NAMED: Final = 3
"""Splits or channels that a text names."""


class TimeReport:
    """Asked by the task thread a few times a second."""

    def __init__(
        self,
        name: str,
        head: TimeDomain,
        generated: Sequence[TimeDomain],
        combiner: WatermarkCombiner,
        timers: Timers | None,
        wall_clock: Callable[[], float],
        inputs: tuple[str, str] | None = None,
    ) -> None:
        """
        Args:
            name: of the subtask's head step.
            inputs: what its two inputs are called; `None` = by the steps that they come from.
            timers: event timers, if there are any.
        """
        self._name = name
        self._head = head
        self._generated = generated
        self._combiner = combiner
        self._timers = timers
        self._wall_clock = wall_clock
        self._inputs = inputs
        self._told: set[str] = set()
        """What `waiting` was told."""
        self._logged: dict[str, tuple[float, int]] = {}
        """By subject, when and what number was logged last."""

    def gauges(self) -> dict[str, int | None]:
        """By metric. The watermark is the one that goes downstream, the lowest if there are several."""
        domains = self._generated or [self._head]
        told = [domain.watermark for domain in domains]
        watermark = None if None in told else min(one for one in told if one is not None)
        live = watermark is not None and watermark != MAX_WATERMARK
        return {
            "watermark": watermark,
            "watermarkLagMs": int(self._wall_clock() * 1000) - watermark if live and watermark is not None else None,
            "eventTimeIdle": int(all(domain.idle for domain in domains)),
            "recordsLate": sum(domain.late for domain in self._generated),
            "recordsAhead": sum(one.generator.ahead for one in self._generated if one.generator is not None),
            "timersDropped": 0 if self._timers is None else self._timers.dropped,
        }

    def log(self, now: float) -> None:
        """Warn of timestamps in seconds, of records ahead and of timers dropped, if there are more of them."""
        for domain in self._generated:
            generator = domain.generator
            if domain.watermark is not None and domain.watermark in _SECONDS:
                self._log(
                    f"seconds {domain.step}",
                    domain.watermark,
                    now,
                    f"assign_timestamps {domain.step!r}: the watermark is {domain.watermark}, in the first months of "
                    "1970. Are the timestamps in seconds? They must be in milliseconds: multiply them by 1000",
                )
            if generator is not None and generator.last_ahead is not None:
                split, at = generator.last_ahead
                self._log(
                    f"ahead {domain.step}",
                    generator.ahead,
                    now,
                    f"assign_timestamps {domain.step!r}: of its records so far "
                    f"{counted(generator.ahead, 'was', 'were')} further ahead than max_ahead and did "
                    f"not move the watermark; the last one from {_split(split)} with timestamp {at}",
                )
        if self._timers is not None:
            self._log(
                "timers",
                self._timers.dropped,
                now,
                f"step {self._name!r}: of its timers {counted(self._timers.dropped, 'was', 'were')} dropped: they were "
                "set by timers that fired since event time has ended, and would have set each other for ever",
            )

    def _log(self, subject: str, number: int, now: float, text: str) -> None:
        when, before = self._logged.get(subject, (now - _BETWEEN_LINES, 0))
        if number > before and now - when >= _BETWEEN_LINES:
            self._logged[subject] = (now, number)
            _LOG.warning("%s", text)

    def tell(self, waiting: Waiting, now: float) -> None:
        """Say whom event time waits for."""
        found = dict(self.waits(now))
        for what in self._told - found.keys():
            waiting.end(what)
        for what, since in found.items():
            waiting.begin(what, since, WaitKind.EVENT_TIME)
        self._told = set(found)

    def waits(self, now: float) -> Iterable[tuple[str, float]]:
        """What to tell, and since when by the task's clock."""
        for domain in self._generated:
            yield from self._generator_waits(domain, now)
        if self._timers or self._head.listeners:
            yield from self._channel_waits(now)

    def _generator_waits(self, domain: TimeDomain, now: float) -> Iterable[tuple[str, float]]:
        generator, watermark = domain.generator, domain.watermark
        if generator is None or watermark == MAX_WATERMARK:
            return
        if watermark is not None and watermark > int(self._wall_clock() * 1000) + FAR_AHEAD:
            yield (
                f"the clock to reach the watermark of {domain.step!r}, which is ahead of it: a record had a timestamp "
                f"of {generator.newest} (max_ahead leaves such records out)",
                domain.since,
            )
        elif watermark is not None and watermark in _SECONDS:
            yield (
                f"timestamps in milliseconds for {domain.step!r}: its watermark is {watermark}, in the first months of "
                "1970, so they seem to be in seconds",
                domain.since,
            )
        elif now - domain.since >= HELD_BACK and generator.held_back:
            holding = generator.holding()
            quiet = min((seconds for *_, seconds in holding), default=0.0)
            splits = _list(_split(id) for id, *_ in holding)
            if any(largest is None for _, largest, _ in holding):
                yield (
                    f"a first record of {splits}, without which {domain.step!r} makes no watermark ({_IDLE})",
                    domain.since,
                )
            elif quiet >= HELD_BACK:
                yield f"records of {splits}, which hold the watermark of {domain.step!r} back ({_IDLE})", now - quiet
            elif all(generator.split(id).waits for id, *_ in holding):
                yield (
                    f"records of {splits} that are there and have not been read, or are in an open transaction: they "
                    f"hold the watermark of {domain.step!r} back",
                    domain.since,
                )

    def _channel_waits(self, now: float) -> Iterable[tuple[str, float]]:
        combiner, since = self._combiner, self._head.since
        if now - since < HELD_BACK or self._head.watermark == MAX_WATERMARK or combiner.follows_clock:
            return
        holding = [(id, value) for id, value in combiner.holding() if isinstance(id, ChannelName)]
        upstream = _list(dict.fromkeys(self._origin(id) for id, _ in holding))
        if 0 < len(holding) < combiner.channels:
            what = "is the furthest behind" if holding[0][1] is not None else "has made none"
            yield f"a watermark of {upstream}, which {what}, for {self._name!r}", since
        elif now - since >= STANDS_STILL:
            if holding and not combiner.any_told:
                yield f"a watermark of {upstream}, which has made none, for the timers of {self._name!r}", since
            else:
                yield f"records with later timestamps, for the timers of {self._name!r} (or quiet_after)", since

    def _origin(self, channel: ChannelName) -> str:
        origin = f"{channel.edge.upstream!r} (subtask {channel.upstream})"
        return origin if self._inputs is None else f"the {self._inputs[channel.edge.input]} stream, {origin}"


def _split(id: Any) -> str:
    return "the input" if id is None else f"split {id!r}"


def _list(texts: Iterable[str]) -> str:
    all_ = list(texts)
    more = f" and {len(all_) - _NAMED} more" if len(all_) > _NAMED else ""
    return ", ".join(all_[:_NAMED]) + more
