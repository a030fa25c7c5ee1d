"""Pipelines of every kind of edge, for tests that restore them at another parallelism."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rescaling_steps import Count, Divert, Enrich, Everywhere, Hop, NotLate, Numbers, Phase, Timers

from pipeline import (
    Pipeline,
    WatermarkStrategy,
)
from pipeline.streams import Stream

Edge = tuple[str, str]


@dataclass(frozen=True)
class Topology:
    build: Callable[[Pipeline, Phase], Stream]
    edges: tuple[Edge, ...]
    """By step ids; with a slow sink there are records in flight on each."""
    keyed: tuple[str, ...] = ("count",)
    """Steps that number the records of each key, each key in one subtask at a time."""
    ordered: tuple[str, ...] = ()
    """Those of them that get the records of a source and key in the order of their ids."""
    hops: tuple[str, ...] = ()
    output_ordered: bool = False
    """The output has the records of a source and key in the order of their ids."""
    copies: bool = False
    """Every subtask of the last step emits each record."""
    edges_of: Callable[[Phase], tuple[Edge, ...]] | None = None
    """`edges`, where they depend on the phase."""

    def wanted(self, phase: Phase) -> tuple[Edge, ...]:
        return self.edges if self.edges_of is None else self.edges_of(phase)


def _numbers(p: Pipeline, phase: Phase, name: str = "numbers", parallelism: int | None = None) -> Stream:
    return p.source(name, Numbers(name, phase), parallelism)


def _keyed(p: Pipeline, phase: Phase) -> Stream:
    return _numbers(p, phase).key_by("key").process("count", Count("count", phase))


def _two_keyed(p: Pipeline, phase: Phase) -> Stream:
    first = _numbers(p, phase).key_by("key").process("count", Count("count", phase))
    return first.key_by("key").process("recount", Count("recount", phase), phase.parallelism + 1)


def _rebalance(p: Pipeline, phase: Phase) -> Stream:
    spread = _numbers(p, phase).rebalance().process("spread", Hop("spread", phase))
    return spread.key_by("key").process("count", Count("count", phase))


def _rescale(p: Pipeline, phase: Phase) -> Stream:
    spread = _numbers(p, phase).rescale().process("spread", Hop("spread", phase), phase.parallelism + 1)
    return spread.key_by("key").process("count", Count("count", phase))


def _forward(p: Pipeline, phase: Phase) -> Stream:
    first = _numbers(p, phase).key_by("key").process("count", Count("count", phase))
    others = _numbers(p, phase, "others").key_by("key").process("count others", Count("count others", phase))
    return first.union(others).process("tail", Hop("tail", phase))


def _plain_forward(p: Pipeline, phase: Phase) -> Stream:
    both = _numbers(p, phase).connect(_numbers(p, phase, "others"))
    return both.process("both", Hop("both", phase)).key_by("key").process("count", Count("count", phase))


def _broadcast(p: Pipeline, phase: Phase) -> Stream:
    rules = p.source("rules", Numbers("rules", phase, pause=0.03), parallelism=1)
    enriched = _numbers(p, phase).key_by("key").connect(rules.broadcast()).process("count", Enrich("count", phase))
    return enriched.rebalance().process("tail", Hop("tail", phase))


def by_key(record: dict[str, Any], n: int) -> int:
    return zlib.crc32(record["key"].encode()) % n


def _custom(p: Pipeline, phase: Phase) -> Stream:
    chosen = _numbers(p, phase).partition_custom(by_key).process("chosen", Hop("chosen", phase))
    return chosen.key_by("key").process("count", Count("count", phase))


def _union(p: Pipeline, phase: Phase) -> Stream:
    n = phase.parallelism
    ended = p.source("ended", Numbers("ended", phase, most=40, ends=True), 1)
    four = _numbers(p, phase).union(_numbers(p, phase, "b", 1), _numbers(p, phase, "c", n + 1), ended)
    return four.key_by("key").process("count", Count("count", phase))


def _two_inputs(p: Pipeline, phase: Phase) -> Stream:
    first, second = _numbers(p, phase), _numbers(p, phase, "others", phase.parallelism + 1)
    joined = first.key_by("key").connect(second.key_by("key")).process("count", Count("count", phase))
    return joined.key_by("key").process("recount", Count("recount", phase))


def _everywhere(p: Pipeline, phase: Phase) -> Stream:
    counted = _numbers(p, phase).key_by("key").process("count", Count("count", phase))
    return counted.broadcast().process("everywhere", Everywhere(phase))


def _side_output(p: Pipeline, phase: Phase) -> Stream:
    counted = _numbers(p, phase).key_by("key").process("count", Divert("count", phase))
    return counted.rebalance().union(counted.side_output("odd").key_by("key")).process("tail", Hop("tail", phase))


def _partitioner(p: Pipeline, phase: Phase) -> Stream:
    """Partitioned in another way in each phase."""
    stream = _numbers(p, phase)
    ways = [stream.rebalance(), stream.key_by("key"), stream.partition_custom(by_key), stream.key_by("partition")]
    hop = ways[phase.number % 4].process("hop", Hop("hop", phase))
    return hop.key_by("key" if phase.number % 2 else key_of).process("count", Count("count", phase))


def key_of(record: dict[str, Any]) -> Any:
    return record["key"]


def _chaining(p: Pipeline, phase: Phase) -> Stream:
    """Even phases have channels where odd ones chain."""
    stream = _numbers(p, phase)
    stream = stream if phase.number % 2 else stream.partition_custom(by_key)
    stream = stream.process("first", Hop("first", phase))
    stream = stream.key_by("key").process("count", Count("count", phase))
    for step in ("tail", "end"):
        stream = (stream if phase.number % 2 else stream.rebalance()).process(step, Hop(step, phase))
    return stream


def _edges_of_chaining(phase: Phase) -> tuple[Edge, ...]:
    chained: tuple[Edge, ...] = (("first", "count"),)
    return chained if phase.number % 2 else (("numbers", "first"), *chained, ("count", "tail"), ("tail", "end"))


TIMED = 150
"""Records in each partition of `timers`; the one with id i is from second i."""


def _timers(p: Pipeline, phase: Phase) -> Stream:
    return _fired(p, phase).rebalance().process("not late", NotLate("not late", phase))


def _chained_timers(p: Pipeline, phase: Phase) -> Stream:
    """Even phases have a channel where odd ones chain."""
    fired = _fired(p, phase)
    fired = fired if phase.number % 2 else fired.rebalance()
    return fired.process("not late", NotLate("not late", phase))


def _fired(p: Pipeline, phase: Phase) -> Stream:
    strategy = WatermarkStrategy.bounded(lambda record: 1000 * record["id"], 0)
    source = p.source("numbers", Numbers("numbers", phase, most=TIMED))
    timed = source.assign_timestamps(strategy, id="times")
    # Its last watermark is the end of event time, which holds for nobody else.
    ended = p.source("ended", Numbers("ended", phase, most=20, ends=True), 2)
    timed = timed.union(ended.assign_timestamps(strategy, id="times of ended"))
    return timed.key_by("key").process("count", Timers("count", phase))


_TIMERS = Topology(_timers, (("times", "count"), ("count", "not late")), ordered=("count",), hops=("not late",))
TIMED_TOPOLOGIES = {"timers": _TIMERS, "timers, chaining": replace(_TIMERS, build=_chained_timers)}

TOPOLOGIES: dict[str, Topology] = {
    "keyed": Topology(_keyed, (("numbers", "count"),), ordered=("count",), output_ordered=True),
    "two keyed hops": Topology(
        _two_keyed,
        (("numbers", "count"), ("count", "recount")),
        keyed=("count", "recount"),
        ordered=("count", "recount"),
        output_ordered=True,
    ),
    "rebalance": Topology(_rebalance, (("numbers", "spread"), ("spread", "count")), hops=("spread",)),
    "rescale": Topology(_rescale, (("numbers", "spread"), ("spread", "count")), hops=("spread",)),
    "forward with keys": Topology(
        _forward,
        (("numbers", "count"), ("others", "count others"), ("count", "tail"), ("count others", "tail")),
        keyed=("count", "count others"),
        ordered=("count", "count others"),
        hops=("tail",),
        output_ordered=True,
    ),
    "forward": Topology(
        _plain_forward,
        (("numbers", "both"), ("others", "both"), ("both", "count")),
        ordered=("count",),
        hops=("both",),
        output_ordered=True,
    ),
    "broadcast": Topology(_broadcast, (("numbers", "count"), ("count", "tail")), ordered=("count",), hops=("tail",)),
    "custom": Topology(
        _custom,
        (("numbers", "chosen"), ("chosen", "count")),
        ordered=("count",),
        hops=("chosen",),
        output_ordered=True,
    ),
    "union": Topology(
        _union, (("numbers", "count"), ("b", "count"), ("c", "count")), ordered=("count",), output_ordered=True
    ),
    "two inputs": Topology(
        _two_inputs,
        (("numbers", "count"), ("others", "count"), ("count", "recount")),
        keyed=("count", "recount"),
        ordered=("count", "recount"),
        output_ordered=True,
    ),
    "chaining": Topology(_chaining, (), ordered=("count",), hops=("first", "tail", "end"), edges_of=_edges_of_chaining),
    "side output": Topology(
        _side_output, (("numbers", "count"), ("count", "tail")), ordered=("count",), hops=("tail",)
    ),
    "another partitioner": Topology(_partitioner, (("numbers", "hop"), ("hop", "count")), hops=("hop",)),
    "all to all": Topology(_everywhere, (("numbers", "count"),), copies=True, ordered=("count",)),
}
