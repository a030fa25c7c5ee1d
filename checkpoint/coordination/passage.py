"""Which barriers have passed (pure; part of the coordinator)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passed:
    """A barrier has passed all that these source subtasks reach."""

    sources: tuple[int, ...]
    start_delay: float
    """Seconds from the trigger until then."""
    mean_span: float
    """Records that one of them has emitted since the barrier before, on average."""
    busy_span: float
    """The same of those that would have emitted more; 0 if none would."""


class Passage:
    """How far the barrier of one checkpoint has come.

    It has passed a source subtask's part of the job when every subtask that the source *reaches*, through channels, has
    taken its snapshot. Sources of jobs in one, or of forward chains, so don't answer for one another.
    """

    def __init__(self, reach: Mapping[int, frozenset[int]]) -> None:
        """`reach`: for each source subtask those that it reaches, itself or not; never none."""
        self._sources: dict[frozenset[int], list[int]] = defaultdict(list)
        for source, reached in sorted(reach.items()):
            self._sources[reached].append(source)
        self._missing = {reached: set(reached) for reached in self._sources}
        self._spans: dict[int, tuple[int, bool]] = {}
        self._passed: dict[int, Passed] = {}
        """By source subtask."""

    def snapshot_taken(self, subtask: int, delay: float, span: int | None, busy: bool) -> list[Passed]:
        """What it has passed with that.

        Args:
            delay: seconds since the trigger.
            span, busy: see `SnapshotTaken`.
        """
        if span is not None:
            self._spans[subtask] = (span, busy)
        found = []
        for reached, missing in list(self._missing.items()):
            missing.discard(subtask)
            if not missing:
                del self._missing[reached]
                sources = self._sources[reached]
                spans = [self._spans.get(source, (0, False)) for source in sources]
                mean, of_busy = _mean([span for span, _ in spans]), _mean([span for span, busy in spans if busy])
                found.append(Passed(tuple(sources), delay, mean, of_busy))
        self._passed.update({source: one for one in found for source in one.sources})
        return found

    def passed(self, source: int) -> Passed | None:
        """How it has passed this source's part, if it has."""
        return self._passed.get(source)


def _mean(spans: list[int]) -> float:
    return sum(spans) / len(spans) if spans else 0.0
