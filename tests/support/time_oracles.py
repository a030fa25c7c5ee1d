"""What windows and joins must give, in plain Python over the whole input. No code of Weir is in here.

Which records are late depends on the order in which they come to a subtask, which nobody prescribes. So an oracle is
told which ones came out as late, and says what must hold then: lateness is justified by a watermark that its source
had sent before the record, and the results are those of all other records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from timed_input import Arrival

Bounds: TypeAlias = Mapping[int, int | None]
"""By id of a record the highest watermark that the subtasks that have read its partition had sent; `None` = none."""


class Run(NamedTuple):
    """What went in and came out, over all attempts."""

    arrivals: Sequence[Arrival]
    bounds: Bounds
    outputs: Mapping[str, Sequence[Any]]
    """By sink."""


# -- windows ----------------------------------------------------------------------------------------------------


def windows_of(at: int, size: int, slide: int) -> Iterator[tuple[int, int]]:
    """The windows from `start` to below `end` that a time is in; they start at multiples of `slide`."""
    start = at // slide * slide
    while start > at - size:
        yield start, start + size
        start -= slide


def check_fixed_windows(run: Run, size: int, slide: int, lateness: int, any_late: bool) -> int:
    """Tumbling (`slide` = `size`) and sliding windows; milliseconds. Returns how many records were late.

    Args:
        any_late: `False`: the input has no record that could be late.
    """
    by_id, late = _late_ids(run, any_late)
    finals = _finals(run.outputs["out"])
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for (key, start, end), ids in finals.items():
        for id in ids:
            one = by_id[id]
            assert one.key == key, f"{one} is in a window of key {key}"
            assert (start, end) in set(windows_of(one.at, size, slide)), f"{one} is in the window {start}–{end}"
            found[id].add((start, end))
    for id, one in by_id.items():
        if id in late:
            assert not found[id], f"{one} is late, and in {sorted(found[id])}"
        else:
            assert found[id], f"{one} is in no window, and not late"
        for start, end in windows_of(one.at, size, slide):
            if (start, end) not in found[id]:
                _justified(run, one, end - 1 + lateness, f"the window {start}–{end}")
    return len(late)


def check_sessions(run: Run, gap: int, lateness: int, any_late: bool) -> int:
    """Milliseconds. Returns how many records were late."""
    by_id, late = _late_ids(run, any_late)
    finals = _finals(run.outputs["out"])
    seen: Counter[int] = Counter()
    of_key: dict[str, list[tuple[int, int, list[int]]]] = defaultdict(list)
    for (key, start, end), ids in finals.items():
        seen.update(ids)
        times = sorted(by_id[id].at for id in ids)
        assert all(by_id[id].key == key for id in ids)
        assert all(b - a <= gap for a, b in pairwise(times)), f"a gap within {key} {start}–{end}"
        assert (start, end) == (times[0], times[-1] + gap), f"session {start}–{end} of {key} has {times}"
        of_key[key].append((start, end, ids))
    assert max(seen.values(), default=1) == 1, f"records in two sessions: {[id for id, n in seen.items() if n > 1]}"
    for id, one in by_id.items():
        assert (id in late) != (id in seen), f"{one} is {'late, and in a session' if id in late else 'nowhere'}"
        if id in late:
            _justified(run, one, one.at + gap - 1 + lateness, "its session")
    for key, sessions in of_key.items():
        for i, (start, end, ids) in enumerate(sessions):
            for other_start, other_end, other_ids in sessions[:i]:
                if start <= other_end and other_start <= end:  # they would be one, had not one of them closed before
                    bound = _highest(run, [*ids, *other_ids])
                    closed = min(end, other_end) - 1 + lateness
                    assert _reached(bound, closed), f"{key}: {start}–{end} and {other_start}–{other_end} touch"
    if not any_late:
        assert _as_sets(finals) == _as_sets(_sessions(run.arrivals, gap))
    return len(late)


def _sessions(arrivals: Iterable[Arrival], gap: int) -> dict[tuple[str, int, int], list[int]]:
    """Over the whole input."""
    of_key: dict[str, list[Arrival]] = defaultdict(list)
    for one in arrivals:
        of_key[one.key].append(one)
    found = {}
    for key, records in of_key.items():
        records.sort(key=lambda one: one.at)
        open_: list[Arrival] = []
        for one in [*records, None]:
            if open_ and (one is None or one.at > open_[-1].at + gap):
                found[key, open_[0].at, open_[-1].at + gap] = [record.id for record in open_]
                open_ = []
            if one is not None:
                open_.append(one)
    return found


def _as_sets(finals: Mapping[Any, Iterable[int]]) -> dict[Any, frozenset[int]]:
    return {window: frozenset(ids) for window, ids in finals.items()}


def _finals(outputs: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int, int], list[int]]:
    """By key and window the ids in its final result. Each window has exactly one."""
    finals: dict[tuple[str, int, int], list[int]] = {}
    others: set[tuple[str, int, int]] = set()
    for one in outputs:
        window = (one["key"], one["start"], one["end"])
        assert one["n"] == len(one["ids"]) == len(set(one["ids"])), f"a record twice in {one}"
        if one["final"]:
            assert window not in finals, f"{window} is final twice: {finals[window]} and {one['ids']}"
            finals[window] = one["ids"]
        else:
            others.add(window)
    for window in others:
        # A session that has told something may have become part of a larger one.
        key, start, end = window
        assert any(k == key and s <= start and end <= e for k, s, e in finals), f"{window} has told and is never final"
    return finals


def _late_ids(run: Run, any_late: bool) -> tuple[dict[int, Arrival], set[int]]:
    by_id = {one.id: one for one in run.arrivals}
    late = [one["id"] for one in run.outputs["late"]]
    assert len(set(late)) == len(late), f"late twice: {[id for id, n in Counter(late).items() if n > 1]}"
    assert any_late or not late, f"late, though nothing could be: {[by_id[id] for id in late]}"
    return by_id, set(late)


def _justified(run: Run, one: Arrival, closes: int, what: str) -> None:
    bound = run.bounds[one.id]
    assert _reached(bound, closes), f"{one} is missing in {what}, open up to {closes} at a watermark of {bound}"


def _reached(bound: int | None, at: int) -> bool:
    return bound is not None and bound >= at


def _highest(run: Run, ids: Iterable[int]) -> int | None:
    return max((bound for id in ids if (bound := run.bounds[id]) is not None), default=None)


# -- joins ------------------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """What a join has of one side: id (or ids, of what is a result itself), key and time."""

    id: Any
    key: str
    at: int


def sides(run: Run, source: str, late: Iterable[int]) -> list[Side]:
    """The records of a source that weren't late."""
    gone = set(late)
    return [Side(one.id, one.key, one.at) for one in run.arrivals if one.source == source and one.id not in gone]


