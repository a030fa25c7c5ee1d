"""What the inputs of a subtask say of event time, and the state of that in checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from checkpoint.elements import ChannelName, EdgeName
from checkpoint.event_time.combiner import WatermarkCombiner
from checkpoint.event_time.group_watermarks import GroupWatermarks
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.event_time.own_state import Identity

READER: Final[Any] = "reader"
"""The input of a source: it tells no watermark but the last."""


class InputTime:
    """Names the channels for the combiner, and carries its state over restarts and rescaling."""

    def __init__(
        self,
        head: TimeDomain,
        identity: Identity,
        channels: Iterable[ChannelName] | None,
        left_out: Collection[EdgeName],
        groups: range | None,
    ) -> None:
        """
        Args:
            head: the domain that the inputs lead into.
            channels: the inputs; `None` = a source.
            left_out: input edges that the watermark doesn't wait for.
            groups: the key groups of the head, if it has keyed state, which may come from any old subtask.
        """
        self._head = head
        self._identity = identity
        self._is_source = channels is None
        self._keyed = groups is not None
        self.groups = None if groups is None else GroupWatermarks(groups)
        self._channels: list[Any] = [READER] if channels is None else list(channels)
        counts = (lambda channel: True) if channels is None else (lambda channel: channel.edge not in left_out)
        # The subtasks of a vertex end together: a source is bounded or drained, and its end goes on through all others.
        group = (lambda channel: channel) if channels is None else (lambda channel: channel.edge)
        self.combiner = WatermarkCombiner(self._channels, counts, group)

    def end(self) -> None:
        """All input has ended, or the source has."""
        for channel in self._channels:
            self.combiner.on_end(channel)

    def snapshot(self) -> dict[str, Any]:
        """State for `restore`, as msgpack can carry it."""
        state = self.combiner.snapshot()
        channels = [] if self._is_source else [[_to_wire(id), *rest] for id, *rest in state["channels"]]
        groups = {} if self.groups is None else {"groups": self.groups.snapshot(self.combiner.reached)}
        return {**state, **self._identity.mark(), "channels": channels, "idle": self._head.idle, **groups}

    def restore(
        self, states: Sequence[Mapping[str, Any]], holders: Mapping[EdgeName, Collection[int]], same_topology: bool
    ) -> None:
        """See `EventTime.restore`."""
        decoded = [
            {**state, "channels": [[_from_wire(id), *rest] for id, *rest in state["channels"]]} for state in states
        ]
        own = self._identity.own(decoded)
        if (
            own is not None
            and same_topology
            and (self._is_source or {one[0] for one in own["channels"]} == set(self._channels))
        ):
            self.combiner.restore([own], True, ())
            self._head.idle = own["idle"]
        else:
            old = set().union(*holders.values()) or self._heirs(decoded)
            told = [state for state in decoded if self._is_source or state["subtask"] in old]
            channels = [id for state in told for id, *_ in state["channels"]]
            # A broadcast edge has nothing in flight, but what its channels had reached holds back as well.
            virtual = [id for id in channels if id.downstream in (holders.get(id.edge) or old)]
            self.combiner.restore(told, False, virtual)
        if self._is_source:
            self.combiner.end_restored()
        self._head.watermark = self.combiner.emitted
        if self.groups is not None:
            # Checkpoints of before they were kept have none.
            self.groups.restore([state.get("groups", ()) for state in states], self._head.watermark)

    def _heirs(self, states: Sequence[Mapping[str, Any]]) -> set[int]:
        """Old subtasks that this one goes on for where no rows can be in flight: all inputs are broadcast, or new."""
        return {state["subtask"] for state in states} if self._keyed else self._identity.heirs(states)


def _to_wire(channel: ChannelName) -> list[Any]:
    return [list(channel.edge), channel.upstream, channel.downstream]


def _from_wire(wire: Sequence[Any]) -> ChannelName:
    edge, upstream, downstream = wire
    return ChannelName(EdgeName(*edge), upstream, downstream)
