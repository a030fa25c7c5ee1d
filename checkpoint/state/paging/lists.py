"""A list of one key in pages, one behind the other; the last one takes what is appended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from checkpoint.codec import page_key
from checkpoint.state.heap.maps import KeyGroupMap
from checkpoint.state.paging.rows import COUNT, ITEMS, LAST
from checkpoint.state.private_copy import IMMUTABLE

PAGE: Final = 128
"""Items of a page."""


def peek(group: KeyGroupMap, key: bytes, directory: dict[str, int]) -> list[Any]:
    """All items in a new list, to be looked at."""
    return [item for number in range(directory[LAST]) for item in group.data[page_key(key, number)][ITEMS]]


def items(group: KeyGroupMap, key: bytes, directory: dict[str, int]) -> list[Any]:
    """All items in a new list; they may be changed in place. A page whose items can't be doesn't count as changed."""
    found: list[Any] = []
    for number in range(directory[LAST]):
        row_key = page_key(key, number)
        page = group.data[row_key][ITEMS]
        if group.private is not None and not IMMUTABLE.issuperset(map(type, page)):
            page = group.hand_out_all(row_key, ITEMS)
        found += page
    return found


def append(group: KeyGroupMap, key: bytes, item: Any) -> None:
    """Add one to a list that lies in pages."""
    directory = group.own(key)
    last = page_key(key, directory[LAST] - 1)
    if len(group.data[last][ITEMS]) < PAGE:
        group.own(last)[ITEMS].append(item)
    else:
        group.put(page_key(key, directory[LAST]), {ITEMS: [item]})
        directory[LAST] += 1
    directory[COUNT] += 1


def extend(group: KeyGroupMap, key: bytes, added: list[Any]) -> None:
    """Add some to a list that lies in pages."""
    directory = group.own(key)
    last = page_key(key, directory[LAST] - 1)
    room = max(0, PAGE - len(group.data[last][ITEMS]))
    if room and added:
        group.own(last)[ITEMS].extend(added[:room])
    for number, page in enumerate(_cut(added[room:]), directory[LAST]):
        group.put(page_key(key, number), page)
        directory[LAST] = number + 1
    directory[COUNT] += len(added)


def put(group: KeyGroupMap, key: bytes, items: list[Any]) -> None:
    """Set a list that lies in no pages so far, or in none any more, in pages."""
    number = 0
    for number, page in enumerate(_cut(items), 1):
        group.put(page_key(key, number - 1), page)
    group.put(key, {COUNT: len(items), LAST: number})


def _cut(items: list[Any]) -> Iterator[dict[str, list[Any]]]:
    for start in range(0, len(items), PAGE):
        yield {ITEMS: items[start : start + PAGE]}


def delete(group: KeyGroupMap, key: bytes) -> None:
    """Remove all of a list that lies in pages."""
    for number in range(group.data[key][LAST]):
        group.remove(page_key(key, number))
    group.remove(key)
