"""When everything restored has gone through the job (pure).

After a restore that has to replay, sources send a restore barrier behind what was restored and emit nothing new. Every
subtask passes it on once it has it from all its channels; those without outputs tell the driver. It blocks no channel
and is never captured: whoever restores a checkpoint taken during the replay replays again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable


class ReplayTracker:
    """The driver's side: has the restore barrier come through everywhere?"""

    def __init__(self, terminal: Collection[int], replays: bool) -> None:
        """
        Args:
            terminal: subtasks without outputs.
            replays: whether this restore replays anything first.
        """
        self._terminal = frozenset(terminal)
        self._missing = set(terminal) if replays else set()
        """Subtasks that the restore barrier has not come through to."""

    @property
    def replaying(self) -> bool:
        """A checkpoint triggered now may hold restored data; who restores it has to replay again."""
        return bool(self._missing)

    def arrived(self, subtask: int) -> bool:
        """The restore barrier has come through to a subtask without outputs.

        Returns:
            Whether the replay has ended by it.

        Raises:
            ValueError: the subtask has outputs.
        """
        if subtask not in self._terminal:
            raise ValueError(f"subtask {subtask} has outputs: it passes the restore barrier on and doesn't report it")
        if subtask not in self._missing:
            return False
        self._missing.remove(subtask)
        return not self._missing


class RestoreBarrierCounter:
    """A subtask's side: when to pass the restore barrier on, or report it if there is nowhere to pass it to."""

    def __init__(self, channels: Collection[Hashable]) -> None:
        """`channels`: all input channels; none for a source."""
        self._missing = set(channels)
        self._restored_left = True
        self._passed = False

    def delivered(self, channel: Hashable) -> bool:
        """A channel has delivered it. Returns whether to pass it on now; that is true once.

        Raises:
            ValueError: the channel has delivered it before, or doesn't belong to the subtask.
        """
        if channel not in self._missing:
            raise ValueError(f"a restore barrier came twice, or on a channel that isn't there: {channel}")
        self._missing.remove(channel)
        return self._pass()

    def restored_used_up(self) -> bool:
        """The restored sequence is processed. Returns whether to pass the barrier on now; that is true once."""
        self._restored_left = False
        return self._pass()

    def _pass(self) -> bool:
        if self._passed or self._missing or self._restored_left:
            return False
        self._passed = True
        return True
