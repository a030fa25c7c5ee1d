"""In which order what was restored is committed, over all subtasks of a sink: the driver's side of
`checkpoint.commit_log` (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReleaseEpoch:
    """Tell every subtask of the sink to commit the restored epochs up to this one (`CommitLog.release_restored`)."""

    sink: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ReleaseNew:
    """Tell every subtask of the sink that new epochs may be committed (`CommitLog.release_new`)."""

    sink: str


@dataclass(slots=True)
class _Restored:
    """A sink's restored epochs."""

    unopened: set[int]
    """Subtasks that have not said what they restored. Nothing is released before all have."""
    left: dict[int, set[int]]
    """Epoch → subtasks that have yet to commit it."""


class RestoredCommits:
    """Releases restored epochs one after the other, each once the one before is committed by every subtask.

    Sinks don't wait for each other. Reports may come twice.
    """

    def __init__(self, sinks: Mapping[str, Iterable[int]]) -> None:
        """`sinks`: the subtask indices of every sink that commits."""
        self._sinks = {sink: _Restored(set(subtasks), {}) for sink, subtasks in sinks.items()}
        self._new_released: set[str] = set()

    @property
    def settled(self) -> bool:
        """Whether new epochs are released for every sink."""
        return len(self._new_released) == len(self._sinks)

    def opened(self, sink: str, subtask: int, epochs: Iterable[int]) -> list[ReleaseEpoch | ReleaseNew]:
        """The subtask's committers are open; `epochs` are those restored that it must commit (may be none)."""
        restored = self._sinks[sink]
        if subtask not in restored.unopened:
            return []
        restored.unopened.remove(subtask)
        for epoch in epochs:
            restored.left.setdefault(epoch, set()).add(subtask)
        return self._release(sink) if not restored.unopened else []

    def done(self, sink: str, subtask: int, epoch: int) -> list[ReleaseEpoch | ReleaseNew]:
        """The subtask has committed everything restored of `epoch` and older (or had none of it)."""
        restored = self._sinks[sink]
        if restored.unopened or not restored.left:
            return []
        current = min(restored.left)
        if epoch != current or subtask not in restored.left[current]:
            return []
        restored.left[current].remove(subtask)
        if restored.left[current]:
            return []
        del restored.left[current]
        return self._release(sink)

    def _release(self, sink: str) -> list[ReleaseEpoch | ReleaseNew]:
        left = self._sinks[sink].left
        if left:
            return [ReleaseEpoch(sink, min(left))]
        self._new_released.add(sink)
        return [ReleaseNew(sink)]
