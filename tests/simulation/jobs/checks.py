"""What must hold once a run has ended: of the output, and of the state in the job's last checkpoint."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from checkpoint.codec import decode, decode_key, encode_key
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.state import BroadcastStates, OperatorLists, bind, make_backend
from checkpoint.state.files import load_keyed_state
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.restore import newest
from checkpoint.storage.storage import CheckpointStorage
from jobs.graph import MAX_PARALLELISM, TIMER_SPLITS, Graph, Kind, Row, Step, group_of
from jobs.steps import Keyed
from jobs.world import World
from pipeline.partitioners import Distribution


class Wrong(AssertionError):
    """Something was lost, doubled or out of order."""


def check(
    graph: Graph, world: World, storage: CheckpointStorage, parallelisms: Mapping[str, set[int]], exact: bool
) -> None:
    """
    Args:
        storage: the job's folder.
        parallelisms: by step, those it ever had.
        exact: whether nothing may be doubled (and order must hold).
    """
    point = newest(storage)
    assert point is not None
    metadata, storage = point.metadata, point.storage
    for step in graph.steps.values():
        if step.kind is Kind.SINK:
            _check_rows(graph, step, world.output.log.get(step.id, []), parallelisms, exact, "output", world)
        elif step.key is not None:
            _check_keyed_state(graph, step, metadata, storage, parallelisms, exact, world)
        if step.kind is Kind.OPERATOR and not world.dropped:
            _check_broadcast(graph, step, metadata, storage, exact)
    for vertex in metadata.vertices.values():
        for subtask in vertex.subtasks:
            for id, snapshot in subtask.operators.items():
                state = storage.unspill(snapshot).state
                known = graph.steps.get(id)
                if "event_time" not in state or known is None or known.kind is Kind.SOURCE:
                    continue
                if state["event_time"]["emitted"] != MAX_WATERMARK:
                    raise Wrong(f"{id} is stuck at watermark {state['event_time']['emitted']}")


def _check_keyed_state(
    graph: Graph,
    step: Step,
    metadata: CheckpointMetadata,
    storage: CheckpointStorage,
    parallelisms: Mapping[str, set[int]],
    exact: bool,
    world: World,
) -> None:
    backend = make_backend(range(MAX_PARALLELISM), MAX_PARALLELISM)
    operator = Keyed("", step)
    bind(operator, backend, BroadcastStates(), OperatorLists())
    for snapshot in metadata.operator(step.id):
        backend.restore(load_keyed_state(storage, snapshot.keyed_state), allow_unclaimed=False)
    assert step.key is not None
    seen: list[Row] = []
    fired: set[tuple[int, int]] = set()
    for key in range(step.key.keys):
        backend.set_current_key(encode_key(key), group_of(key))
        rows = [Row(split, sequence, tuple(path)) for split, sequence, path in operator.rows]
        wrong = [row for row in rows if step.key.of(row.split, row.sequence) != key]
        if wrong:
            raise Wrong(f"{step.id} has rows of another key under {key}: {wrong}")
        seen += rows
        fired |= {(key, at) for at in operator.fired}
    _check_rows(graph, step, seen, parallelisms, exact, "state", world)
    expected = graph.timers(step, graph.arrivals(step))
    if fired - expected or (expected - fired and not world.dropped):
        raise Wrong(
            f"{step.id}: timers that did not fire: {expected - fired}; that should not have: {fired - expected}"
        )


def _check_rows(
    graph: Graph,
    step: Step,
    rows: list[Row],
    parallelisms: Mapping[str, set[int]],
    exact: bool,
    what: str,
    world: World,
) -> None:
    found = Counter(rows)
    doubled = [row for row, times in found.items() if times > 1 and _is_in_time(row, world)]
    if exact and doubled:
        raise Wrong(f"{step.id} {what}: {len(doubled)} rows doubled, such as {doubled[0]}")
    expected = graph.arrivals(step)
    if what == "state":  # broadcast elements are kept apart
        expected = {row: steps for row, steps in expected.items() if row.path[-1] != -1}
    subtasks: dict[Row, set[tuple[int, ...]]] = defaultdict(set)
    for row in found:
        subtasks[row.plain].add(tuple(-1 - part for part in row.path if part < 0))
    if unknown := subtasks.keys() - expected.keys():
        raise Wrong(f"{step.id} {what}: rows that nobody has sent, such as {min(unknown)}")
    lost = expected.keys() - subtasks.keys()
    if world.dropped:
        lost = {row for row in lost if row.split < TIMER_SPLITS and not _descends(row, world.dropped)}
    if lost:
        raise Wrong(f"{step.id} {what}: {len(lost)} rows lost, such as {min(lost)}")
    for row, steps in expected.items():
        if steps and exact and not world.dropped:
            _check_emitters(row, steps, subtasks[row], parallelisms)
    if exact:
        _check_order(graph, step, (row for row in rows if _is_in_time(row, world)), what)


def _is_in_time(row: Row, world: World) -> bool:
    """Whether nothing late can have led to the row: a late record may set a timer that has fired before."""
    return world.strict_time or row.split < TIMER_SPLITS


def _descends(row: Row, dropped: set[Row]) -> bool:
    """Whether the row comes of one that a user has dropped."""
    ways = (row.path[:length] for length in range(1, len(row.path) + 1))
    return any(row._replace(path=way) in dropped for way in ways)


def _check_emitters(
    row: Row, steps: tuple[str, ...], found: set[tuple[int, ...]], parallelisms: Mapping[str, set[int]]
) -> None:
    """Each broadcast element was emitted for once by every subtask of one attempt."""
    allowed = [{(i,) for i in range(p)} for p in parallelisms[steps[0]]]
    if found not in allowed:
        raise Wrong(f"{row}, behind a broadcast edge into {steps}, was emitted by subtasks {sorted(found)}")


def _check_order(graph: Graph, step: Step, rows: Iterable[Row], what: str) -> None:
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
        if part < 0 or part in graph.varied or graph.edges[part].key is None:
            return False
        if graph.edges[part].distribution is not Distribution.FORWARD:
            return True
    return False


def _check_broadcast(
    graph: Graph, step: Step, metadata: CheckpointMetadata, storage: CheckpointStorage, exact: bool
) -> None:
    expected = {row._replace(path=row.path[:-1]) for row in graph.arrivals(step) if row.path[-1] == -1}
    if not expected:
        return
    for index, snapshot in enumerate(metadata.operator(step.id)):
        encoded = storage.unspill(snapshot).state.get("broadcast", {}).get("rules", {})
        rules = {decode_key(key): decode(value) for key, value in encoded.items()}
        found: dict[Row, list[int]] = {}
        for key, places in rules.items():
            split, sequence, path = key.split("/")
            found[Row(int(split), int(sequence), tuple(map(int, path.strip("[]").split(", "))))] = places
        if {row.plain for row in found} != expected:
            raise Wrong(f"{step.id}[{index}] has seen {len(found)} of {len(expected)} broadcast elements")
        if exact and (twice := [row for row, places in found.items() if len(places) > 1]):
            raise Wrong(f"{step.id}[{index}] has seen broadcast elements twice: {twice}")
        if exact:
            _check_order(graph, step, sorted(found, key=lambda row: found[row][0]), "broadcast state")
