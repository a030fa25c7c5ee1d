"""What the sinks of an attempt have committed, over all subtasks (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from checkpoint.restored_commits import ReleaseEpoch, ReleaseNew, RestoredCommits
from pipeline.runtime import protocol

Order = tuple[int, protocol.ReleaseEpoch | protocol.ReleaseNew]
"""What a subtask is to be told."""


class CommitProgress:
    """Restored epochs are committed one after the other over all subtasks of a sink, and only then new ones."""

    def __init__(self, sinks: Mapping[str, Sequence[int]]):
        """`sinks`: the subtasks of each."""
        self._sinks = sinks
        self._restored = RestoredCommits(sinks)
        self._committed = {(step, subtask): 0 for step, subtasks in sinks.items() for subtask in subtasks}
        """Newest checkpoint that each has committed."""

    @property
    def restored_settled(self) -> bool:
        """Everything restored is committed, and all sinks know."""
        return self._restored.settled

    @property
    def committed(self) -> int:
        """Checkpoints up to this id are committed by every sink; 0 for none."""
        return min(self._committed.values(), default=0)

    def all_committed(self, checkpoint_id: int) -> bool:
        """Whether every sink has committed a checkpoint, or one behind it; true without sinks."""
        return all(newest >= checkpoint_id for newest in self._committed.values())

    def opened(self, step: str, subtask: int, epochs: Collection[int]) -> Iterator[Order]:
        """A sink's committers are open. `epochs`: restored ones that are not committed yet."""
        return self._orders(self._restored.opened(step, subtask, epochs))

    def restored_committed(self, step: str, subtask: int, epoch: int) -> Iterator[Order]:
        """A sink has committed a restored epoch."""
        return self._orders(self._restored.done(step, subtask, epoch))

    def new_committed(self, step: str, subtask: int, checkpoint_id: int) -> None:
        """A sink has committed a checkpoint of this attempt."""
        self._committed[step, subtask] = checkpoint_id

    def _orders(self, actions: list[ReleaseEpoch | ReleaseNew]) -> Iterator[Order]:
        for action in actions:
            match action:
                case ReleaseEpoch(step, epoch):
                    message: protocol.ReleaseEpoch | protocol.ReleaseNew = protocol.ReleaseEpoch(step, epoch)
                case ReleaseNew(step):
                    message = protocol.ReleaseNew(step)
            for subtask in self._sinks[step]:
                yield subtask, message
