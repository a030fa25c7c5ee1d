"""Small graphs in which a rule matters."""

from __future__ import annotations

from jobs.graph import Graph, Key, Kind, Step
from pipeline.partitioners import Distribution

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


def with_rules(edge: Distribution = KEYED, further: Distribution | None = None) -> Graph:
    """source → op ← rules (broadcast), op → sink: op emits for both. `further`: an edge to another operator between."""
    graph = Graph()
    source = graph.add(Step("source", Kind.SOURCE, (0, 1), 8))
    rules = graph.add(Step("rules", Kind.SOURCE, (2,), 6))
    operator = graph.add(Step("op", Kind.OPERATOR, key=_KEY if edge is KEYED else None))
    graph.connect(source, operator, edge, _KEY if edge is CUSTOM else None)
    graph.connect(rules, operator, BROADCAST)
    if further is not None:
        upstream, operator = (
            operator,
            graph.add(Step("last", Kind.OPERATOR, key=Key(1, 1) if further is KEYED else None)),
        )
        graph.connect(upstream, operator, further)
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


def with_timers(splits: int = 3) -> Graph:
    """source → op0 (keyed, with timers) → op1 (keyed, with timers) → sink."""
    graph = Graph()
    upstream = graph.add(Step("source", Kind.SOURCE, tuple(range(splits)), 10))
    for number in range(2):
        operator = graph.add(Step(f"op{number}", Kind.OPERATOR, key=_KEY, timer=17, waits=True))
        graph.connect(upstream, operator, KEYED)
        upstream = operator
    graph.connect(upstream, graph.add(Step("sink", Kind.SINK)), REBALANCE)
    return graph


def two_sinks(edge: Distribution) -> Graph:
    """source → op0 (keyed) → op1 (over `edge`) ← other source, op1 → sink0 and op0 → sink1."""
    graph = Graph()
    source = graph.add(Step("source", Kind.SOURCE, (0, 1, 2), 10))
    first = graph.add(Step("op0", Kind.OPERATOR, key=_KEY))
    graph.connect(source, first, KEYED)
    second = graph.add(Step("op1", Kind.OPERATOR, key=_KEY if edge is KEYED else None))
    graph.connect(first, second, edge)
    rules = graph.add(Step("rules", Kind.SOURCE, (3,), 4))
    graph.connect(rules, second, BROADCAST)
    graph.connect(second, graph.add(Step("sink0", Kind.SINK)), REBALANCE)
    graph.connect(first, graph.add(Step("sink1", Kind.SINK)), REBALANCE)
    return graph


def forward_behind_keyed() -> Graph:
    """source → op0 (keyed) → op1 (forward) ← rules (broadcast), op1 → op2 (keyed) → sink."""
    graph = Graph()
    source = graph.add(Step("source", Kind.SOURCE, (0, 1, 2), 10))
    first = graph.add(Step("op0", Kind.OPERATOR, key=_KEY))
    graph.connect(source, first, KEYED)
    second = graph.add(Step("op1", Kind.OPERATOR))
    graph.connect(first, second, FORWARD)
    graph.connect(graph.add(Step("rules", Kind.SOURCE, (3,), 4)), second, BROADCAST)
    third = graph.add(Step("op2", Kind.OPERATOR, key=_KEY))
    graph.connect(second, third, KEYED)
    graph.connect(third, graph.add(Step("sink", Kind.SINK)), FORWARD)
    return graph
