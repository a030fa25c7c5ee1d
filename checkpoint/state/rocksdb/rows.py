"""What the value of a row has: of a state without a time to live the encoded value, otherwise its stamps in front.

| kept for a key                          | stamps                                            |
|-----------------------------------------|---------------------------------------------------|
| a value with a time to live             | 8 bytes, little-endian                            |
| a list or a map with a time to live     | their number, 4 bytes; 8 bytes each               |
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import Any, Final

from checkpoint.codec import decode, encode_all, encode_kept
from checkpoint.state.ttl import UNKNOWN, FrozenLifetime, unpacked

_STAMP: Final = struct.Struct("<q")
_COUNT: Final = struct.Struct("<I")


class RowCodec(ABC):
    """Rows of one state. What is kept for a key is what the stores of the heap keep (`checkpoint.state.heap`)."""

    @abstractmethod
    def pack(self, kept: Any) -> bytes:
        """
        Raises:
            EncodingError: no checkpoint can hold it.
        """

    def pack_all(self, kept: list[Any]) -> list[bytes]:
        """
        Raises:
            EncodingError: `pack` can't do it for one of them, or only in its own way.
        """
        return list(map(self.pack, kept))

    @abstractmethod
    def unpack(self, row: bytes) -> Any: ...

    @abstractmethod
    def join(self, value: bytes, stamps: bytes | None, count: int) -> bytes:
        """The row of a value that lies in a file.

        Args:
            value: encoded.
            stamps: as the file has them.
            count: entries of the value.
        """

    @abstractmethod
    def oldest(self, row: bytes) -> int:
        """The least of its stamps."""


class PlainRows(RowCodec):
    def pack(self, kept: Any) -> bytes:
        return encode_kept(kept)

    def pack_all(self, kept: list[Any]) -> list[bytes]:
        return encode_all(kept)

    def unpack(self, row: bytes) -> Any:
        return decode(row)

    def join(self, value: bytes, stamps: bytes | None, count: int) -> bytes:
        return value

    def oldest(self, row: bytes) -> int:
        raise AssertionError("without a time to live there are no stamps")


class ValueRows(RowCodec):
    def pack(self, kept: Any) -> bytes:
        return _STAMP.pack(kept[0]) + encode_kept(kept[1])

    def unpack(self, row: bytes) -> Any:
        return _STAMP.unpack_from(row)[0], decode(row[8:])

    def join(self, value: bytes, stamps: bytes | None, count: int) -> bytes:
        return (_STAMP.pack(UNKNOWN) if stamps is None else stamps) + value

    def oldest(self, row: bytes) -> int:
        stamp: int = _STAMP.unpack_from(row)[0]
        return stamp


class _MemberRows(RowCodec):
    def join(self, value: bytes, stamps: bytes | None, count: int) -> bytes:
        return _COUNT.pack(count) + (_STAMP.pack(UNKNOWN) * count if stamps is None else stamps) + value

    def oldest(self, row: bytes) -> int:
        return min(stamps_of(row)[0])


class ListRows(_MemberRows):
    def pack(self, kept: Any) -> bytes:
        stamps, items = kept
        return struct.pack(f"<I{len(stamps)}q", len(stamps), *stamps) + encode_kept(items)

    def unpack(self, row: bytes) -> Any:
        stamps, value = stamps_of(row)
        return list(stamps), decode(value)


class DictRows(_MemberRows):
    def pack(self, kept: Any) -> bytes:
        stamps, values = kept
        return struct.pack(f"<I{len(values)}q", len(values), *map(stamps.__getitem__, values)) + encode_kept(values)

    def unpack(self, row: bytes) -> Any:
        stamps, value = stamps_of(row)
        values = decode(value)
        return dict(zip(values, stamps, strict=True)), values


def stamps_of(row: bytes) -> tuple[tuple[int, ...], bytes]:
    """Stamps of a list or a map, and its encoded value."""
    (count,) = _COUNT.unpack_from(row)
    end = 4 + 8 * count
    stamps = unpacked(row[4:end], count)
    assert stamps is not None
    return stamps, row[end:]


class FrozenValueRows:
    """What of a state is in a snapshot (see `snapshot_writer.TtlRows`): rows in, encoded values out."""

    def __init__(self, life: FrozenLifetime) -> None:
        self._life = life
        self.clock_name: str = life.clock_name

    def living(self, row: bytes) -> tuple[bytes, bytes] | None:
        stamp = _STAMP.unpack_from(row)[0]
        return None if self._life.over(stamp) else (self._life.packed((stamp,)), row[8:])


class FrozenMemberRows:
    """As `FrozenValueRows`, of a list or a map."""

    def __init__(self, life: FrozenLifetime) -> None:
        self._life = life
        self.clock_name: str = life.clock_name

    def living(self, row: bytes) -> tuple[bytes, bytes] | None:
        life, (stamps, value) = self._life, stamps_of(row)
        if min(stamps) > life.bound:
            return life.packed(stamps), value
        living = [i for i, stamp in enumerate(stamps) if not life.over(stamp)]
        if not living:
            return None
        if len(living) == len(stamps):
            return life.packed(stamps), value
        members = decode(value)
        if isinstance(members, dict):
            entries = list(members.items())
            kept: Any = dict(entries[i] for i in living)
        else:
            kept = [members[i] for i in living]
        return life.packed([stamps[i] for i in living]), encode_kept(kept)
