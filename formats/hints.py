"""What to write instead of a value whose type a format doesn't have."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID


def hint(item: Any) -> str:
    if isinstance(item, Enum):
        return "write its .value or .name"
    if isinstance(item, tuple | set | frozenset) and type(item).__module__ == "builtins":
        return "write list(x)"
    if isinstance(item, Decimal | UUID):
        return "write str(x)"
    if isinstance(item, datetime | date | time):
        return "write .isoformat()"
    if isinstance(item, timedelta):
        return "write .total_seconds()"
    if isinstance(item, bytes | bytearray | memoryview):
        return "write text, such as x.decode() or x.hex()"
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return "write dataclasses.asdict(x)"
    if hasattr(item, "__struct_fields__"):
        return "write msgspec.to_builtins(x)"
    if hasattr(item, "model_dump"):
        return 'write x.model_dump(mode="json")'
    if type(item).__module__.partition(".")[0] == "numpy":
        return "write x.item() of a scalar, x.tolist() of an array"
    for base in (dict, list, tuple, str, int, float):
        if isinstance(item, base):
            return f"subclasses lose their type on the way; write {base.__name__}(x)"
    return "convert it to None, bool, int, float, str, list or dict in a step before the sink"
