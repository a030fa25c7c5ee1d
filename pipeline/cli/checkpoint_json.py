"""What `weir checkpoints --json` prints: the values of `checkpoint.storage.inspection` under their own names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

import orjson

from checkpoint.elements import EdgeName
from checkpoint.storage.inspection.checkpoints import Details
from checkpoint.storage.naming import CheckpointRef
from sources.positions import positions

_NAMES: Final = {"attempt": "epoch", "replaying": "draining", "replays": "drains"}
"""Names that the JSON had first, for scripts that read it."""


def dump(value: Any) -> str:
    return orjson.dumps(_plain(value), option=orjson.OPT_INDENT_2).decode()


def dump_details(details: Details) -> str:
    plain = _plain(details)
    for row, source in zip(plain["sources"], details.sources, strict=True):
        row["positions"] = _plain(positions(source.state))
    return dump(plain)


def _plain(value: Any) -> Any:
    """As JSON can carry it. Checkpoints are named by their folders, times come as UTC, too."""
    match value:
        case CheckpointRef():
            return {"id": value.id, "epoch": value.attempt, "folder": value.path}
        case EdgeName():
            return value._asdict()
        case Enum():
            return value.value
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case bytes():
            return value.hex()
    if dataclasses.is_dataclass(value):
        plain = {_NAMES.get(one.name, one.name): _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
        if "trigger_time" in plain:
            plain["triggered"] = datetime.fromtimestamp(plain["trigger_time"], UTC).isoformat(timespec="milliseconds")
        return plain
    return value
