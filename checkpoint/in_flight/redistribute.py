"""Which rows of an old channel come to which new subtask, and in which order (pure).

Every new subtask works out its own share from the same captured state and comes to the same answer as all others
without talking to them. The order is this: what an old subtask still had of its restored sequence,
then, for each upstream subtask, what was queued on the channel and what the barrier overtook at its other end. So the
records of one upstream subtask and key stay in order, as long as the key moves as a whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.codec import encode_key
from checkpoint.counted import counted
from checkpoint.edge_format import NO_KEY, EdgeFormat
from checkpoint.elements import ChannelName, EdgeName, IdleStatus, InFlight, Watermark
from checkpoint.in_flight.captured import Part
from checkpoint.in_flight.edges import EdgeShape
from checkpoint.in_flight.runs import Content, Origin, Run, to_elements
from checkpoint.key_groups import key_group, range_of


class Rule(Enum):
    """How the rows of an edge find their new subtasks."""

    STAY = auto()
    """Nothing has changed: with the subtask that had them, without asking the partitioner."""
    WHOLE = auto()
    """An old channel moves whole: from old subtask d to d mod parallelism."""
    BY_KEY = auto()
    """By the key group that they carry."""
    BY_NEW_KEY = auto()
    """By a key taken from the value: they carry none, or the key selector has changed."""
    ROUND_ROBIN = auto()
    """By their number within their origin, over the subtasks that the upstream subtask sends to now."""
    ASSIGNED = auto()
    """As a list says: a user's function need not say the same twice, so the driver asks it once for all subtasks."""
    NOTHING = auto()
    """Broadcast edges: their barriers overtake nothing, so nothing is ever in flight."""


def rule(old: EdgeShape, new: EdgeShape) -> Rule:
    if "broadcast" in (old.distribution, new.distribution):
        return Rule.NOTHING
    if old == new:
        return Rule.STAY
    same_keys = old.carries_keys and new.carries_keys and old.fingerprint == new.fingerprint
    match new.distribution:
        case "keyed":
            return Rule.BY_KEY if same_keys else Rule.BY_NEW_KEY
        case "forward":
            return Rule.BY_KEY if same_keys else Rule.WHOLE
        case "rebalance" | "rescale":
            return Rule.ROUND_ROBIN
        case "custom":
            return Rule.ASSIGNED
    raise ValueError(f"unknown distribution {new.distribution!r}")


@dataclass(frozen=True)
class EdgeRedistribution:
    """An edge between two attempts."""

    old: EdgeShape
    new: EdgeShape
    max_parallelism: int
    shares: Callable[[int], Sequence[int]]
    """The new subtasks that a new upstream subtask sends to."""
    key_of: Callable[[Any], Any] | None = None
    """The key selector, if the edge is keyed now."""
    assigned: Mapping[Origin, array[int]] = field(default_factory=dict)
    """For `Rule.ASSIGNED`: from `assign`."""

    @property
    def rule(self) -> Rule:
        return rule(self.old, self.new)

    def holders(self, subtask: int) -> Sequence[int]:
        """Old downstream subtasks whose rows may come to the new subtask."""
        match self.rule:
            case Rule.NOTHING:
                return ()
            case Rule.STAY:
                return (subtask,)
            case Rule.WHOLE:
                return range(subtask, self.old.downstreams, self.new.downstreams)
            case Rule.BY_KEY if self.old.distribution == "keyed":
                mine = self._groups(subtask, self.new.downstreams)
                theirs = (self._groups(d, self.old.downstreams) for d in range(self.old.downstreams))
                return [d for d, its in enumerate(theirs) if mine.start < its.stop and its.start < mine.stop]
        return range(self.old.downstreams)

    def upstreams(self, subtask: int) -> Sequence[int]:
        """Old upstream subtasks whose output queues may have had rows for the new subtask."""
        return self.holders(subtask) if self.old.distribution == "forward" else range(self.old.upstreams)

    def share(self, run: Run, subtask: int) -> Content | None:
        """What of a run comes to the new subtask, in the format of the edge as it is now.

        Watermarks and idle statuses come to every subtask that could get rows of their channel.

        Raises:
            ValueError: there are rows of a broadcast edge.
        """
        if self.rule is Rule.NOTHING and not isinstance(run.content, (Watermark, IdleStatus)):
            edge = run.origin.channel.edge
            raise ValueError(
                f"{counted(run.content.num_rows, 'record was', 'records were')} captured on {edge}, a broadcast edge "
                "then or now"
            )
        if run.origin.holder not in self.holders(subtask):
            return None
        if self.rule is Rule.ROUND_ROBIN:
            targets = self.shares(run.origin.channel.upstream % self.new.upstreams)
            if subtask not in targets:
                return None
            if not isinstance(run.content, (Watermark, IdleStatus)):
                return self._formatted(_every(run, targets.index(subtask), len(targets)), subtask)
        if isinstance(run.content, (Watermark, IdleStatus)):
            return run.content
        match self.rule:
            case Rule.BY_KEY:
                return self._in_range(run.content, subtask)
            case Rule.BY_NEW_KEY:
                return self._in_range(self._with_new_keys(run.content), subtask)
            case Rule.ASSIGNED:
                targets = self.assigned[run.origin]
                column = pa.Array.from_buffers(pa.int16(), len(targets), [None, pa.py_buffer(targets)])
                its = column.slice(run.first_row, run.content.num_rows)
                return self._formatted(run.content.filter(pc.equal(its, pa.scalar(subtask, pa.int16()))), subtask)
        return self._formatted(run.content, subtask)

    def _groups(self, subtask: int, parallelism: int) -> range:
        return range_of(subtask, parallelism, self.max_parallelism)

    def _in_range(self, batch: Any, subtask: int) -> Any:
        mine = self._groups(subtask, self.new.downstreams)
        first, last = pa.scalar(mine.start, pa.int16()), pa.scalar(mine.stop - 1, pa.int16())
        groups = self.new.format.to_stored(batch).key_groups
        return batch.filter(pc.and_(pc.greater_equal(groups, first), pc.less_equal(groups, last)))

    def _with_new_keys(self, batch: Any) -> Any:
        assert self.key_of is not None
        keys = [encode_key(self.key_of(value)) for value in self.old.format.rows(batch).values]
        groups = [key_group(key, self.max_parallelism) for key in keys]
        return self.new.format.with_keys(batch, pa.array(groups, pa.int16()), pa.array(keys, pa.binary()))

    def _formatted(self, batch: Any, subtask: int) -> Any:
        """With or without keys, as the edge has them now; for rows that don't go by key."""
        if not self.new.carries_keys:
            return self.new.format.without_keys(batch) if self.old.carries_keys else batch
        if self.rule is Rule.STAY:
            return batch
        # A key that they never had. Its group is one of the subtask's, so that they stay together when rescaled again.
        group = self._groups(subtask, self.new.downstreams).start
        n = batch.num_rows
        groups, keys = pa.repeat(pa.scalar(group, pa.int16()), n), pa.repeat(pa.scalar(NO_KEY, pa.binary()), n)
        return self.new.format.with_keys(batch, groups, keys)


