"""The watermark of a subtask: the minimum of what its input channels said (pure).

A channel whose watermark is `MAX_WATERMARK` has ended: no event time comes there any more, so it holds nothing back.
A channel that has told no watermark yet holds everything back; an idle one holds nothing back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

MAX_WATERMARK: Final = 2**63 - 1
"""The end of event time: every timer is due."""
_UNKNOWN: Final = -(2**63) - 1
"""Below every watermark."""


class _Channel:
    __slots__ = ("idle", "value")

    def __init__(self, value: int | None = None, idle: bool = False) -> None:
        self.value = value
        self.idle = idle


class WatermarkCombiner:
    """Combines the watermarks of input channels.

    `combined` is what the channels have reached together, `emitted` what was completely passed on: every timer up to it
    has fired. Between the two lies a watermark that is being passed on, perhaps with a checkpoint in the middle.
    Neither ever goes back.

    After a restore with another parallelism the old channels, whose data is still to be processed, combine among
    themselves as *virtual channels*. Were their watermarks taken for those of the new channels, one that covers fewer
    old channels than it stands for would run ahead of the rest of the restored data. `end_restored` hands over to the
    real channels, which begin as unknown.
    """

    def __init__(self, channels: Iterable[Hashable]) -> None:
        self._real = {channel: _Channel() for channel in channels}
        self._virtual: dict[Hashable, _Channel] = {}
        self._draining = False
        """The virtual channels count."""
        self.combined: int | None = None
        """Milliseconds since the epoch; `None` = unknown yet."""
        self.emitted: int | None = None
        """The last watermark that was completely passed on."""

    # -- what channels say --------------------------------------------------------------------------------------

    def on_watermark(self, channel: Hashable, timestamp: int, restored: bool = False) -> None:
        """A watermark was taken from a channel. Taking it again changes nothing.

        Args:
            restored: it belongs to the in-flight data of a checkpoint, and `channel` is the channel of then.

        Raises:
            KeyError: there is no such channel.
        """
        one = self._channel(channel, restored)
        if one.value is None or timestamp > one.value:
            one.value = timestamp
            self._combine()

    def on_idle(self, channel: Hashable, idle: bool, restored: bool = False) -> None:
        """The channel has gone idle, or has woken up.

        Raises:
            KeyError: there is no such channel.
        """
        one = self._channel(channel, restored)
        if idle is not one.idle:
            one.idle = idle
            self._combine()

    def on_end(self, channel: Hashable) -> None:
        """Nothing comes on the channel any more."""
        self.on_watermark(channel, MAX_WATERMARK)

    # -- what follows -------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int | None:
        """The watermark to be passed on, if there is one."""
        combined = self.combined
        if combined is None or (self.emitted is not None and combined <= self.emitted):
            return None
        return combined

    @property
    def idle(self) -> bool:
        """Every channel is idle or has ended, and not all have ended."""
        counting = (self._virtual if self._draining else self._real).values()
        open_ = [one for one in counting if one.value != MAX_WATERMARK]
        return bool(open_) and all(one.idle for one in open_)

    def passed(self, timestamp: int) -> None:
        """All timers up to `timestamp` have fired, and it was sent on."""
        if self.emitted is None or timestamp > self.emitted:
            self.emitted = timestamp

    # -- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State that `restore` takes."""
        if self._draining:
            return {"channels": [], "emitted": self.emitted, "draining": True}
        channels = [[id, one.value, one.idle] for id, one in self._real.items()]
        return {"channels": channels, "emitted": self.emitted, "draining": False}

    def restore(self, states: Iterable[Mapping[str, Any]], same_topology: bool, virtual: Iterable[Hashable]) -> None:
        """Take over what the old subtasks had, before anything else is called.

        Args:
            states: their snapshots.
            same_topology: there is one old subtask, and its channels are those of this one.
            virtual: else, the channels of the old subtasks, whose restored data may come here.
        """
        states = list(states)
        draining = any(state["draining"] for state in states)
        if same_topology and not draining:
            for id, value, idle in (one for state in states for one in state["channels"]):
                if id in self._real:
                    self._real[id] = _Channel(value, idle)
        elif not draining:
            known = {id: _Channel(value, idle) for state in states for id, value, idle in state["channels"]}
            self._virtual = {id: known.get(id) or _Channel() for id in virtual}
            self._draining = True
        else:
            # Channels of two earlier attempts may have one name. Held back is never wrong, and sources repeat their
            # watermarks behind the restored data.
            self._draining = True
        emitted = [state["emitted"] for state in states]
        if emitted and None not in emitted:
            self.emitted = min(emitted)
        self.combined = self.emitted
        self._combine()

    def end_restored(self) -> None:
        """The restored in-flight data is used up: from now on the real channels count."""
        self._draining = False
        self._virtual = {}
        self._combine()

    # -- inside -------------------------------------------------------------------------------------------------

    def _channel(self, channel: Hashable, restored: bool) -> _Channel:
        if not (restored and self._draining):
            return self._real[channel]
        return self._virtual[channel] if self._virtual else _Channel()

    def _combine(self) -> None:
        counting = (self._virtual if self._draining else self._real).values()
        open_ = [one for one in counting if one.value != MAX_WATERMARK]
        if counting and not open_:
            lowest = MAX_WATERMARK
        else:
            # While all are idle nothing is known of the time.
            lowest = min((_value(one) for one in open_ if not one.idle), default=_UNKNOWN)
        if lowest > (_UNKNOWN if self.combined is None else self.combined):
            self.combined = lowest


def _value(channel: _Channel) -> int:
    return _UNKNOWN if channel.value is None else channel.value
