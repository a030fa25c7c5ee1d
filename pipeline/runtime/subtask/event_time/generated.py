"""The watermarks that `assign_timestamps` steps of a subtask make, and the state of that in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.event_time.generator import PERIOD, WatermarkGenerator
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.event_time.own_state import Identity


class GeneratedTime:
    """Asks the generators for watermarks as the clock goes on, and tells them which splits are read."""

    def __init__(
        self,
        domains: Sequence[TimeDomain],
        identity: Identity,
        splits: Callable[[], Sequence[Any] | None],
        waiting: Callable[[], Collection[Any]],
    ) -> None:
        """
        Args:
            domains: those with a generator, in the order of the chain.
            splits: of a source, `SourceReader.splits`.
            waiting: of a source, `SourceReader.waiting_splits`.
        """
        self._domains = domains
        self._identity = identity
        self._splits = splits
        self._waiting = waiting
        self._next_splits = 0.0
        self._made: dict[str, int] = {}
        """Watermarks that are to be passed on, by the step of their domain."""

    def on_clock(self, now: float, held_up: bool, most: float) -> bool:
        """See `EventTime.on_clock`. Returns whether there is something to pass on."""
        if now >= self._next_splits:
            self.refresh_splits(now)
        news = False
        for domain, generator in self.running():
            watermark = generator.on_clock(now, held_up, most)
            if watermark is not None:
                self._made[domain.step] = watermark
            news = news or watermark is not None or generator.idle is not domain.idle
        return news

    def refresh_splits(self, now: float) -> None:
        self._next_splits = now + PERIOD
        by_split = [domain.generator for domain in self._domains if domain.by_split]
        if by_split:
            read = self._splits()
            waiting = list(map(_hashable, self._waiting()))
            for generator in by_split:
                assert generator is not None
                if read is None:
                    generator.split(None)
                else:
                    generator.set_splits(map(_hashable, read), waiting)

    def take(self) -> list[tuple[TimeDomain, int]]:
        """The watermarks made since the last call, in the order of the chain."""
        made, self._made = self._made, {}
        return [(domain, made[domain.step]) for domain in self._domains if domain.step in made]

    def running(self) -> Iterator[tuple[TimeDomain, WatermarkGenerator]]:
        """Where watermarks are still made: event time has not ended."""
        for domain in self._domains:
            if domain.generator is not None and domain.watermark != MAX_WATERMARK:
                yield domain, domain.generator

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """State for `restore` by step id, as msgpack can carry it."""
        return {
            domain.step: {**domain.generator.snapshot(), **self._identity.mark(), "idle": domain.idle}
            for domain in self._domains
            if domain.generator is not None
        }

    def restore(self, step: str, states: Sequence[Mapping[str, Any]], same_topology: bool) -> None:
        """See `EventTime.restore_watermarks`."""
        domain = next((one for one in self._domains if one.step == step), None)
        if domain is None or domain.generator is None:
            return  # it makes no watermarks any more
        own = self._identity.own(states) if same_topology or domain.by_split else None
        told = states if own is None or domain.by_split else [own]
        domain.generator.restore(
            [
                {**one, **{part: [(_hashable(id), n) for id, n in one.get(part, ())] for part in ("splits", "quiet")}}
                for one in told
            ],
            own,
        )
        domain.watermark = domain.generator.emitted
        domain.idle = own is not None and own["idle"]


def _hashable(split: Any) -> Any:
    """Checkpoints of older versions have lists for tuples."""
    return tuple(map(_hashable, split)) if isinstance(split, list) else split
