"""Why there is no more progress than there is: what is slow, who waits for it, whether its load is even."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from checkpoint.counted import counted
from pipeline.diagnosis.sentence import Sentence, note, some, trouble
from pipeline.runtime.driver.status.hot_key_status import named
from pipeline.shown_times import human_time

_BUSY: Final = 800.0
"""Milliseconds a second from which on a subtask has no time to spare."""
_PRESSED: Final = 200.0
"""Milliseconds a second from which on a subtask is held up by others."""
_HELD: Final = 1000.0
"""Milliseconds from which on one record, or one call of the user's code, is long."""
_SKEWED: Final = 3.0
"""How many times the others' median a subtask's records are when its load is uneven."""
_FEW: Final = 1.0
"""Records a second that are too few to compare."""

Values = Mapping[str, Any]


def sentences(status: Values) -> Iterator[Sentence]:
    if status["status"] != "running" or status["running_for"] is None:
        return
    subtasks = status["subtasks"]
    upstream = _upstream(status["graph"])
    held_up = False
    for vertex in status["graph"]["vertices"]:
        rows = {name: subtasks[name] for name in vertex["subtasks"] if name in subtasks}
        if not rows:
            continue
        yield from _held(rows)
        slowest = max(rows, key=lambda name: _of(rows[name], "busyMsPerSecond"))
        if _of(rows[slowest], "busyMsPerSecond") < _BUSY:
            continue
        waiting = _waiting(status, upstream.get(vertex["name"], ()))
        if waiting is None and not vertex["is_source"]:
            continue
        held_up = held_up or waiting is not None
        yield from _slow(vertex, rows, slowest, waiting)
    if not held_up:
        yield from _still(status)


def _upstream(graph: Values) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for edge in graph["edges"]:
        found.setdefault(edge["downstream"], []).append(edge["upstream"])
    return found


def _of(values: Values, metric: str) -> float:
    return float(values.get(metric) or 0.0)


def _held(rows: Mapping[str, Values]) -> Iterator[Sentence]:
    for name, values in rows.items():
        held = _of(values, "heldMs")
        if held >= _HELD:
            yield trouble(
                "load",
                f"{name} has not looked around for {human_time(held / 1000)}: one record, or one call of its step, "
                "takes that long. Barriers and checkpoints wait for it.",
            )


def _waiting(status: Values, vertices: Sequence[str]) -> tuple[str, float] | None:
    """Which of these is held up most, and its share of the time."""
    found: list[tuple[float, str]] = []
    graph = {vertex["name"]: vertex for vertex in status["graph"]["vertices"]}
    for vertex in vertices:
        for name in graph[vertex]["subtasks"]:
            values = status["subtasks"].get(name, {})
            pressed = _of(values, "backPressuredMsPerSecond") + _of(values, "sourceGateClosedMsPerSecond")
            found.append((pressed, vertex))
    pressed, vertex = max(found, default=(0.0, ""))
    return (vertex, min(1.0, pressed / 1000)) if pressed >= _PRESSED else None


def _slow(
    vertex: Values, rows: Mapping[str, Values], slowest: str, waiting: tuple[str, float] | None
) -> Iterator[Sentence]:
    busy = min(1.0, _of(rows[slowest], "busyMsPerSecond") / 1000)
    steps = " → ".join(repr(step["id"]) for step in vertex["steps"])
    text = f"{slowest} is busy {busy:.0%} of the time"
    if waiting is not None:
        text += f", and {waiting[0]} before it is held up for {waiting[1]:.0%}"
    if (uneven := _uneven(rows, slowest)) is not None:
        yield trouble(
            "load",
            f"{text}: the load is uneven. It gets {uneven:.1f} times as many records as the median of the other "
            f"subtasks: {_who_has_most(rows[slowest])}. More subtasks don't help; a finer key, or "
            "adding up by a part of the key first, does.",
        )
    else:
        advice = f"Steps {steps} set the pace" if len(vertex["steps"]) > 1 else f"Step {steps} sets the pace"
        yield (note if waiting is None else trouble)(
            "load", f"{text}. {advice} of the job: more subtasks, or less work for each record, make it faster."
        )


def _uneven(rows: Mapping[str, Values], slowest: str) -> float | None:
    others = [_of(values, "recordsInPerSecond") for name, values in rows.items() if name != slowest]
    mine = _of(rows[slowest], "recordsInPerSecond")
    if not others or mine < _FEW:
        return None
    ratio = mine / max(median(others), 1e-9)
    return min(ratio, 1e6) if ratio >= _SKEWED else None


def _who_has_most(values: Values) -> str:
    keys = values.get("hotKeys")
    if not keys:
        return "one key, or a few, have most of the records"
    (key, share), *others = keys
    more = [f"{'another' if other is None else other} {part:.0%}" for other, part in others]
    return ", ".join([f"{named(key)} has {share:.0%} of its records", *more])


def _still(status: Values) -> Iterator[Sentence]:
    """Nothing moves, and no subtask has too much to do."""
    subtasks = status["subtasks"]
    if not subtasks or any(_of(values, "recordsInPerSecond") for values in subtasks.values()):
        return
    if any(wait for wait in status["waits"]):
        return  # that says why
    closed = [f"{gate['vertex']} ({'; '.join(gate['reasons'])})" for gate in status["gates"] if gate["reasons"]]
    lags = [values["recordsLag"] for values in subtasks.values() if "recordsLag" in values]
    if closed:
        yield note("progress", f"No records come, since source gates are closed: {some(closed)}.")
    elif lags and all(lag == 0 for lag in lags):
        yield note("progress", "No records come: the sources have read all there is.")
    elif any(lags):
        yield trouble(
            "progress",
            f"No records come, though {counted(sum(lag or 0 for lag in lags), 'is', 'are')} there to be read, and no "
            "subtask says what it waits for.",
        )
