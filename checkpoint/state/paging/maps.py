"""A map of one key in pages: each entry is in the page that the spread of its key says (linear hashing).

There are as many places for pages as the directory says. An entry is at the place that the low bits of its spread are,
as many bits as all places need; where there is no such place, at the one with the highest bit left out. So one more
place takes entries of one page only, and one less gives its own to one page only. That keeps pages at some `PAGE`
entries, at two pages a change.

A key of a type that has no spread (see `spread`) is in no page. A map that gets such a key becomes one row again, and
isn't cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from checkpoint.codec import page_key
from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.paging import rows
from checkpoint.state.paging.rows import (
    ENTRIES,
    NEXT,
    NUMBERS,
    PAGES,
    packed,
    unpacked,
    with_number,
    without_number,
)
from checkpoint.state.paging.spread import spread
from checkpoint.state.private_copy import IMMUTABLE
from checkpoint.state.stores import MISSING

PAGE: Final = 64
"""Entries of a page, about."""
_SPARSE: Final = 4
"""There is one page less when they have no more than one in so many of `PAGE`."""


def place_of(number: int, pages: int) -> int:
    """Where an entry is.

    Args:
        number: the spread of its key.
        pages: places.
    """
    mask = (1 << (pages - 1).bit_length()) - 1
    place = number & mask
    return place if place < pages else place & (mask >> 1)


def can_be_cut(entries: Iterable[Any]) -> bool:
    """Whether all of these keys have a spread."""
    return None not in map(spread, entries)


# -- to be looked at -----------------------------------------------------------------------------------------------


def _page_with(group: KeyGroupMap, key: bytes, directory: list[int], map_key: Any) -> bytes | None:
    """Under which key the page is that has an entry."""
    number = spread(map_key)
    if number is None:  # its class may take it for equal to any key
        places: Iterable[int] = range(directory[PAGES])
    else:
        places = (place_of(number, directory[PAGES]),)
    for place in places:
        row_key = page_key(key, place)
        page = group.data.get(row_key)
        if page is not None and map_key in page[ENTRIES]:
            return row_key
    return None


def peek(group: KeyGroupMap, key: bytes, directory: list[int], map_key: Any) -> Any:
    """The value of an entry to be looked at, or `MISSING`."""
    number = spread(map_key)
    if number is not None:
        page = group.data.get(page_key(key, place_of(number, directory[PAGES])))
        return MISSING if page is None else page[ENTRIES].get(map_key, MISSING)
    row_key = _page_with(group, key, directory, map_key)
    return MISSING if row_key is None else group.data[row_key][ENTRIES][map_key]


def keys(group: KeyGroupMap, key: bytes, directory: list[int]) -> dict[Any, Any]:
    """All entries in order, in a new dict, to be looked at."""
    return _in_order(page for _, page in _pages(group, key, directory))


def _pages(group: KeyGroupMap, key: bytes, directory: list[int]) -> Iterator[tuple[bytes, list[Any]]]:
    for place in range(directory[PAGES]):
        row_key = page_key(key, place)
        page = group.data.get(row_key)
        if page is not None:
            yield row_key, page


def _in_order(pages: Iterable[list[Any]]) -> dict[Any, Any]:
    found = list(pages)
    return dict(found[0][ENTRIES]) if len(found) == 1 else rows.in_order(found)


# -- to be changed -------------------------------------------------------------------------------------------------


def get(group: KeyGroupMap, key: bytes, directory: list[int], map_key: Any) -> Any:
    """The value of an entry, which may be changed in place, or `MISSING`."""
    value = peek(group, key, directory, map_key)
    if value is MISSING or type(value) in IMMUTABLE or group.private is None:
        return value
    row_key = _page_with(group, key, directory, map_key)
    assert row_key is not None
    return group.hand_out(row_key, ENTRIES, map_key)


def entries(group: KeyGroupMap, key: bytes, directory: list[int]) -> dict[Any, Any]:
    """All entries in order, in a new dict; values may be changed in place. A page whose values can't be doesn't count
    as changed."""
    pages = []
    for row_key, page in _pages(group, key, directory):
        if group.private is None or IMMUTABLE.issuperset(map(type, page[ENTRIES].values())):
            pages.append(page)
        else:
            group.hand_out_all(row_key, ENTRIES)
            pages.append(group.own(row_key))
    return _in_order(pages)


def put(group: KeyGroupMap, key: bytes, map_key: Any, value: Any) -> None:
    """Set an entry of a map that lies in pages; it may lie in none then."""
    directory, number = group.data[key], spread(map_key)
    if number is None:
        other_key = _page_with(group, key, directory, map_key)
        if other_key is not None:
            group.own(other_key)[ENTRIES][map_key] = value
            return
        joined = _join(group, key)
        joined[map_key] = value
        group.put(key, joined)
        return
    row_key = page_key(key, place_of(number, directory[PAGES]))
    page = group.data.get(row_key)
    if page is not None and map_key in page[ENTRIES]:
        group.own(row_key)[ENTRIES][map_key] = value
        return
    directory = group.own(key)
    if page is None:
        group.put(row_key, [{map_key: value}, packed((directory[NEXT],))])
    else:
        page = group.own(row_key)
        page[NUMBERS] = with_number(page, directory[NEXT])
        page[ENTRIES][map_key] = value
    directory[NEXT] += 1
    directory[rows.SIZE] += 1
    if directory[rows.SIZE] > directory[PAGES] * PAGE:
        _add_place(group, key, directory)


def _add_place(group: KeyGroupMap, key: bytes, directory: list[int]) -> None:
    new = directory[PAGES]
    directory[PAGES] += 1
    from_key = page_key(key, _partner(new))
    if from_key not in group.data:
        return
    group.hand_out_all(from_key, ENTRIES)
    page = group.own(from_key)
    stays: dict[Any, Any] = {}
    goes: dict[Any, Any] = {}
    numbers: tuple[list[int], list[int]] = ([], [])
    bit = new - _partner(new)
    for (map_key, value), number in zip(page[ENTRIES].items(), unpacked(page), strict=True):
        of = spread(map_key)
        assert of is not None
        moves = of & bit != 0
        (goes if moves else stays)[map_key] = value
        numbers[moves].append(number)
    if goes:
        _set(group, from_key, stays, numbers[0])
        _set(group, page_key(key, new), goes, numbers[1])


def _partner(place: int) -> int:
    """Where entries were as long as there was no such place."""
    return place - (1 << (place.bit_length() - 1))


def _set(group: KeyGroupMap, row_key: bytes, entries: dict[Any, Any], numbers: list[int]) -> None:
    if entries:
        group.put(row_key, [entries, packed(numbers)])
    else:
        group.remove(row_key)


def remove(group: KeyGroupMap, key: bytes, map_key: Any) -> bool:
    """Remove an entry of a map that lies in pages; it may lie in none then. Returns whether it was there."""
    row_key = _page_with(group, key, group.data[key], map_key)
    if row_key is None:
        return False
    page = group.own(row_key)
    at = next(i for i, each in enumerate(page[ENTRIES]) if each is map_key or each == map_key)
    page[NUMBERS] = without_number(page, at)
    del page[ENTRIES][map_key]
    if not page[ENTRIES]:
        group.remove(row_key)
    directory = group.own(key)
    directory[rows.SIZE] -= 1
    if directory[rows.SIZE] == 0:
        group.remove(key)
    elif directory[rows.SIZE] <= rows.MOST // rows.FEW:
        group.put(key, _join(group, key))
    else:
        while directory[PAGES] > 1 and directory[rows.SIZE] < directory[PAGES] * PAGE // _SPARSE:
            _remove_place(group, key, directory)
    return True


def _remove_place(group: KeyGroupMap, key: bytes, directory: list[int]) -> None:
    directory[PAGES] -= 1
    last = directory[PAGES]
    from_key, to_key = page_key(key, last), page_key(key, _partner(last))
    if from_key not in group.data:
        return
    group.hand_out_all(from_key, ENTRIES)
    moved = group.own(from_key)
    group.remove(from_key)
    if to_key in group.data:
        pages = [group.own(to_key), moved]
        numbers = sorted(chain.from_iterable(map(unpacked, pages)))
        _set(group, to_key, _in_order(pages), numbers)
    else:
        group.put(to_key, moved)


def delete(group: KeyGroupMap, key: bytes) -> None:
    """Remove all of a map that lies in pages."""
    for row_key, _ in list(_pages(group, key, group.data[key])):
        group.remove(row_key)
    group.remove(key)


def _join(group: KeyGroupMap, key: bytes) -> dict[Any, Any]:
    """All entries, without their pages; whoever calls puts them."""
    pages = []
    for row_key, _ in list(_pages(group, key, group.data[key])):
        group.hand_out_all(row_key, ENTRIES)
        pages.append(group.own(row_key))
        group.remove(row_key)
    return _in_order(pages)


def cut(group: KeyGroupMap, key: bytes) -> None:
    """Make pages of a map that lies in none, and all of whose keys have a spread."""
    entries = group.own(key)
    pages = -(-len(entries) // PAGE)
    group.put(key, [len(entries), pages, len(entries)])
    parts: dict[int, tuple[dict[Any, Any], list[int]]] = {}
    for number, (map_key, value) in enumerate(entries.items()):
        of = spread(map_key)
        assert of is not None
        part, numbers = parts.setdefault(place_of(of, pages), ({}, []))
        part[map_key] = value
        numbers.append(number)
    for place, (part, numbers) in parts.items():
        _set(group, page_key(key, place), part, numbers)
