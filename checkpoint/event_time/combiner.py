"""The watermark of a subtask: the minimum of what its input channels said (pure).

A channel whose watermark is `MAX_WATERMARK` has ended: no event time comes there any more, so it holds nothing back.
A channel that has told no watermark yet holds everything back; an idle one holds nothing back. Once all are idle, the
highest of their watermarks counts: so it would have come out had those that are behind fallen idle first. Watermarks
that a channel tells while it is idle follow the clock, and count in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from checkpoint.event_time.bounds import MAX_WATERMARK

_UNKNOWN: Final = -(2**63) - 1
"""Below every watermark."""


class _Channel:
    __slots__ = ("follows_clock", "idle", "last", "value")

    def __init__(
        self, value: int | None = None, idle: bool = False, follows_clock: bool = False, last: int | None = None
    ) -> None:
        self.value = value
        self.idle = idle
        self.follows_clock = follows_clock
        """It is idle, and has told a watermark since it is."""
        self.last = last
        """Its last watermark before it ended."""


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

    def __init__(
        self,
        channels: Iterable[Hashable],
        counts: Callable[[Hashable], bool] = lambda channel: True,
        group: Callable[[Hashable], Hashable] = lambda channel: channel,
    ) -> None:
        """
        Args:
            counts: whether a channel, real or virtual, is one that watermarks come from. Others are left out, unless
                there are no others; but time doesn't end before they have ended, too.
            group: channels of one group end together, one soon after the other.
        """
        self._counts = counts
        self._group = group
        self._real = {channel: _Channel() for channel in channels}
        self._virtual: dict[Hashable, _Channel] = {}
        self._replaying = False
        """The virtual channels count."""
        self._end_of_data: int | None = None
        """The highest watermark of all before the last, once all have ended."""
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
            if timestamp == MAX_WATERMARK:
                one.last = one.value
            elif one.idle:
                one.follows_clock = True
            one.value = timestamp
            self._combine()

    def on_idle(self, channel: Hashable, idle: bool, restored: bool = False) -> None:
        """The channel has gone idle, or has woken up.

        Raises:
            KeyError: there is no such channel.
        """
        one = self._channel(channel, restored)
        if idle is not one.idle:
            one.idle, one.follows_clock = idle, False
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
    def reached(self) -> int | None:
        """Up to where timers are due now, and what is passed on next or was last. Before event time ends, it reaches
        the end of the data: the highest watermark that a channel had told before it ended."""
        if self.combined == MAX_WATERMARK:
            last = self._end_of_data
            if last is not None and (self.emitted is None or last > self.emitted):
                return last
        return self.combined

    @property
    def idle(self) -> bool:
        """Every channel that counts is idle or has ended, and not all have ended.

        Where some of a group have ended it is not idle: the others will end, too, and what waits here until then comes
        out with the end of time. Who reads that must not go on without it.
        """
        return all(one.idle for one in self._open()) and not self._all_ended() and not self._ending()

    @property
    def follows_clock(self) -> bool:
        """Every channel is idle or has ended, and some tell what the clock says."""
        return self.idle and any(one.follows_clock for one in self._open())

    @property
    def channels(self) -> int:
        """How many channels count and have not ended."""
        return len(self._open())

    @property
    def any_told(self) -> bool:
        """Whether some channel has told a watermark."""
        return any(one.value is not None for one in self._counting())

    def holding(self) -> list[tuple[Hashable, int | None]]:
        """The channels that the watermark waits for, with theirs: those that have told none; else the lowest ones."""
        channels = self._virtual if self._replaying else self._real
        among = set(self._counting())
        open_ = [(id, one) for id, one in channels.items() if one in among and one.value != MAX_WATERMARK]
        active = [(id, one) for id, one in open_ if not one.idle]
        lowest = min((_value(one) for _, one in active), default=None)
        return [(id, one.value) for id, one in active if _value(one) == lowest]

    def passed(self, timestamp: int) -> None:
        """All timers up to `timestamp` have fired, and it was sent on."""
        if self.emitted is None or timestamp > self.emitted:
            self.emitted = timestamp

    # -- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State that `restore` takes."""
        if self._replaying:
            return {"channels": [], "emitted": self.emitted, "draining": True}
        channels = [[id, one.value, one.idle, one.follows_clock, one.last] for id, one in self._real.items()]
        return {"channels": channels, "emitted": self.emitted, "draining": False}

    def restore(self, states: Iterable[Mapping[str, Any]], same_topology: bool, virtual: Iterable[Hashable]) -> None:
        """Take over what the old subtasks had, before anything else is called.

        Args:
            states: their snapshots.
            same_topology: there is one old subtask, and its channels are those of this one.
            virtual: else, the channels of the old subtasks, whose restored data may come here.
        """
        states = list(states)
        replaying = any(state["draining"] for state in states)
        if same_topology and not replaying:
            for id, *rest in (one for state in states for one in state["channels"]):
                if id in self._real:
                    self._real[id] = _Channel(*rest)
        elif not replaying:
            known = {id: _Channel(*rest) for state in states for id, *rest in state["channels"]}
            self._virtual = {id: known.get(id) or _Channel() for id in virtual}
            self._replaying = True
        else:
            # Channels of two earlier attempts may have one name. Held back is never wrong, and sources repeat their
            # watermarks behind the restored data.
            self._replaying = True
        emitted = [state["emitted"] for state in states]
        if emitted and None not in emitted:
            self.emitted = min(emitted)
        self.combined = self.emitted
        self._combine()

    def end_restored(self) -> None:
        """The restored in-flight data is used up: from now on the real channels count."""
        self._replaying = False
        self._virtual = {}
        self._combine()

    # -- inside -------------------------------------------------------------------------------------------------

    def _channel(self, channel: Hashable, restored: bool) -> _Channel:
        if not (restored and self._replaying):
            return self._real[channel]
        return self._virtual[channel] if self._virtual else _Channel()

    def _counting(self) -> list[_Channel]:
        channels = self._virtual if self._replaying else self._real
        return [one for id, one in channels.items() if self._counts(id)] or list(channels.values())

    def _open(self) -> list[_Channel]:
        return [one for one in self._counting() if one.value != MAX_WATERMARK]

    def _ending(self) -> bool:
        """Whether some channels of a group have ended, and others haven't."""
        channels = self._virtual if self._replaying else self._real
        ended = {self._group(id) for id, one in channels.items() if one.value == MAX_WATERMARK}
        return any(one.value != MAX_WATERMARK and self._group(id) in ended for id, one in channels.items())

    def _all_ended(self) -> bool:
        channels = self._virtual if self._replaying else self._real
        return all(one.value == MAX_WATERMARK for one in channels.values())

    def _combine(self) -> None:
        open_ = self._open()
        if not open_ and self._counting():
            self._end_of_data = max((one.last for one in self._counting() if one.last is not None), default=None)
            # Records still come from those that are left out, and behind the end of time nothing may.
            until = _UNKNOWN if self._end_of_data is None else self._end_of_data
            lowest = MAX_WATERMARK if self._all_ended() else until
        elif active := [one for one in open_ if not one.idle]:
            lowest = min(map(_value, active))
        else:
            # While all are idle, none holds others back, nor does where the data of those ends that have ended. Those
            # that will end, too, may still bring what is older than others are; the clock they follow knows of it.
            ending = self._ending()
            known = [_value(one) for one in open_ if one.follows_clock or not ending]
            lowest = max(known + [one.last for one in self._counting() if one.last is not None], default=_UNKNOWN)
        if lowest > (_UNKNOWN if self.combined is None else self.combined):
            self.combined = lowest


def _value(channel: _Channel) -> int:
    return _UNKNOWN if channel.value is None else channel.value
