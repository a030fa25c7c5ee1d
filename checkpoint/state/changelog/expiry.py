"""Leaving out of files what was over at the barrier that lists them (see `checkpoint.storage.handles.StateFile.over`).

A log has entries that nobody saw any more at its last barrier: those that the backend had not removed yet. A job whose
clock is behind would see them again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from checkpoint.codec import decode_opaquely, encode
from checkpoint.state.snapshot_format import CHANGES_SCHEMA
from checkpoint.state.ttl import UNKNOWN

_STAMP: Final = 8
"""Bytes."""


def without_over(batch: Any, over: Mapping[str, int], since: Mapping[str, int]) -> Any:
    """
    Args:
        batch: rows with the columns of a file of changes.
        over: by state, stamps up to which entries are over.
        since: by state, what entries have that have no time of their own.

    Returns:
        The batch in which a key that has nothing left has no value, so that older rows of it don't count either.
    """
    names = batch.column("state").to_pylist()
    if over.keys().isdisjoint(names):
        return batch
    values, written = batch.column("value").to_pylist(), batch.column("written").to_pylist()
    changed = False
    for i, (name, stamps) in enumerate(zip(names, written, strict=True)):
        bound = over.get(name)
        if bound is None or stamps is None or values[i] is None:
            continue
        times = struct.unpack(f"<{len(stamps) // _STAMP}q", stamps)
        if UNKNOWN in times and name in since:
            changed = True
            times = tuple(since[name] if stamp == UNKNOWN else stamp for stamp in times)
            written[i] = struct.pack(f"<{len(times)}q", *times)
        living = [n for n, stamp in enumerate(times) if stamp > bound or stamp == UNKNOWN]
        if len(living) < len(times):
            changed = True
            values[i] = _part(values[i], living) if living else None
            written[i] = struct.pack(f"<{len(living)}q", *(times[n] for n in living)) if living else None
    if not changed:
        return batch
    columns = [*batch.columns[:4], pa.array(values, pa.binary()), pa.array(written, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA)


def _part(value: bytes, living: list[int]) -> bytes:
    """Of an encoded list or map, the items or entries at these places."""
    members = decode_opaquely(value)
    if isinstance(members, dict):
        entries = list(members.items())
        return encode(dict(entries[n] for n in living))
    return encode([members[n] for n in living])
