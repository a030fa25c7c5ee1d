"""Values as bytes: see `checkpoint.codec`. `decoding.py` has the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import ormsgpack
from ormsgpack import Ext, packb

from checkpoint.codec.decoding import decode
from checkpoint.codec.errors import EQUAL_NOW, EncodingError, advice, explained
from checkpoint.codec.extensions import CONTAINERS, LEAVES, Extension, leaf
from checkpoint.codec.form import Form
from checkpoint.codec.records import Opaque, form_of

MAX_DEPTH: Final = 255
"""How deep lists and dicts may nest."""
MAX_EXTENSIONS: Final = 64
"""How many levels may be tuples, sets, dicts with keys that msgpack has no type for, or values of users' classes.
Within the last, `MAX_DEPTH` is counted anew."""

STRICTLY: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""For ormsgpack: refuse what it would turn into another type. Dicts whose keys aren't all str are an error in this
form: msgpack would make strings of enums, dates and UUIDs."""
_ANY_KEYS: Final = STRICTLY | ormsgpack.OPT_NON_STR_KEYS
SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes, Decimal, UUID, date, timedelta})
"""Types whose values never change, and are all carried."""
NATIVE: Final = frozenset({type(None), bool, int, float, str, bytes})
"""Scalars that msgpack has, apart from integers and strings at the edges."""
_MAP_KEYS: Final = NATIVE | {tuple}
_all_scalars: Final = SCALARS.issuperset
_all_native: Final = NATIVE.issuperset
_BUFFERS: Final = frozenset({bytearray, memoryview})
_FEW: Final = 8
"""So many items are looked at one by one sooner than encoded."""
_SHORT: Final = 258
"""Bytes of msgpack that have no room for a binary of more than 255 bytes."""


def encode(value: Any) -> bytes:
    """`value` as it travels in channels and lies in snapshots.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    try:
        if type(value) is tuple and _all_native(map(type, value)):
            return packb(Ext(Extension.TUPLE, packb(list(value))))
        data = packb(value, _pack_other, STRICTLY)
    except TypeError:
        return _encode_otherwise(value)
    # `_has_binary` without a call: this runs for every record.
    if (0xC4 in data or (len(data) > _SHORT and (0xC5 in data or 0xC6 in data))) and _holds_buffer(value):
        return _encode_step_by_step(value)
    return data


def encode_all(values: Sequence[Any]) -> list[bytes]:
    """Each of many values as `encode` has it, in a fraction of the time where all are of types that msgpack has.

    Raises:
        EncodingError: as `encode`.
    """
    if _all_native(map(type, values)):
        try:
            return list(map(packb, values))
        except TypeError:
            pass  # an integer or a string at the edges
    return list(map(encode, values))


def encode_around(value: Any) -> bytes:
    """Like `encode`, for a list or dict of values that were checked one by one: it counts for no level of nesting."""
    return _encode_step_by_step(value, outside=-1)


def encode_kept(value: Any) -> bytes:
    """`encode`, or `encode_around` where that takes more.

    Raises:
        EncodingError: no checkpoint can hold it.
    """
    try:
        return encode(value)
    except EncodingError:
        return encode_around(value)


def revived(value: Any) -> Any:
    """The value of which `decode_opaquely` has given this.

    Raises:
        UnfitClass: a class that it needs isn't here, or has changed.
    """
    return value if is_plain(value) else decode(encode(value))


def copied(value: Any) -> Any:
    """`value` as a channel would deliver it: equal, and sharing nothing with it that can be changed.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        if _all_scalars(map(type, value.values())) and _all_scalars(map(type, value)):
            return value.copy()
    elif (kind is list or kind is tuple) and _all_scalars(map(type, value)):
        return value.copy() if kind is list else value
    return decode(encode(value))


def check(value: Any) -> None:
    """Make sure that a checkpoint could hold `value`. Costs next to nothing for scalars.

    Raises:
        EncodingError: the value holds something that can't be encoded.
    """
    if not is_plain(value):
        encode(value)


def is_plain(value: Any) -> bool:
    """Whether it takes a look only to tell that `value` can be encoded: a scalar, a flat tuple, a small flat dict."""
    kind = type(value)
    if kind is dict and len(value) <= _FEW:
        for key, item in value.items():
            if type(key) is not str or type(item) not in SCALARS:
                break
        else:
            return True
    return kind in SCALARS or (kind is tuple and _all_scalars(map(type, value)))


# -- what msgpack has no type for ------------------------------------------------------------------------------


