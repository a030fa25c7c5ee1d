"""Several files of keyed state as one: for each key group the rows of all, of which the last one of a key wins.

Works on columns, and so beside a task thread: while Arrow is at it, Python goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from checkpoint.state.snapshot_format import CHANGES_SCHEMA

_PLACE: Final = ["state", "key", "namespace"]
"""What tells a row from others of its key group."""
_ROWS: Final = 4096
"""Rows of a batch."""
_LARGE: Final = 16
"""Rows of a batch where values are so large that Arrow could not have many of them in one column."""
_MUCH: Final = 64 << 20
"""Bytes."""


Group: TypeAlias = tuple[int, list[Any], Mapping[str, str]]
"""A key group, its Arrow batches, and which states have a time to live, by which clock."""


def merged(files: Sequence[Iterator[Group]], older: Sequence[range | None] = ()) -> Iterator[Group]:
    """The rows of several files as those of one, with the columns of a file of changes.

    Args:
        files: oldest first; of each the key groups that it counts for, ascending.
        older: key groups for which there are older files that aren't among these (`None` = all): there it is kept that
            a key has no value any more. Elsewhere nobody needs to know.
    """
    # What is older comes first within a group: the merge is stable.
    for group, parts in groupby(merge(*files, key=itemgetter(0)), key=itemgetter(0)):
        found = list(parts)
        batches = [_with_all_columns(batch) for _, of_file, _ in found for batch in of_file]
        keeps = any(groups is None or group in groups for groups in older)
        clocks = {name: clock for _, _, ttl in found for name, clock in ttl.items()}
        if len(found) > 1:
            batches = list(_last_of_each(batches))
        yield group, batches if keeps else list(filter(len, map(_without_missing, batches))), clocks


def _with_all_columns(batch: Any) -> Any:
    columns = list(batch.columns)
    if len(columns) < len(CHANGES_SCHEMA):
        columns.append(pa.nulls(len(batch), pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA)


def _without_missing(batch: Any) -> Any:
    values = batch.column("value")
    return batch.filter(values.is_valid()) if values.null_count else batch


def _last_of_each(batches: list[Any]) -> Iterator[Any]:
    """The last row of each place; by state."""
    table = pa.Table.from_batches(batches, CHANGES_SCHEMA)
    numbered = table.select(_PLACE).append_column("row", pc.cumulative_sum(pa.repeat(pa.scalar(1), len(table))))
    found = numbered.group_by(_PLACE, use_threads=False).aggregate([("row", "max")])
    rows = pc.subtract(found.column("row_max").combine_chunks(), 1)
    order = pa.table({"state": table.column("state").take(rows), "row": rows})
    rows = rows.take(pc.sort_indices(order, [("state", "ascending"), ("row", "ascending")]))
    size = _LARGE if table.nbytes > _MUCH else _ROWS
    for start in range(0, len(rows), size):
        yield from table.take(rows[start : start + size]).combine_chunks().to_batches()
