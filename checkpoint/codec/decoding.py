"""Bytes that `values.py` has made of values, as values again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias, TypeVar

import ormsgpack
from ormsgpack import unpackb

from checkpoint.codec.errors import DecodingError, UnfitClass, UnknownTimeZone
from checkpoint.codec.extensions import Extension, unpack_leaf
from checkpoint.codec.records import Opaque, form_named
from checkpoint.counted import counted

RecordParts: TypeAlias = tuple[Any, Any, Any]
"""Of a value of a user's class: the name of the class, the content and what else it holds (see `form.Form.take`)."""
C = TypeVar("C", bound=Collection[Any])
_BUILT_IN: Final = frozenset({tuple, frozenset, str, bytes, int, float, bool, type(None)})
_UNPACK: Final = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT
_failure: Final = threading.local()
"""`error`: why the innermost extension could not be decoded, which ormsgpack doesn't pass on."""


def decode(data: bytes | memoryview) -> Any:
    """The value that `encode` was given.

    Raises:
        DecodingError: the bytes are damaged.
        UnknownTimeZone: they hold a time in a zone that this machine doesn't know.
    """
    try:
        return unpackb(data, ext_hook=_unpack, option=_UNPACK)
    except ValueError as error:
        raise _damaged(data, error) from error


def decode_opaquely(data: bytes | memoryview) -> Any:
    """Like `decode`, where classes may be missing: values of users' classes stay what they are as bytes, and are
    encoded as they were. `revived` gives them back.

    Raises:
        DecodingError, UnknownTimeZone: as `decode`.
    """
    try:
        return unpackb(data, ext_hook=_unpack_opaquely, option=_UNPACK)
    except ValueError as error:
        raise _damaged(data, error) from error


def decode_joined(data: bytes) -> Any:
    """Like `decode`, for what was put together of encoded values.

    Raises:
        ValueError: it is damaged.
    """
    return unpackb(data, ext_hook=_unpack, option=_UNPACK)


def decode_records(
    data: bytes | memoryview, record: Callable[[Callable[[], RecordParts]], Any], all_kept: bool = False
) -> Any:
    """Like `decode`, with what `record` gives in place of each value of a user's class. It gets a function that decodes
    what the value was taken apart into, so first of all the values of classes in there.

    Args:
        all_kept: what `record` gives must be as different from each other as what it is given.

    Raises:
        DecodingError, UnknownTimeZone: as `decode`; `UnfitClass` if they are not.
    """

    def unpack_record(data: bytes) -> Any:
        return record(lambda: _parts_in(data, unpack))

    unpack = _unpacker(unpack_record, _unlike if all_kept else None)
    try:
        return unpackb(data, ext_hook=unpack, option=_UNPACK)
    except ValueError as error:
        raise _damaged(data, error) from error


def _unpacker(
    record: Callable[[bytes], Any], unlike: Callable[[Any, int], Any] | None = None
) -> Callable[[int, bytes], Any]:
    """For ormsgpack.

    Args:
        record: makes a record of its bytes.
        unlike: gives a dict or set back that was made of so many keys or members; `None`: as it is.
    """
    unlike = unlike or (lambda found, count: found)

    def unpack(code: int, data: bytes) -> Any:
        try:
            match code:
                case Extension.TUPLE:
                    return tuple(unpackb(data, ext_hook=unpack, option=_UNPACK))
                case Extension.DICT:
                    items = unpackb(data, ext_hook=unpack, option=_UNPACK)
                    return unlike(dict(zip(items[::2], items[1::2], strict=True)), len(items) // 2)
                case Extension.SET:
                    members = unpackb(data, ext_hook=unpack, option=_UNPACK)
                    return unlike(set(members), len(members))
                case Extension.FROZENSET:
                    members = unpackb(data, ext_hook=unpack, option=_UNPACK)
                    return unlike(frozenset(members), len(members))
                case Extension.RECORD:
                    return record(data)
                case _:
                    return unpack_leaf(code, data)
        except Exception as error:
            if getattr(_failure, "error", None) is None:
                _failure.error = error
            raise

    return unpack


def _unlike(found: C, count: int) -> C:
    """
    Raises:
        UnfitClass: it has fewer keys or members than there were.
    """
    if len(found) < count:
        kind = next((type(one).__qualname__ for one in found if type(one) not in _BUILT_IN), "them")
        raise UnfitClass(
            f"keys or members of a {type(found).__name__} are equal now that were not when it was written: has the "
            f"__eq__ of {kind} changed?"
        )
    return found


def _parts_in(data: bytes, unpack: Callable[[int, bytes], Any]) -> RecordParts:
    name, content, *more = unpackb(data, ext_hook=unpack, option=_UNPACK)
    return name, content, more[0] if more else None


def _unpack_record(data: bytes) -> Any:
    name, content, more = _parts_in(data, _unpack)
    return form_named(name).make(content, more)


_unpack = _unpacker(_unpack_record, _unlike)
_unpack_opaquely = _unpacker(Opaque, _unlike)


def _damaged(data: bytes | memoryview, error: ValueError) -> Exception:
    cause, _failure.error = getattr(_failure, "error", None), None
    if isinstance(cause, UnknownTimeZone | UnfitClass):
        return cause
    return DecodingError(
        f"{counted(len(data), 'byte')} that should be one msgpack value are damaged ({cause or error}); "
        f"they begin {bytes(data[:16])!r}"
    )
