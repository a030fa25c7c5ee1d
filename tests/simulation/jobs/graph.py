"""Random job graphs, what travels through them, and what has to come out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from checkpoint.codec import encode_key
from checkpoint.elements import EdgeName
from checkpoint.key_groups import key_group
from pipeline.partitioners import Distribution

MAX_PARALLELISM = 8
TIMER_SPLITS = 1000
"""Rows that timers emit are of splits from here on, one for each step and key; the time of the timer numbers them."""
_ORDERED = (Distribution.KEYED, Distribution.CUSTOM, Distribution.FORWARD, Distribution.BROADCAST)
"""Edges on which the records of a key stay in order."""
_LOOSE = (Distribution.REBALANCE, Distribution.RESCALE, Distribution.CUSTOM)
"""Edges between which a user may change."""


class Row(NamedTuple):
    """A record. What it is derived from and how it came here names it."""

    split: int
    sequence: int
    path: tuple[int, ...] = ()
    """Indices of the edges it took; -1 - i behind a broadcast edge: subtask i has emitted it."""

    @property
    def timestamp(self) -> int:
        return self.sequence if self.split >= TIMER_SPLITS else timestamp_of(self.sequence)

    @property
    def plain(self) -> Row:
        """Whoever has emitted it behind a broadcast edge."""
        return self._replace(path=tuple(max(part, -1) for part in self.path))


def timestamp_of(sequence: int) -> int:
    """Event time of a source's row: ascends within a split."""
    return 10 * sequence + 5


