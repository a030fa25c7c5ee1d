"""Lists and maps that lie in pages, as one row each again: for whoever reads a snapshot and keeps no pages himself."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from checkpoint.codec import decode_key, decode_opaquely, encode_kept, owner_of
from checkpoint.shown import shown
from checkpoint.state.contents import StateContent
from checkpoint.state.paging import rows
from checkpoint.state.paging.rows import COUNT, ENTRIES, ITEMS, LAST
from checkpoint.state.snapshot_format import SnapshotFormatError, StateBatch


def folded(
    batches: Iterable[StateBatch], wanted: Callable[[StateBatch], bool] = lambda batch: True
) -> Iterator[StateBatch]:
    """The same batches, without pages.

    Args:
        batches: as `read_encoded` or `read_batches` gives them: those of a key group and state one behind the other.
        wanted: which of those with pages; the others stay as they are.

    Raises:
        SnapshotFormatError: a row is missing, or one is there that belongs to none.
    """
    held: _Held | None = None
    for batch in batches:
        if held is not None and not held.takes(batch):
            yield from held.batches()
            held = None
        if batch.content is None or batch.content.paged is None or not wanted(batch):
            yield batch
            continue
        if held is None:
            held = _Held(batch)
        rest = held.add(batch)
        if rest.keys:
            yield rest
    if held is not None:
        yield from held.batches()


@dataclass
class _Value:
    """What of a key was seen so far; encoded if the batch is."""

    directory: Any = None
    pages: dict[int, Any] = field(default_factory=dict)


class _Held:
    """Of one key group and state, what lies in pages."""

    def __init__(self, batch: StateBatch) -> None:
        assert batch.content is not None
        assert batch.content.paged is not None
        self._like = batch
        self._paged = batch.content.paged
        self._content = _without_pages(batch.content)
        self._values: dict[bytes, _Value] = {}

    def takes(self, batch: StateBatch) -> bool:
        like = self._like
        return (like.group, like.state, like.encoded) == (batch.group, batch.state, batch.encoded)

    def add(self, batch: StateBatch) -> StateBatch:
        """Returns the rows that have nothing to do with pages."""
        places = []
        for place, (key, row) in enumerate(zip(batch.keys, batch.values, strict=True)):
            owner = owner_of(key)
            if owner != key:
                self._values.setdefault(owner, _Value()).pages[decode_key(key)[1]] = row
            elif self._is_directory(row):
                self._values.setdefault(key, _Value()).directory = row
            else:
                places.append(place)
        return batch.part(places)._replace(content=self._content)

    def _is_directory(self, row: Any) -> bool:
        if self._like.encoded:
            return row[0] in (rows.LISTS if self._paged == "map" else rows.MAPS)
        return type(row) is not rows.content_of(self._paged)

    def batches(self) -> Iterator[StateBatch]:
        if self._values:
            values = [self._whole(key, value) for key, value in self._values.items()]
            yield self._like._replace(
                keys=list(self._values), namespaces=None, values=values, written=None, content=self._content
            )

    def _whole(self, key: bytes, value: _Value) -> Any:
        directory = value.directory
        pages = value.pages
        if self._like.encoded and directory is not None:
            directory = decode_opaquely(directory)
            pages = {number: decode_opaquely(row) for number, row in pages.items()}
        try:
            whole = (
                None
                if directory is None
                else _of_map(directory, pages)
                if self._paged == "map"
                else _of_list(directory, pages)
            )
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, ZeroDivisionError, struct.error):
            whole = None
        if whole is None:
            raise SnapshotFormatError(
                f"the {self._paged} of key {shown(decode_key(key))} in state {self._like.state!r} has not the pages "
                "that its directory says"
            )
        return encode_kept(whole) if self._like.encoded else whole


def _of_map(directory: list[int], pages: dict[int, Any]) -> dict[Any, Any] | None:
    whole = rows.in_order(pages.values())
    return whole if len(whole) == sum(len(page[ENTRIES]) for page in pages.values()) == directory[rows.SIZE] else None


def _of_list(directory: dict[str, int], pages: dict[int, Any]) -> list[Any] | None:
    whole = [item for number in range(directory[LAST]) for item in pages[number][ITEMS]]
    return whole if len(whole) == directory[COUNT] and len(pages) == directory[LAST] else None


def _without_pages(content: StateContent) -> StateContent:
    return replace(content, paged=None)