def _packer(inner: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """For ormsgpack. `inner`: the same for what a record holds; `None` = it holds no records."""

    def pack_other(value: Any) -> Any:
        kind = type(value)
        if kind in LEAVES:
            return leaf(value)
        if kind is tuple:
            return _tuple(value, _pack_flat_tuple)
        if (kind is set or kind is frozenset) and _all_native(map(type, value)):
            return Ext(CONTAINERS[kind], array(sorted(map(packb, value))))
        if kind is Opaque:
            return Ext(Extension.RECORD, value.data)
        if inner is not None and kind not in CONTAINERS and (form := form_of(kind)) is not None:
            content, more = form.take(value)
            return _record(
                form, _packed_quickly(content, inner), None if more is None else _packed_quickly(more, inner)
            )
        raise TypeError("left to what follows the depth")

    return pack_other


def _tuple(value: tuple[Any, ...], pack_other: Callable[[Any], Any] | None) -> Ext:
    """Of a tuple of natives, and of what `pack_other` takes.

    Raises:
        TypeError: it holds something else.
    """
    kinds = set(map(type, value))
    if not kinds <= (NATIVE if pack_other is None else _MAP_KEYS):
        raise TypeError("left to what follows the depth")
    try:
        return Ext(Extension.TUPLE, packb(list(value), pack_other, STRICTLY))
    except TypeError:
        if int not in kinds:
            raise
    items = [_large(item) if type(item) is int else item for item in value]
    return Ext(Extension.TUPLE, packb(items, pack_other, STRICTLY))


def _pack_flat_tuple(value: Any) -> Ext:
    """For ormsgpack."""
    if type(value) is not tuple:
        raise TypeError("left to what follows the depth")
    return _tuple(value, None)


def _large(value: int) -> int | Ext:
    """As ormsgpack takes it."""
    if -(2**63) <= value < 2**64:
        return value
    return Ext(Extension.INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _packed_quickly(value: Any, pack_other: Callable[[Any], Any]) -> bytes:
    """
    Raises:
        TypeError: it can't be encoded, or not this way.
    """
    try:
        data = packb(value, pack_other, STRICTLY)
    except TypeError:
        data = _packed_with_any_keys(value, pack_other)
    if _has_binary(data) and _holds_buffer(value):
        raise TypeError("left to what knows a bytearray")
    return data


def _packed_with_any_keys(value: Any, pack_other: Callable[[Any], Any]) -> bytes:
    """
    Raises:
        TypeError: as `_packed_quickly`.
    """
    data = packb(value, pack_other, _ANY_KEYS)
    if not _all_fit_maps(value):
        raise TypeError("left to what knows other keys")
    return data


def _record(form: Form, content: bytes, more: bytes | None) -> Ext:
    return Ext(
        Extension.RECORD, b"".join((b"\x93", form.head, content, more) if more else (b"\x92", form.head, content))
    )


_pack_other = _packer(_packer(_packer(_packer(None))))
"""Records in records in records. What holds more of them is encoded step by step."""


def _encode_otherwise(value: Any) -> bytes:
    """What isn't packed with keys that are all str."""
    try:
        data = _packed_with_any_keys(value, _pack_other)
    except TypeError:
        return _encode_step_by_step(value)
    return _encode_step_by_step(value) if _has_binary(data) and _holds_buffer(value) else data


def _has_binary(data: bytes) -> bool:
    """ormsgpack takes a bytearray for bytes. Where its output holds no header of a binary, the value holds none."""
    return 0xC4 in data or (len(data) > _SHORT and (0xC5 in data or 0xC6 in data))


def _encode_step_by_step(value: Any, outside: int = 0) -> bytes:
    try:
        return _packed(value, outside, outside)
    except (TypeError, RecursionError) as error:
        raise explained(value, "value", problem_of, error, (MAX_DEPTH, MAX_EXTENSIONS), _parts) from None


def _packed(value: Any, depth: int, extensions: int) -> bytes:
    """
    Args:
        depth: containers around the value.
        extensions: those of them that are extensions.
    """
    kind = type(value)
    if kind is list or kind is dict:
        return _packed_plainly(value, depth + 1, extensions)
    if kind is tuple or kind is set or kind is frozenset:
        check_depth(depth + 1, extensions + 1)
        if kind is not tuple and _equal_now(value):
            raise TypeError(EQUAL_NOW)
        items = [_packed(item, depth + 1, extensions + 1) for item in value]
        if kind is not tuple:
            items.sort()  # equal sets have the same bytes
        return packb(Ext(CONTAINERS[kind], array(items)))
    if kind in NATIVE or kind in LEAVES or kind is bytearray:
        return scalar(value)
    if kind is Opaque:
        return packb(Ext(Extension.RECORD, value.data))
    form = form_of(kind)
    if form is None:
        raise TypeError(f"{kind.__qualname__} has no encoding")
    check_depth(0, extensions + 1)
    content, more = form.take(value)
    return packb(
        _record(form, _packed(content, 0, extensions + 1), None if more is None else _packed(more, 0, extensions + 1))
    )


def _packed_plainly(value: Any, depth: int, extensions: int) -> bytes:
    """A list or dict."""
    check_depth(depth, extensions)
    if type(value) is list:
        if _all_native(map(type, value)):
            try:
                return packb(value)
            except TypeError:
                pass  # an integer or a string at the edges
        return array([_packed(item, depth, extensions) for item in value])
    if _fit_map(value):
        try:
            if _all_native(map(type, value.values())):
                return packb(value, None, _ANY_KEYS)
            keys = [packb(list(key) if type(key) is tuple else key) for key in value]
        except TypeError:
            pass  # as above
        else:
            items = [_packed(item, depth, extensions) for item in value.values()]
            return _header(0x80, 0xDE, len(items)) + b"".join(map(bytes.__add__, keys, items))
    check_depth(depth, extensions + 1)
    if _equal_now(value):
        raise TypeError(EQUAL_NOW)
    pairs = [_packed(each, depth, extensions + 1) for pair in value.items() for each in pair]
    return packb(Ext(Extension.DICT, array(pairs)))


def array(items: list[bytes]) -> bytes:
    return _header(0x90, 0xDC, len(items)) + b"".join(items)


def _header(short: int, long: int, n: int) -> bytes:
    """The head of an array or map of `n` items, in as few bytes as msgpack has for it."""
    if n < 16:
        return bytes((short | n,))
    return bytes((long,)) + n.to_bytes(2, "big") if n < 2**16 else bytes((long + 1,)) + n.to_bytes(4, "big")


def _equal_now(keys: Any) -> bool:
    """Whether a dict or set holds what Python takes for the same now."""
    return not _all_native(map(type, keys)) and len(dict.fromkeys(list(keys))) < len(keys)


def _fit_map(keys: Any) -> bool:
    """Whether a msgpack map has room for such keys: those that msgpack knows, and flat tuples of them."""
    kinds = set(map(type, keys))
    return kinds <= _MAP_KEYS and (
        tuple not in kinds or all(_all_native(map(type, key)) for key in keys if type(key) is tuple)
    )


def _all_fit_maps(value: Any) -> bool:
    """Whether `_fit_map` is true of all dicts in a value that `packb` has taken."""
    pending = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind is dict:
            if not _all_native(map(type, item)) and not _fit_map(item):
                return False
            item = item.values()
        elif kind is not list:
            continue
        if not _all_scalars(map(type, item)):
            pending.extend(item)
    return True


def check_depth(depth: int, extensions: int) -> None:
    if depth > MAX_DEPTH or extensions > MAX_EXTENSIONS:
        raise TypeError(
            f"it nests deeper than {MAX_DEPTH} levels, or than {MAX_EXTENSIONS} of tuples, sets and dicts with such "
            "keys; flatten it"
        )


def scalar(value: Any) -> bytes:
    kind = type(value)
    if kind is int and not -(2**63) <= value < 2**64:
        return packb(_large(value))
    if kind is str:
        try:
            return packb(value)
        except TypeError:
            return packb(Ext(Extension.STR, value.encode("utf-8", "surrogatepass")))
    if kind is bytearray:
        return packb(Ext(Extension.BYTEARRAY, bytes(value)))
    if kind in NATIVE:
        return packb(value)
    return packb(leaf(value))


def problem_of(item: Any) -> str | None:
    """Why this very item (not its content) can't be encoded, and what to do; `None` if it can."""
    kind = type(item)
    try:
        if kind in LEAVES:
            leaf(item)
        elif kind not in SCALARS and kind not in CONTAINERS and kind not in (list, dict, bytearray, Opaque):
            form = form_of(kind)
            if form is None:
                return advice(item)
            form.take(item)
        elif kind in (dict, set, frozenset) and _equal_now(item):
            return EQUAL_NOW
    except TypeError as error:
        return str(error)
    return None


def _parts(item: Any) -> dict[str, Any]:
    """What a record without a problem holds by attributes."""
    form = form_of(type(item))
    content, more = (None, None) if form is None else form.take(item)
    return {**(content if type(content) is dict else {}), **(more or {})}


def _holds_buffer(value: Any) -> bool:
    """Whether there is a bytearray or memoryview in a value that `packb` has taken."""
    pending = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind in _BUFFERS:
            return True
        if kind is dict or kind is list:
            contents = item.values() if kind is dict else item
            if not _all_scalars(map(type, contents)):
                pending.extend(contents)
    return False
