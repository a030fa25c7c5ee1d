"""Random job graphs, what travels through them, and what has to come out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from checkpoint.codec import encode_key
from checkpoint.elements import EdgeName
from checkpoint.key_groups import key_group
from pipeline.partitioners import Distribution

MAX_PARALLELISM = 8
_ORDERED = (Distribution.KEYED, Distribution.CUSTOM, Distribution.FORWARD, Distribution.BROADCAST)
"""Edges on which the records of a key stay in order."""


class Row(NamedTuple):
    """A record. What it is derived from and how it came here names it."""

    split: int
    sequence: int
    path: tuple[int, ...] = ()
    """Indices of the edges it took; -1 - i behind a broadcast edge: subtask i has emitted it."""

    @property
    def timestamp(self) -> int:
        return timestamp_of(self.sequence)


def timestamp_of(sequence: int) -> int:
    """Event time: ascends within a split."""
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


@dataclass(frozen=True)
class Edge:
    index: int
    name: EdgeName
    distribution: Distribution
    key: Key | None = None
    """Of keyed and custom edges, and of forward edges behind a keyed operator: its key."""

    @property
    def carries_groups(self) -> bool:
        """Whether rows have a key group that says where they go after rescaling."""
        return self.key is not None and self.distribution is not Distribution.CUSTOM


@cache
def group_of(key: int) -> int:
    return key_group(encode_key(key), MAX_PARALLELISM)


@dataclass
class Graph:
    steps: dict[str, Step] = field(default_factory=dict)
    """In topological order."""
    edges: list[Edge] = field(default_factory=list)

    def add(self, step: Step) -> Step:
        self.steps[step.id] = step
        return step

    def connect(self, upstream: Step, downstream: Step, distribution: Distribution, custom: Key | None = None) -> Edge:
        key = custom if distribution is Distribution.CUSTOM else None
        if distribution is Distribution.KEYED:
            key = downstream.key
            assert key is not None
        elif distribution is Distribution.FORWARD:
            key = self.key_behind(upstream)
        port = str(len(self.inputs(downstream)))
        edge = Edge(len(self.edges), EdgeName(upstream.id, downstream.id, port), distribution, key)
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

    def paths(self, to: Step) -> Iterator[tuple[Step, tuple[int, ...]]]:
        """The ways from a source to a step: edge indices; -1 stands behind broadcast edges."""
        for edge in self.inputs(to):
            upstream = self.steps[edge.name.upstream]
            last = (edge.index, -1) if edge.distribution is Distribution.BROADCAST else (edge.index,)
            if upstream.kind is Kind.SOURCE:
                yield upstream, last
            for source, path in self.paths(upstream):
                yield source, (*path, *last)

    def order_key(self, row: Row) -> tuple[object, ...] | None:
        """Rows with the same one must not change places; `None`: some edge on the way keeps no order."""
        keys: list[object] = [row.split]
        for part in row.path:
            if part < 0:
                continue
            edge = self.edges[part]
            if edge.distribution not in _ORDERED:
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
        operator = Step(f"{'keyed' if keyed else 'map'}{number}", Kind.OPERATOR, key=key)
        upstreams = [loose.pop(rng.randrange(len(loose)))]
        if loose and rng.random() < 0.5:
            upstreams.append(loose.pop())
        graph.add(operator)
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
        if number and rng.random() < 0.3:
            sink = graph.add(Step(f"sink{number}", Kind.SINK))
        _connect(graph, step, sink, rng)
    return graph


def _connect(graph: Graph, upstream: Step, downstream: Step, rng: random.Random) -> None:
    if downstream.key is not None:
        graph.connect(upstream, downstream, Distribution.KEYED)
        return
    kinds = [Distribution.FORWARD, Distribution.REBALANCE, Distribution.RESCALE, Distribution.CUSTOM]
    kind = rng.choice([*kinds, Distribution.FORWARD, Distribution.CUSTOM])
    graph.connect(upstream, downstream, kind, Key(rng.choice([1, 3]), rng.choice([2, 5])))