def _every(run: Run, place: int, of: int) -> Any:
    """The rows of a run that are dealt to one of several subtasks; the origin decides who gets the first."""
    origin = run.origin
    first = (place - origin.channel.upstream - origin.holder - run.first_row) % of
    return run.content.take(pa.array(range(first, run.content.num_rows, of), pa.int64()))  # type: ignore[union-attr]


def assign(runs: Iterable[Run], edge_format: EdgeFormat, choose: Callable[[Any], int]) -> dict[Origin, array[int]]:
    """Ask a custom partitioner for every row.

    Args:
        runs: of one edge, in order.
        edge_format: the edge's, as it was when they were captured.
        choose: gives the new subtask for a value.
    """
    found: dict[Origin, array[int]] = {}
    for run in runs:
        if not isinstance(run.content, (Watermark, IdleStatus)):
            found.setdefault(run.origin, array("h")).extend(map(choose, edge_format.rows(run.content).values))
    return found


def redistribute(
    runs: Iterable[Run], edges: Mapping[EdgeName, EdgeRedistribution], subtask: int
) -> list[tuple[ChannelName, InFlight]]:
    """The restored sequence of a new subtask.

    Args:
        runs: what old subtasks captured, at least those that `EdgeRedistribution.holders` and `upstreams` name; each
            one's in its own order. Runs of edges that don't enter the vertex are passed over.
        edges: those that enter the subtask's vertex, the steps furthest down the chain first: what waits in front of a
            chained step is older than anything that comes to it from the steps before.
        subtask: index within the new vertex.
    """
    steps = list(dict.fromkeys(edge.downstream for edge in edges))
    places = {edge: (steps.index(edge.downstream), place) for place, edge in enumerate(edges)}
    found: list[tuple[tuple[int, ...], ChannelName, Content]] = []
    for run in runs:
        part, holder, channel = run.origin
        if channel.edge not in edges:
            continue
        content = edges[channel.edge].share(run, subtask)
        if content is not None and (isinstance(content, (Watermark, IdleStatus)) or content.num_rows):
            step, edge = places[channel.edge]
            behind = () if part is Part.RESTORED else (edge, channel.upstream, int(part is Part.OUTPUT))
            found.append(((step, holder, int(part is not Part.RESTORED), *behind), channel, content))
    found.sort(key=lambda one: one[0])
    return list(to_elements(((channel, content) for _, channel, content in found), lambda edge: edges[edge].new.format))