def interval_join(lefts: Iterable[Side], rights: Iterable[Side], low: int, high: int, how: str) -> Iterator[Side]:
    """Each result has the pair of ids, and the time of the later record; one without a partner has the time at which
    that is certain."""
    lefts, rights = list(lefts), list(rights)
    matched: set[tuple[str, Any]] = set()
    for left in lefts:
        for right in rights:
            if left.key == right.key and left.at + low <= right.at <= left.at + high:
                matched |= {("left", left.id), ("right", right.id)}
                yield Side((left.id, right.id), left.key, max(left.at, right.at))
    if how in ("left", "full"):
        yield from (Side((o.id, None), o.key, max(o.at, o.at + high)) for o in lefts if ("left", o.id) not in matched)
    if how in ("right", "full"):
        yield from (Side((None, o.id), o.key, max(o.at, o.at - low)) for o in rights if ("right", o.id) not in matched)


def as_of_join(lefts: Iterable[Side], rights: Iterable[Side], how: str) -> Iterator[tuple[Any, set[Any]]]:
    """Of each left record that gives a result the ids of the versions that may be the newest: of versions of one time
    the last to come counts, and which that is nobody knows. `{None}`: there is none."""
    rights = list(rights)
    for left in lefts:
        older = [right for right in rights if right.key == left.key and right.at <= left.at]
        newest = max((right.at for right in older), default=None)
        if older or how == "left":
            yield left.id, {right.id for right in older if right.at == newest} or {None}


def late_of(run: Run, sink: str, any_late: bool) -> dict[str, list[Any]]:
    """By side the ids of a join's late records, each of which must have been at or below a watermark."""
    found: dict[str, list[Any]] = {"left": [], "right": []}
    for one in run.outputs[sink]:
        found[one["side"]].append(named(one["record"]["id"]))
    for ids in found.values():
        assert len(ids) == len(set(ids)), f"late twice: {ids}"
    assert any_late or not (found["left"] or found["right"]), f"late, though nothing could be: {found}"
    return found


def named(id: Any) -> Any:
    """An id as it came out, of a record or of a result of a join, as `Side` has it."""
    return tuple(map(named, id)) if isinstance(id, list) else id


def check_late(run: Run, ids: Iterable[int]) -> None:
    by_id = {one.id: one for one in run.arrivals}
    for id in ids:
        _justified(run, by_id[id], by_id[id].at, "the join")


def same(found: Iterable[Any], wanted: Iterable[Any]) -> None:
    """Equal, each as often."""
    one, other = Counter(list(found)), Counter(list(wanted))
    assert one == other, (
        f"too much: {list((one - other).elements())[:5]}; missing: {list((other - one).elements())[:5]}"
    )
