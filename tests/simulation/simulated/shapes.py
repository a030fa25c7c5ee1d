"""Small graphs in which a rule matters."""

from __future__ import annotations

from pipeline.partitioners import Distribution
from simulated.graph import Graph, Key, Kind, Step

KEYED = Distribution.KEYED
FORWARD = Distribution.FORWARD
REBALANCE = Distribution.REBALANCE
RESCALE = Distribution.RESCALE
CUSTOM = Distribution.CUSTOM
BROADCAST = Distribution.BROADCAST

_KEY = Key(1, 3)


def chain(*edges: Distribution, splits: int = 3, records: int = 10) -> Graph:
    """source → op0 → op1 → … → sink over these edges; the operators behind keyed edges are keyed."""
    graph = Graph()
    upstream = graph.add(Step("source", Kind.SOURCE, tuple(range(splits)), records))
    for number, edge in enumerate(edges):
        last = number == len(edges) - 1
        key = _KEY if edge is KEYED else None
        kind = Kind.SINK if last else Kind.OPERATOR
        downstream = graph.add(Step("sink" if last else f"op{number}", kind, key=key))
        graph.connect(upstream, downstream, edge, _KEY if edge is CUSTOM else None)
        upstream = downstream
    return graph


def with_rules(edge: Distribution = KEYED) -> Graph:
    """source → op ← rules (broadcast), op → sink: op emits for both."""
    graph = Graph()
    source = graph.add(Step("source", Kind.SOURCE, (0, 1), 8))
    rules = graph.add(Step("rules", Kind.SOURCE, (2,), 6))
    operator = graph.add(Step("op", Kind.OPERATOR, key=_KEY if edge is KEYED else None))
    graph.connect(source, operator, edge, _KEY if edge is CUSTOM else None)
    graph.connect(rules, operator, BROADCAST)
    sink = graph.add(Step("sink", Kind.SINK))
    graph.connect(operator, sink, FORWARD)
    return graph


def union() -> Graph:
    """Two sources into one keyed operator."""
    graph = Graph()
    sources = [graph.add(Step(f"source{i}", Kind.SOURCE, (2 * i, 2 * i + 1), 8)) for i in range(2)]
    operator = graph.add(Step("op", Kind.OPERATOR, key=_KEY))
    for source in sources:
        graph.connect(source, operator, KEYED)
    graph.connect(operator, graph.add(Step("sink", Kind.SINK)), FORWARD)
    return graph