class Kind(StrEnum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


@dataclass(frozen=True)
class Key:
    """A key function of records."""

    factor: int
    keys: int

    def of(self, split: int, sequence: int) -> int:
        return (sequence * self.factor + split) % self.keys


@dataclass(frozen=True)
class Step:
    id: str
    kind: Kind
    splits: tuple[int, ...] = ()
    """Of a source."""
    records: int = 0
    """In each split."""
    key: Key | None = None
    """Of a keyed operator."""
    number: int = 0
    timer: int | None = None
    """Of a keyed operator: each row sets a timer so much later than its own time; milliseconds."""
    waits: bool = False
    """Of a keyed operator: it sets processing timers."""


@dataclass(frozen=True)
class Edge:
    index: int
    name: EdgeName
    distribution: Distribution
    key: Key | None = None
    """Of keyed and custom edges, and of forward edges behind a keyed operator: its key."""


@cache
def group_of(key: int) -> int:
    return key_group(encode_key(key), MAX_PARALLELISM)


@dataclass
class Graph:
    steps: dict[str, Step] = field(default_factory=dict)
    """In topological order."""
    edges: list[Edge] = field(default_factory=list)
    varied: set[int] = field(default_factory=set)
    """Edges that were changed: what goes over them keeps no order."""
    _between: dict[tuple[str, str], Edge] = field(default_factory=dict)

    def add(self, step: Step) -> Step:
        step = replace(step, number=len(self.steps))
        self.steps[step.id] = step
        return step

    def vary(self, rng: random.Random) -> None:
        """Spread some edges otherwise than before, where that changes nothing but the order."""
        for number, edge in enumerate(self.edges):
            if edge.distribution in _LOOSE and rng.random() < 0.3:
                distribution = rng.choice(_LOOSE)
                key = Key(rng.choice([1, 3]), rng.choice([2, 5])) if distribution is Distribution.CUSTOM else None
                self.varied.add(number)
                self.replace(number, replace(edge, distribution=distribution, key=key))

    def replace(self, number: int, edge: Edge) -> None:
        self.edges[number] = self._between[edge.name.upstream, edge.name.downstream] = edge

    def between(self, upstream: str, downstream: str) -> Edge:
        return self._between[upstream, downstream]

    def connect(self, upstream: Step, downstream: Step, distribution: Distribution, custom: Key | None = None) -> Edge:
        key = custom if distribution is Distribution.CUSTOM else None
        if distribution is Distribution.KEYED:
            key = downstream.key
            assert key is not None
        elif distribution is Distribution.FORWARD:
            key = self.key_behind(upstream)
        port = str(len(self.inputs(downstream)))
        edge = Edge(len(self.edges), EdgeName(upstream.id, downstream.id, port), distribution, key)
        assert (upstream.id, downstream.id) not in self._between
        self._between[upstream.id, downstream.id] = edge
        self.edges.append(edge)
        return edge

    def key_behind(self, step: Step) -> Key | None:
        """The key by which what leaves the step is partitioned."""
        if step.key is not None:
            return step.key
        inputs = self.inputs(step)
        if len(inputs) == 1 and inputs[0].distribution is Distribution.FORWARD:
            return inputs[0].key
        return None

    def inputs(self, step: Step) -> list[Edge]:
        return [edge for edge in self.edges if edge.name.downstream == step.id]

    def outputs(self, step: Step) -> list[Edge]:
        return [edge for edge in self.edges if edge.name.upstream == step.id]

    def awaited(self, step: Step, all_of_them: bool = False) -> Iterator[Step]:
        """Sources all of whose subtasks each subtask of the step waits for before its event time may end.
        `all_of_them`: each subtask of the step itself is waited for."""
        if step.kind is Kind.SOURCE and all_of_them:
            yield step
        for edge in self.inputs(step):
            to_all = edge.distribution not in (Distribution.FORWARD, Distribution.RESCALE)
            yield from self.awaited(self.steps[edge.name.upstream], all_of_them or to_all)

    def random_parallelism(self, rng: random.Random, most: int) -> dict[str, int]:
        """Of every step; forward edges join equals."""
        chosen: dict[str, int] = {}
        for id in self.steps:
            chosen[id] = rng.randint(1, most)
        changed = True
        while changed:
            changed = False
            for edge in self.edges:
                if edge.distribution is Distribution.FORWARD:
                    up, down = edge.name.upstream, edge.name.downstream
                    if chosen[up] != chosen[down]:
                        chosen[up] = chosen[down] = min(chosen[up], chosen[down])
                        changed = True
        return chosen

    def arrivals(self, to: Step) -> dict[Row, tuple[str, ...]]:
        """The rows that come to a step, and the steps that have emitted them for broadcast elements; -1 in the way of a
        row stands for that."""
        found: dict[Row, tuple[str, ...]] = {}
        for edge in self.inputs(to):
            broadcast = edge.distribution is Distribution.BROADCAST
            for row, steps in self._emitted(self.steps[edge.name.upstream]).items():
                path = (*row.path, edge.index, -1) if broadcast else (*row.path, edge.index)
                found[row._replace(path=path)] = (*steps, to.id) if broadcast else steps
        return found

    def timers(self, step: Step, arrivals: Iterable[Row]) -> set[tuple[int, int]]:
        """Key and time of every timer that a keyed operator sets."""
        if step.timer is None:
            return set()
        assert step.key is not None
        rows = [row for row in arrivals if row.path[-1] != -1]
        return {(step.key.of(row.split, row.sequence), row.timestamp + step.timer) for row in rows}

    def _emitted(self, step: Step) -> dict[Row, tuple[str, ...]]:
        if step.kind is Kind.SOURCE:
            return {Row(split, i): () for split in step.splits for i in range(step.records)}
        arrivals = self.arrivals(step)
        fired = {Row(TIMER_SPLITS + 100 * step.number + key, at): () for key, at in self.timers(step, arrivals)}
        return arrivals | fired

    def order_key(self, row: Row) -> tuple[object, ...] | None:
        """Rows with the same one must not change places; `None`: some edge on the way keeps no order."""
        keys: list[object] = [row.split]
        for part in row.path:
            if part < 0:
                continue
            edge = self.edges[part]
            if part in self.varied or edge.distribution not in _ORDERED:
                return None
            if edge.distribution in (Distribution.KEYED, Distribution.CUSTOM):
                assert edge.key is not None
                keys.append(edge.key.of(row.split, row.sequence))
        return (*keys, row.path)

    def __str__(self) -> str:
        return ", ".join(f"{e.name.upstream}→{e.name.downstream} {e.distribution}" for e in self.edges)


def random_graph(rng: random.Random, records: int) -> Graph:
    graph = Graph()
    splits = iter(range(100))

    def source(id: str, count: int, most: int) -> Step:
        names = tuple(next(splits) for _ in range(count))
        return graph.add(Step(id, Kind.SOURCE, splits=names, records=most))

    sources = [source(f"source{i}", rng.randint(1, 3), records) for i in range(rng.choice([1, 1, 2]))]
    loose = list(sources)
    broadcast = rng.random() < 0.3
    for number in range(rng.choice([1, 1, 2, 2, 3])):
        keyed = rng.random() < 0.6
        key = Key(rng.choice([1, 2, 3]), rng.choice([2, 3, 5])) if keyed else None
        timer = rng.choice([None, 0, 17, 40]) if keyed else None
        waits = keyed and rng.random() < 0.2
        operator = Step(f"{'keyed' if keyed else 'map'}{number}", Kind.OPERATOR, key=key, timer=timer, waits=waits)
        upstreams = [loose.pop(rng.randrange(len(loose)))]
        if loose and rng.random() < 0.5:
            upstreams.append(loose.pop())
        upstreams = list({one.id: one for one in upstreams}.values())
        operator = graph.add(operator)
        for upstream in upstreams:
            _connect(graph, upstream, operator, rng)
        if broadcast and rng.random() < 0.6:
            broadcast = False
            rules = source("rules", rng.randint(1, 2), max(2, records // 3))
            graph.connect(rules, operator, Distribution.BROADCAST)
            if rng.random() < 0.3:
                loose.append(rules)
        loose.append(operator)
        if rng.random() < 0.15:
            loose.append(operator)
    sink = graph.add(Step("sink0", Kind.SINK))
    for number, step in enumerate(loose):
        if (number and rng.random() < 0.3) or (step.id, sink.id) in graph._between:
            sink = graph.add(Step(f"sink{number}", Kind.SINK))
        _connect(graph, step, sink, rng)
    for number, edge in enumerate(graph.edges):
        united = sum(
            e.distribution is not Distribution.BROADCAST for e in graph.inputs(graph.steps[edge.name.downstream])
        )
        if edge.distribution is Distribution.FORWARD and united > 1:
            graph.replace(number, replace(edge, distribution=Distribution.REBALANCE, key=None))
    return graph


def _connect(graph: Graph, upstream: Step, downstream: Step, rng: random.Random) -> None:
    if downstream.key is not None:
        graph.connect(upstream, downstream, Distribution.KEYED)
        return
    kinds = [Distribution.FORWARD, Distribution.REBALANCE, Distribution.RESCALE, Distribution.CUSTOM]
    kind = rng.choice([*kinds, Distribution.FORWARD, Distribution.CUSTOM])
    graph.connect(upstream, downstream, kind, Key(rng.choice([1, 3]), rng.choice([2, 5])))
