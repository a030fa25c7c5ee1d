"""The file format of keyed state: written by a backend, readable without a running job.

    ┌ Arrow IPC stream ─────────────────────────────────────────────────────────────────────────┐
    │ schema │ batch of key groups a to f │ batches of key group g │ … │ end-of-stream marker    │
    └────────────────────────────────────────────────────────────────────────────────────────────┘
    footer: msgpack map · its checksum, 16 bytes · its length, 4 bytes little-endian · magic, 8 bytes

Any Arrow reader can read the stream from the start; it stops before the footer. Columns:

| column      | type             |                                                                       |
|-------------|------------------|-----------------------------------------------------------------------|
| `key_group` | int16            | ascending                                                             |
| `state`     | string           | name of the state                                                     |
| `key`       | binary           | `codec.encode_key`                                                    |
| `namespace` | binary, nullable | of timers the time: ms since the epoch + 2⁶³, 8 bytes big-endian; null  |
| `value`     | binary           | `codec.encode`; a list or dict for list and map states          |

Timers are the rows of the states `event timers` and `processing timers`; their value is nil.

A batch holds several small key groups, or one group or a part of it. So a *block*, which is what is read together, is
one batch with all rows of some groups, or all batches of one group.

A file with states that have a time to live is of version 6. It has one more column, `written` (binary, nullable): for a
value, each item of a list or each entry of a map, in their order, 8 bytes little-endian: when it was written, or read,
in ms since the epoch; -2⁶³: not known. The footer has `ttl`, a map from the names of these states to the clock that
they go by, `processing` or `event`. What is over when the snapshot is taken is not in the file.

A file of changes is of version 7 (see `checkpoint.state.changelog`): `value` is nullable, null says that the key has
no value any more, and there is always a column `written`.

The buffers of each batch are compressed on their own, so that a reader needs only the blocks of its groups. The footer
holds `version`, `operator`, `max_parallelism` and `groups`, a list of [group, offset, length, rows, checksum]: where
the group's block is, in bytes from the start of the file, and the xxh3_128 of the block, 16 bytes big-endian as all
checksums here. So what is read is verified, and nothing else has to be read for that. The footer also has `states`, the
names of all states with rows, and `contents`, a map from those of keys to what their values are
(`StateContent.to_wire`). Older files lack both.

Files of versions 2, 3 and 4 are as those of 5, 6 and 7, but each group has a block of its own.

Files of versions 8, 9 and 10 are as those of 5, 6 and 7, but have lists or maps that lie in pages (see
`checkpoint.state.paging`): `contents` says of which states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.state.contents import StateContent

Compression: TypeAlias = Literal["lz4", "zstd", "none"]
StateRow: TypeAlias = tuple[int, str, bytes, bytes | None, Any]
"""Key group, state, encoded key, namespace, value."""


class StateBatch(NamedTuple):
    """Rows of one key group and state; its lists are of equal length."""

    group: int
    state: str
    keys: list[bytes]
    namespaces: list[bytes | None] | None
    """`None`: no row has one."""
    values: list[Any]
    """Encoded ones of a file of changes: `None` where the key has no value any more."""
    written: list[bytes | None] | None = None
    """Stamps of what has a time to live (see `checkpoint.state.ttl`); `None`: no row has any."""
    clock: str | None = None
    """Which clock they are by."""
    content: StateContent | None = None
    """What the values of the state are in this file, if it says so."""
    encoded: bool = False
    """The values are bytes, as they lie in the file."""

    def part(self, places: Sequence[int]) -> StateBatch:
        """The rows at these places."""

        def of(column: Any) -> Any:
            return None if column is None else [column[i] for i in places]

        return self._replace(
            keys=of(self.keys), namespaces=of(self.namespaces), values=of(self.values), written=of(self.written)
        )


SCHEMA: Final = pa.schema(
    [
        pa.field("key_group", pa.int16(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("namespace", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
TTL_SCHEMA: Final = SCHEMA.append(pa.field("written", pa.binary()))
CHANGES_SCHEMA: Final = TTL_SCHEMA.set(SCHEMA.get_field_index("value"), pa.field("value", pa.binary()))
MAGIC: Final = b"WeirKey2"
VERSION: Final = 5
TTL_VERSION: Final = 6
CHANGES_VERSION: Final = 7
_OLDER: Final = 3
"""A version whose blocks hold one group each is so much older."""
PAGED: Final = 3
"""A version with lists or maps in pages is so much higher."""
VERSIONS: Final = {
    version + more: schema
    for version, schema in ((VERSION, SCHEMA), (TTL_VERSION, TTL_SCHEMA), (CHANGES_VERSION, CHANGES_SCHEMA))
    for more in (-_OLDER, 0, PAGED)
}
"""And the columns that files of each have."""
TAIL_BYTES: Final = 16 + 4 + len(MAGIC)
"""Behind the footer's map."""

GroupEntry: TypeAlias = tuple[int, int, int, int, bytes]
"""Key group, offset and length of its block (bytes), rows, checksum of the block."""


def group_runs(batch: Any) -> list[tuple[int, int]]:
    """The key groups of an Arrow batch, and how many rows each has, one behind the other."""
    runs = pc.run_end_encode(batch.column("key_group"))
    ends = runs.run_ends.to_pylist()
    return list(zip(runs.values.to_pylist(), map(int.__sub__, ends, [0, *ends]), strict=True))


class SnapshotFormatError(ValueError):
    """A file that is no snapshot of keyed state, or a damaged one."""


class UnknownSnapshotVersion(SnapshotFormatError):
    """A whole snapshot, written by another version of Weir."""


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """What a snapshot file says about itself."""

    operator: str
    max_parallelism: int
    groups: tuple[GroupEntry, ...] = ()
    """Ascending, only groups that hold something."""
    states: tuple[str, ...] = ()
    """Names of the states that the file holds something of; of files that don't say so, none."""
    ttl: Mapping[str, str] = field(default_factory=dict)
    """The states with a time to live, and the clock that each goes by."""
    version: int = VERSION
    contents: Mapping[str, StateContent] = field(default_factory=dict)
    """What the values of each state are; of files that don't say so, nothing."""

    @property
    def rows(self) -> int:
        return sum(rows for _, _, _, rows, _ in self.groups)
