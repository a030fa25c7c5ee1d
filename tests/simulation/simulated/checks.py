"""What must hold once a run has ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from checkpoint.event_time.bounds import MAX_WATERMARK
from pipeline.partitioners import Distribution
from simulated.attempt import Attempt
from simulated.graph import Graph, Row, Step
from simulated.operator import Operator
from simulated.output import OutputSystem
from simulated.sink import Sink


class Wrong(AssertionError):
    """Something was lost, doubled or out of order."""


def check(graph: Graph, attempt: Attempt, output: OutputSystem, parallelisms: dict[str, set[int]], exact: bool) -> None:
    """
    Args:
        attempt: the last one, at its end.
        parallelisms: by step, those it ever had.
        exact: whether nothing may be doubled (and order must hold).
    """
    for step in graph.steps.values():
        operators = [s for s in attempt.subtasks if s.step is step and isinstance(s, Operator)]
        if isinstance(operators[0] if operators else None, Sink):
            _check_rows(graph, step, output.log.get(step.id, []), parallelisms, exact, "output")
        elif step.key is not None:
            for operator in operators:
                for key, rows in operator.keyed.items():
                    wrong = [row for row in rows if step.key.of(row.split, row.sequence) != key]
                    if wrong:
                        raise Wrong(f"{operator.name} has rows of another key under {key}: {wrong}")
            seen = [row for operator in operators for rows in operator.keyed.values() for row in rows]
            _check_rows(graph, step, seen, parallelisms, exact, "state")
        for operator in operators:
            _check_broadcast(graph, operator, exact)
            if operator.event_time.emitted != MAX_WATERMARK:
                raise Wrong(f"{operator.name} is stuck at watermark {operator.event_time.emitted}")


def _check_rows(
    graph: Graph, step: Step, rows: list[Row], parallelisms: dict[str, set[int]], exact: bool, what: str
) -> None:
    found = Counter(rows)
    doubled = [row for row, times in found.items() if times > 1]
    if exact and doubled:
        raise Wrong(f"{step.id} {what}: {len(doubled)} rows doubled, such as {doubled[0]}")
    expected: dict[Row, list[str]] = {}
    for source, path in graph.paths(step):
        if what == "state" and path[-1] == -1:
            continue  # broadcast elements are kept apart
        steps = [graph.edges[part].name.downstream for part, next_ in pairwise(path) if next_ == -1]
        for split in source.splits:
            for sequence in range(source.records):
                expected[Row(split, sequence, path)] = steps
    subtasks: dict[Row, set[tuple[int, ...]]] = defaultdict(set)
    for row in found:
        plain = row._replace(path=tuple(max(part, -1) for part in row.path))
        subtasks[plain].add(tuple(-1 - part for part in row.path if part < 0))
    if unknown := subtasks.keys() - expected.keys():
        raise Wrong(f"{step.id} {what}: rows that nobody has sent, such as {min(unknown)}")
    if lost := expected.keys() - subtasks.keys():
        raise Wrong(f"{step.id} {what}: {len(lost)} rows lost, such as {min(lost)}")
    for row, steps in expected.items():
        if steps and exact:
            _check_emitters(row, steps, subtasks[row], parallelisms)
    if exact:
        _check_order(graph, step, rows, what)


def _check_emitters(row: Row, steps: list[str], found: set[tuple[int, ...]], parallelisms: dict[str, set[int]]) -> None:
    """Each broadcast element was emitted for once by every subtask of one attempt."""
    allowed = [{(i,) for i in range(p)} for p in parallelisms[steps[0]]]
    if found not in allowed:
        raise Wrong(f"{row}, behind a broadcast edge into {steps}, was emitted by subtasks {sorted(found)}")


def _check_order(graph: Graph, step: Step, rows: list[Row], what: str) -> None:
    last: dict[tuple[object, ...], int] = {}
    for row in rows:
        key = graph.order_key(row)
        if key is None or (what == "output" and not _has_one_writer(graph, row)):
            continue
        if row.sequence < last.get(key, -1):
            raise Wrong(f"{step.id} {what}: {row} comes after {last[key]} of the same {key}")
        last[key] = row.sequence


def _has_one_writer(graph: Graph, row: Row) -> bool:
    """Whether restored and new rows of its key come to one subtask. Two writers commit independently of each other."""
    for part in reversed(row.path):
        if part < 0 or graph.edges[part].key is None:
            return False
        if graph.edges[part].distribution is not Distribution.FORWARD:
            return True
    return False


def _check_broadcast(graph: Graph, operator: Operator, exact: bool) -> None:
    edges = [e for e in graph.inputs(operator.step) if e.distribution is Distribution.BROADCAST]
    expected = {
        Row(split, sequence, (edge.index,))
        for edge in edges
        for split in graph.steps[edge.name.upstream].splits
        for sequence in range(graph.steps[edge.name.upstream].records)
    }
    found = Counter(operator.broadcast)
    if found.keys() != expected:
        raise Wrong(f"{operator.name} has seen {len(found)} of {len(expected)} broadcast elements")
    if exact and max(found.values(), default=1) > 1:
        raise Wrong(f"{operator.name} has seen broadcast elements twice: {operator.broadcast}")
    if exact:
        _check_order(graph, operator.step, list(operator.broadcast), "broadcast state")
