"""Entries in order of time, of which several may be of one time: sessions, and records that wait for others.

They are lists side by side, the times first, so that finding a time takes no look at the rest. Equal times are in the
order in which they came. A value of state is such lists, or a directory of pages that are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.state.handles import ValueHandle
from checkpoint.state.stores import MISSING, PagedStore
from pipeline.paged import directory
from pipeline.paged.directory import Directory

Columns: TypeAlias = list[list[Any]]
"""Times, and further lists with something of each entry."""
TIMES: Final = 0
_DIRECTORY: Final = None
"""What a directory has where plain columns have times."""


class Stretch(NamedTuple):
    """Entries that lie side by side, to be looked at only."""

    columns: Columns
    first: int
    """The position of the first one in `columns`."""
    stop: int
    """The one behind the last."""
    place: int
    """The page."""


Spot: TypeAlias = tuple[int, int]
"""A page, and a position in its columns."""


class Timeline:
    """Looks at what the current key has in a state, whichever that is. A key without entries has no value."""

    __slots__ = ("_handle", "_older", "_peek", "_store")

    def __init__(self, handle: ValueHandle[Any], older: Callable[[list[Any]], Columns] | None = None) -> None:
        """`older`: makes columns of what is in older checkpoints instead, which begins with neither a list nor
        `None`."""
        self._handle = handle
        self._store = cast(PagedStore, handle.store)
        self._peek = self._store.peek
        self._older = older

    # -- to look at only: what isn't changed is written into no checkpoint once more -------------------------------

    def first(self, number: int = 1) -> list[int]:
        """The times of the first entries, of all if there are fewer."""
        value = self._peek()
        if value is not MISSING and type(value[TIMES]) is list:
            few: list[int] = value[TIMES][:number]
            return few
        times: list[int] = []
        for columns in self._pages():
            times += columns[TIMES][: number - len(times)]
            if len(times) == number:
                break
        return times

    def times(self, after: int) -> Iterator[int]:
        """Those of all entries behind that time, in order."""
        value = self._peek()
        if value is MISSING:
            return
        if type(value[TIMES]) is list:
            yield from value[TIMES][bisect_right(value[TIMES], after) :]
            return
        for one in self._near(value, after + 1, MAX_WATERMARK):
            yield from one.columns[TIMES][one.first : one.stop]

    def near(self, lower: int, upper: int) -> Sequence[Stretch]:
        """The entries from `lower` to `upper`, both included, in order."""
        value = self._peek()
        if value is MISSING:
            return ()
        if type(value[TIMES]) is list:
            times = value[TIMES]
            first, stop = bisect_left(times, lower), bisect_right(times, upper)
            return (Stretch(value, first, stop, 0),) if first < stop else ()
        return list(self._near(value, lower, upper))

    def some_near(self, lower: int, upper: int, most: int, start: Spot = (0, 0)) -> tuple[list[Stretch], Spot | None]:
        """The first entries that `near` has, and the spot from which on there are others, if there are. No page is
        looked at before its turn.

        Args:
            most: so many of them.
            start: what the last call has returned, since which nothing has changed but by `fill`.
        """
        value = self._peek()
        found: list[Stretch] = []
        if value is MISSING:
            return found, None
        page, position = start
        is_small = type(value[TIMES]) is list
        for one in self.near(lower, upper) if is_small else self._near(value, lower, upper, page):
            first = max(one.first, position) if one.place == page else one.first
            stop = min(one.stop, first + most)
            if first < stop:
                found.append(Stretch(one.columns, first, stop, one.place))
                most -= stop - first
            if stop < one.stop:
                return found, (one.place, stop)
        return found, None

    def from_on(self, lower: int, upper: int, skipped: int = 0) -> Iterator[tuple[int, int, Columns, int]]:
        """The entries that `near` has, one by one, but for the first `skipped` of the time `lower`. No page is looked
        at before its turn; until the last one nothing may change.

        Returns:
            Of each entry its time, how many of that time are in front of it, and the columns with its position there.
        """
        value = self._peek()
        is_small = value is MISSING or type(value[TIMES]) is list
        now, number = lower, 0
        for columns, first, stop, _ in self.near(lower, upper) if is_small else self._near(value, lower, upper):
            times = columns[TIMES]
            if number < skipped and now == lower:
                passed = min(skipped - number, bisect_right(times, lower, first, stop) - first)
                number, first = number + passed, first + passed
            for i in range(first, stop):
                if times[i] != now:
                    now, number = times[i], 0
                yield now, number, columns, i
                number += 1

    def last(self, at: int) -> tuple[Any, ...] | None:
        """The last entry of that time or before: its time and the rest."""
        value = self._peek()
        if value is not MISSING and type(value[TIMES]) is list:
            i = bisect_right(value[TIMES], at) - 1
            return tuple([column[i] for column in value]) if i >= 0 else None
        found = self.last_until(at, 1)
        return found[0] if found else None

    def last_until(self, at: int, number: int) -> list[tuple[Any, ...]]:
        """The last entries of that time or before, in order; of each its time and the rest."""
        value = self._peek()
        if value is MISSING:
            return []
        if type(value[TIMES]) is list:
            stop = bisect_right(value[TIMES], at)
            return [tuple([column[i] for column in value]) for i in range(max(0, stop - number), stop)]
        pages = self._looked_at(value)
        place = pages.place(at)
        found: list[tuple[Any, ...]] = []
        while place >= 0 and len(found) < number:
            columns = pages.peek(place)
            stop = bisect_right(columns[TIMES], at)
            first = max(0, stop - number + len(found))
            found[:0] = zip(*[column[first:stop] for column in columns], strict=True)
            place -= 1
        return found

    def count_until(self, at: int, most: int | None = None) -> int:
        """How many entries have that time or an earlier one, looking at no more than `most` of them and some more."""
        value = self._peek()
        if value is not MISSING and type(value[TIMES]) is list:
            count = bisect_right(value[TIMES], at)
            return count if most is None else min(count, most)
        count = 0
        for columns in self._pages():
            found = bisect_right(columns[TIMES], at)
            count += found
            if found < len(columns[TIMES]) or (most is not None and count >= most):
                break
        return count if most is None else min(count, most)

    def all(self) -> list[tuple[Any, ...]]:
        """In order."""
        return [one for columns in self._pages() for one in zip(*columns, strict=True)]

    def __len__(self) -> int:
        value = self._peek()
        if value is MISSING:
            return 0
        return len(value[TIMES]) if type(value[TIMES]) is list else self._looked_at(value).count

    # -- changes ------------------------------------------------------------------------------------------------

    def insert(self, at: int, *columns: Any) -> bool:
        """Add an entry, which a checkpoint can hold, behind those of its time. Returns whether it is the first now."""
        value = self._handle.value
        if value is None:
            self._handle.put_checked([[at], *([one] for one in columns)])
            return True
        if type(value[TIMES]) is list:
            if len(value[TIMES]) < directory.MOST:
                return _insert(value, at, columns) == 0
            pages = self._cut(value)
        else:
            pages = self._owned()
        place = pages.place(at)
        page = pages.own(place)
        index = _insert(page, at, columns)
        pages.lower(place, at)
        pages.counts(1)
        size = len(page[TIMES])
        if size > directory.MOST:
            # Time mostly goes on: then the page stays full, and the next one begins.
            middle = size - 1 if place == len(pages.numbers) - 1 and index == size - 1 else size // 2
            rest = [column[middle:] for column in page]
            for column in page:
                del column[middle:]
            pages.add(place + 1, rest[TIMES][0], rest)
        pages.put(place, page)
        return place == 0 and index == 0

    def drop(self, count: int) -> Columns:
        """Remove the first entries, of which there are so many, and return them."""
        value = self._peek()
        if count == 0 or value is MISSING:
            return []
        if type(value[TIMES]) is list:
            if count < len(value[TIMES]):
                return _split_off(self._handle.value, count)
            self._handle.clear()
            return cast(Columns, value)
        pages = self._owned()
        pages.counts(-count)
        gone: Columns = []
        while count:
            page = pages.peek(0)
            size = len(page[TIMES])
            if count < size:
                page = pages.own(0)
                part = _split_off(page, count)
                pages.put(0, page)
            else:
                part = page
                pages.remove(0)
            gone = [one + more for one, more in zip(gone, part, strict=True)] if gone else list(part)
            count -= min(count, size)
        if not pages.numbers:
            self._handle.clear()
        return gone

    def fill(self, stretch: Stretch, column: int, value: Any) -> None:
        """Set it for all entries of a stretch, since which nothing has changed. What was looked at stays as it was."""
        first, stop = stretch.first, stretch.stop
        owned = self._handle.value
        if type(owned[TIMES]) is list:
            owned[column][first:stop] = [value] * (stop - first)
            return
        pages = self._owned()
        page = pages.own(stretch.place)
        page[column][first:stop] = [value] * (stop - first)
        pages.put(stretch.place, page)

    def replace(self, at: int, *columns: Any) -> None:
        """Set what the only entry of that time has."""
        value = self._handle.value
        if type(value[TIMES]) is list:
            index = bisect_left(value[TIMES], at)
            for i, one in enumerate(columns, 1):
                value[i][index] = one
            return
        pages = self._owned()
        place = pages.place(at)
        page = pages.own(place)
        index = bisect_left(page[TIMES], at)
        for i, one in enumerate(columns, 1):
            page[i][index] = one
        pages.put(place, page)

    def remove(self, at: int) -> None:
        """Remove the only entry of that time."""
        value = self._handle.value
        if type(value[TIMES]) is list:
            if len(value[TIMES]) == 1:
                self._handle.clear()
            else:
                _remove(value, at)
            return
        pages = self._owned()
        place = pages.place(at)
        page = pages.own(place)
        _remove(page, at)
        pages.counts(-1)
        if page[TIMES]:
            pages.put(place, page)
            return
        pages.remove(place)
        if not pages.numbers:
            self._handle.clear()

    # -- inside -------------------------------------------------------------------------------------------------

    def _pages(self) -> Iterator[Columns]:
        """The columns of all pages, in order, to be looked at only."""
        value = self._peek()
        if value is MISSING:
            return
        if type(value[TIMES]) is list:
            yield value
            return
        pages = self._looked_at(value)
        for place in range(len(pages.numbers)):
            yield pages.peek(place)

    def _near(self, value: list[Any], lower: int, upper: int, start: int = 0) -> Iterator[Stretch]:
        """See `near`, of a value with pages, from one of them on."""
        pages = self._looked_at(value)
        places = pages.places(lower, upper)
        for place in range(max(places.start, start), places.stop):
            columns = pages.peek(place)
            first, stop = bisect_left(columns[TIMES], lower), bisect_right(columns[TIMES], upper)
            if first < stop:
                yield Stretch(columns, first, stop, place)

    def _looked_at(self, value: list[Any]) -> Directory:
        return Directory(self._store, value[1]) if value[0] is _DIRECTORY else self._from_older(value)

    def _owned(self) -> Directory:
        value = self._handle.value
        return Directory(self._store, value[1]) if value[0] is _DIRECTORY else self._from_older(value)

    def _from_older(self, value: list[Any]) -> Directory:
        assert self._older is not None, f"{self._store.what} has neither columns nor pages"
        return self._cut(self._older(value))

    def _cut(self, columns: Columns) -> Directory:
        """Make pages of all that the current key has."""
        self._handle.put_checked([_DIRECTORY, Directory.new()])
        pages = self._owned()
        size = len(columns[TIMES])
        for i in range(0, size, directory.MOST):
            page = [column[i : i + directory.MOST] for column in columns]
            pages.add(i // directory.MOST, page[TIMES][0], page)
        pages.counts(size)
        return pages


def _insert(into: Columns, at: int, columns: tuple[Any, ...]) -> int:
    """Returns its position."""
    times = into[TIMES]
    if at >= times[-1]:
        index = len(times)
        times.append(at)
        for i, one in enumerate(columns, 1):
            into[i].append(one)
        return index
    index = bisect_right(times, at)
    times.insert(index, at)
    for i, one in enumerate(columns, 1):
        into[i].insert(index, one)
    return index


def _split_off(of: Columns, count: int) -> Columns:
    taken = [column[:count] for column in of]
    for column in of:
        del column[:count]
    return taken


def _remove(of: Columns, at: int) -> None:
    index = bisect_left(of[TIMES], at)
    for column in of:
        del column[index]
