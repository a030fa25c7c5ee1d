"""Why the newest checkpoint is slow, or is not complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkpoint.counted import counted
from pipeline.diagnosis.sentence import Sentence, note, some, trouble
from pipeline.shown_times import human_time

_SLOW: Final = 1.0
"""Seconds that a checkpoint may take and is nothing unusual."""
_SLOW_STORAGE: Final = 1 << 20
"""Bytes a second below which storage is slow, where writing has taken long."""
_ALL_STATE: Final = "all state is written each time. CheckpointConfig(incremental=True) writes what has changed"
_THE_STORAGE: Final = "the storage is slow. Look at its load and the way to it, or use another one"
_PARTS: Final = ("start_delay", "alignment", "sync", "async_", "finalise")

Row = Mapping[str, Any]


def sentences(status: Mapping[str, Any], under_way: Row | None, newest: Row | None, now: float) -> Iterator[Sentence]:
    if under_way is not None and status["status"] == "running":
        yield from _under_way(status, under_way, newest, now)
    if newest is None:
        return
    if newest["status"] == "failed":
        yield trouble("checkpoints", f"{_name(newest)} failed: {newest['failure'] or 'no reason is known'}")
    else:
        yield from _completed(newest)


def _name(row: Row) -> str:
    return f"{row['kind'].replace('_', ' ').capitalize()} {row['id']}"


def _under_way(status: Mapping[str, Any], row: Row, before: Row | None, now: float) -> Iterator[Sentence]:
    lasts = now - row["trigger_time"]
    if lasts < _SLOW:
        return
    done = {one["name"] for one in row["subtasks"]}
    missing = [name for vertex in status["graph"]["vertices"] for name in vertex["subtasks"] if name not in done]
    writing = [name for name in missing if row["id"] in status["subtasks"].get(name, {}).get("writing", ())]
    if not missing:
        why = f"all subtasks are done, and its _metadata is being written: {_THE_STORAGE}"
    elif len(writing) == len(missing):
        why = f"{_they(missing)} writing what belongs to it, and all others are done: {_why(missing, before)}"
    else:
        why = f"{_they(missing)} not done yet"
        if writing:
            why += f", of which {_they(writing)} writing"
    yield trouble("checkpoints", f"{_name(row)} has been under way for {human_time(lasts)}: {why}.")


def _why(writing: list[str], before: Row | None) -> str:
    """Why writing takes long, as far as the checkpoint before tells."""
    for one in [] if before is None else before["subtasks"]:
        if one["name"] in writing and one["async_"] >= _SLOW and one["written"] / one["async_"] >= _SLOW_STORAGE:
            return f"{counted(one['written'], 'byte')} at {one['name']} the time before{_whole(one)}"
    return _THE_STORAGE


def _whole(one: Row) -> str:
    return f": {_ALL_STATE}" if one["written"] >= one["size"] else ""


def _they(names: list[str]) -> str:
    return f"{some(names)} {'is' if len(names) == 1 else 'are'}"


def _completed(row: Row) -> Iterator[Sentence]:
    duration = row["duration"] or 0.0
    part = max(_PARTS, key=lambda name: row[name] or 0.0)
    seconds = row[part] or 0.0
    text = f"{_name(row)} took {human_time(duration)}"
    if seconds > 0:
        text += f", of which {human_time(seconds)} {_meaning(row, part, seconds)}"
    yield (trouble if duration >= _SLOW else note)("checkpoints", f"{text}.")


def _meaning(row: Row, part: str, seconds: float) -> str:
    worst = max(row["subtasks"], key=lambda one: one[part], default=None) if part != "finalise" else None
    where = "" if worst is None else f" at {worst['name']}"
    match part:
        case "start_delay":
            why = (
                "one record takes long, or its process gets no processor time"
                if row["unaligned"]
                else "data was queued before it, which alignment='unaligned' lets it overtake"
            )
            return f"passed until the barrier had come{where}: {why}"
        case "alignment":
            return f"passed{where} between the first and the last input's barrier: one of its inputs is slower"
        case "sync":
            return f"the task was held{where}: an operator's snapshot() takes long, or has much state"
        case "async_":
            return f"writing took{where}{_speed(worst, seconds)}"
        case _:
            return f"passed until _metadata was safe after the last subtask was done{_slow_metadata(seconds)}"


def _speed(worst: Row | None, seconds: float) -> str:
    if worst is None or seconds < _SLOW:
        return ""
    size = worst["written"]
    why = f": {_THE_STORAGE}" if size / seconds < _SLOW_STORAGE else _whole(worst)
    return f", for {counted(size, 'byte')}{why}"


def _slow_metadata(seconds: float) -> str:
    return f": {_THE_STORAGE}" if seconds >= _SLOW else ""
