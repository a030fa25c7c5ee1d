"""What the rows of a list or a map are that lies in pages.

|           | of a map                                                       | of a list                          |
|-----------|----------------------------------------------------------------|------------------------------------|
| directory | list: entries, pages, the number of the next entry             | dict: `count` of items, of `pages` |
| page      | list: a dict of entries, and of each its number (see `packed`) | dict: `items`, a list              |
| in no page| dict                                                           | list                               |

So the type of a row tells whether there are pages. The entries of a map are numbered as they come; in a page they are
in that order. A page without entries is no row.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

Paged: TypeAlias = Literal["map", "list"]
"""Of what there are pages."""

MOST: Final = 256
"""Entries of a list or map that lies in no pages."""
FEW: Final = 2
"""It is one row again when it has no more than one in so many of that."""

SIZE: Final = 0
PAGES: Final = 1
NEXT: Final = 2
"""Of the directory of a map."""
ENTRIES: Final = 0
NUMBERS: Final = 1
"""Of a page of a map."""
COUNT: Final = "count"
LAST: Final = "pages"
"""Of the directory of a list."""
ITEMS: Final = "items"
"""Of a page of a list."""

_WIDTHS: Final = ((2, "H"), (4, "I"), (8, "Q"))
"""Bytes of a number, and how `struct` names it."""
_FORMATS: Final = dict(_WIDTHS)
_PAGE_LENGTH: Final = 2
"""Of a page of a map; a directory has one more."""

LISTS: Final = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
MAPS: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
"""First bytes in msgpack."""


def paged_in(encoded: Iterable[bytes | None], content: type) -> Paged | None:
    """Of what there are pages among encoded rows.

    Args:
        content: `list` or `dict`, which rows are without pages; of other states no rows are of a list or map.
    """
    if content is dict:
        return "map" if any(data is not None and data[0] in LISTS for data in encoded) else None
    if content is list:
        return "list" if any(data is not None and data[0] in MAPS for data in encoded) else None
    return None


def content_of(paged: Paged) -> type:
    """What a row without pages is."""
    return dict if paged == "map" else list


def members(rows: Sequence[Any], content: type) -> Iterable[Any]:
    """The values of entries, or the items, that are in rows.

    Args:
        content: as of `paged_in`.
    """
    if content is dict:
        return chain.from_iterable(part.values() for row in rows if (part := part_of(row, dict)) is not None)
    return chain.from_iterable(part for row in rows if (part := part_of(row, list)) is not None)


def part_of(row: Any, content: type) -> Any:
    """The entries or items of a row; `None` of a directory, and of what is no row of such a state."""
    if isinstance(row, content):
        return row
    if content is dict and type(row) is list and len(row) == _PAGE_LENGTH:
        return row[ENTRIES]
    if content is list and type(row) is dict:
        return row.get(ITEMS)
    return None


def with_part(row: Any, part: Any) -> Any:
    """A row with other entries or items, as many and in the same order."""
    if type(row) is type(part):
        return part
    return [part, row[NUMBERS]] if type(row) is list else {ITEMS: part}


def is_row(row: Any, paged: Paged) -> bool:
    """Whether it can be a row of such a state."""
    if type(row) is content_of(paged):
        return True
    if paged == "list":
        return type(row) is dict and (row.keys() == {COUNT, LAST} or row.keys() == {ITEMS})
    return type(row) is list and _PAGE_LENGTH <= len(row) <= _PAGE_LENGTH + 1


def packed(numbers: Sequence[int]) -> bytes:
    """Of the entries of a page, in their order: little-endian, each in 2, 4 or 8 bytes, all in as many as the last one
    needs."""
    code = next(code for width, code in _WIDTHS if numbers[-1] < 1 << 8 * width)
    return struct.pack(f"<{len(numbers)}{code}", *numbers)


def unpacked(page: list[Any]) -> tuple[int, ...]:
    """The numbers of the entries of a page, in their order."""
    count, numbers = len(page[ENTRIES]), page[NUMBERS]
    return struct.unpack(f"<{count}{_FORMATS[len(numbers) // count]}", numbers)


def in_order(pages: Collection[list[Any]]) -> dict[Any, Any]:
    """The entries of pages of a map, by their numbers, in a new dict."""
    numbers = list(chain.from_iterable(map(unpacked, pages)))
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    keys = list(chain.from_iterable(page[ENTRIES] for page in pages))
    values = list(chain.from_iterable(page[ENTRIES].values() for page in pages))
    return dict(zip(map(keys.__getitem__, order), map(values.__getitem__, order), strict=True))


def with_number(page: list[Any], number: int) -> bytes:
    """The numbers of a page, with that of the entry that is added to it next."""
    numbers: bytes = page[NUMBERS]
    width = len(numbers) // len(page[ENTRIES])
    if number < 1 << 8 * width:
        return numbers + number.to_bytes(width, "little")
    return packed((*unpacked(page), number))


def without_number(page: list[Any], at: int) -> bytes:
    """The numbers of a page, without that of the entry that is removed next."""
    numbers: bytes = page[NUMBERS]
    width = len(numbers) // len(page[ENTRIES])
    return numbers[: at * width] + numbers[(at + 1) * width :]
