"""How values and keys become bytes: msgpack, in channels, in snapshots and in savepoints alike.

A value comes back equal, with its type, at every depth, or it is refused with an error that says where it sits:

| carried                           |                                                                                 |
|-----------------------------------|---------------------------------------------------------------------------------|
| None, bool, int, float, str       | integers of any size; NaN, infinities and -0.0; str with lone surrogates        |
| bytes, bytearray                  |                                                                                 |
| list, tuple, set, frozenset, dict | keys and members may be of any carried type that Python can hash                |
| datetime, date, time, timedelta   | naive, or with a `datetime.timezone` or `zoneinfo.ZoneInfo`, which is kept; fold |
| Decimal, UUID                     |                                                                                 |
| values of users' classes          | of dataclasses, Structs, pydantic models, named tuples, enums (`records.py`)    |

Exactly these types: what another subclass adds (a `defaultdict`, a `str` with attributes) would be lost.

Keys have an encoding of their own (`keys.py`): it is the identity of the key, in routing and in state.
"""

from __future__ import annotations

from checkpoint.codec.classes import register_pickle
from checkpoint.codec.decoding import decode, decode_joined, decode_opaquely
from checkpoint.codec.errors import DecodingError, EncodingError, UnfitClass, UnknownTimeZone
from checkpoint.codec.keys import decode_key, encode_key, owner_of, page_key, pages_of
from checkpoint.codec.values import (
    MAX_DEPTH,
    SCALARS,
    STRICTLY,
    check,
    copied,
    encode,
    encode_all,
    encode_around,
    encode_kept,
    is_plain,
    revived,
)

__all__ = [
    "MAX_DEPTH",
    "SCALARS",
    "STRICTLY",
    "DecodingError",
    "EncodingError",
    "UnfitClass",
    "UnknownTimeZone",
    "check",
    "copied",
    "decode",
    "decode_joined",
    "decode_key",
    "decode_opaquely",
    "encode",
    "encode_all",
    "encode_around",
    "encode_kept",
    "encode_key",
    "is_plain",
    "owner_of",
    "page_key",
    "pages_of",
    "register_pickle",
    "revived",
]
