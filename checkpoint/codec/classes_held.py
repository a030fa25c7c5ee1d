"""Which classes the values in many encoded ones have, found at the cost of a search for two bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ormsgpack import packb

from checkpoint.codec.class_shapes import ClassShape, shape_of_content
from checkpoint.codec.decoding import RecordParts, decode_records
from checkpoint.codec.extensions import Extension

_HEADS: Final = (bytes((Extension.RECORD, 0x92)), bytes((Extension.RECORD, 0x93)))
"""How a value of a class begins, behind its length. Other bytes may look the same."""


class ClassesHeld:
    """The classes of all values that were looked at, at every depth. For one thread at a time."""

    def __init__(self, known: Iterable[ClassShape] = ()) -> None:
        """`known`: what values may hold that aren't made of the classes as they are now."""
        self._shapes: dict[str, list[ClassShape]] = {}
        self._heads: set[bytes] = set()
        """How values begin of which nothing more is to be found out."""
        for shape in known:
            self._add(shape)

    @property
    def shapes(self) -> list[ClassShape]:
        return [shape for name in sorted(self._shapes) for shape in self._shapes[name]]

    def look_at(self, encoded: Sequence[bytes]) -> None:
        """Take note of the classes in encoded values."""
        if not self._has_more(b"".join(encoded)):
            return
        for data in encoded:
            if self._has_more(data):
                decode_records(data, self._record)

    def _has_more(self, data: bytes) -> bool:
        if _HEADS[0][:1] not in data:
            return False
        return sum(map(data.count, _HEADS)) != sum(map(data.count, self._heads))

    def _record(self, parts: Callable[[], RecordParts]) -> None:
        name, content, _ = parts()
        self._add(shape_of_content(name, content))
        # Values with fewer fields were written before others came: that is seen by their number.
        ends = _map_header(len(content)) if type(content) is dict else b"" if type(content) is bytes else packb(content)
        self._heads.update(head + packb(name) + ends for head in _HEADS)

    def _add(self, shape: ClassShape) -> None:
        shapes = self._shapes.setdefault(shape.name, [])
        if shape.members and shapes and shapes[0].members:
            shapes[0] = ClassShape(shape.name, None, shapes[0].members | shape.members)
        elif shape not in shapes:
            shapes.append(shape)


def _map_header(length: int) -> bytes:
    """How msgpack begins a map."""
    return bytes((0x80 | length,)) if length < 16 else packb(dict.fromkeys(map(str, range(length))))[:3]
