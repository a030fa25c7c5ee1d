"""Numbers as records: the source of tests, benchmarks and first steps."""

from __future__ import annotations

import time
from typing import Any, Final

from checkpoint.options import is_whole, named_options
from sources.rate_limit import RateLimit, admit, check_rate
from sources.source import END, End, Position, Source, SourceBatch, SourceContext, SourceReader

_STATE_VERSION: Final = 1


@named_options
class SequenceSource(Source[dict[str, int]]):
    """Emits `{"id": i, "partition": k}` for every i in 0 <= i < n, unique, and increasing within each partition.

    The ids are dealt to partitions in turn (`k = i % partitions`), the partitions to subtasks (`k % parallelism`).
    The number of partitions is fixed by the first checkpoint, so a restore at another parallelism moves whole
    partitions and no id comes twice.

    Args:
        n: how many records; `None` = without end.
        rate: records/s of the whole source, shared by the subtasks that have partitions; `None` = unlimited.
        partitions: how many partitions; `None` = the parallelism of the first start.

    Raises:
        ValueError: an option has a value that it can't have.
    """

    def __init__(self, n: int | None, rate: float | None = None, partitions: int | None = None) -> None:
        if n is not None and not (is_whole(n) and n >= 0):
            raise ValueError(f"n must be a whole number of records, or None for no end; not {n!r}")
        if partitions is not None and not (is_whole(partitions) and partitions >= 1):
            raise ValueError(f"partitions must be a whole number of at least 1, or None; not {partitions!r}")
        self.n = n
        self.rate = check_rate(rate, "rate")
        self.partitions = partitions
        self.bounded = n is not None

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return SequenceReader(self, ctx)


class SequenceReader(SourceReader):
    """Counts on in the partitions of one subtask."""

    def __init__(self, source: SequenceSource, ctx: SourceContext) -> None:
        self._n = source.n
        partitions, next_ids = _restore(source, ctx)
        self._partitions = partitions
        self._next = {k: i for k, i in next_ids.items() if k % ctx.parallelism == ctx.subtask}
        """The next id of every partition of this subtask that is not in the batch last polled."""
        self._turn = list(self._next)
        """Its unfinished partitions; the first one is polled next."""
        self._polled: tuple[int, int] | None = None
        """Partition and first id of the batch last polled."""
        self._paused = False
        self._limit: RateLimit | None = None
        if source.rate is not None:
            self._limit = RateLimit(source.rate / min(partitions, ctx.parallelism), time.monotonic())

    def poll(self, max_records: int, timeout: float) -> SourceBatch | End | None:
        self._polled = None
        if self._paused:
            time.sleep(timeout)
            return None
        if self._n is not None:
            self._turn = [k for k in self._turn if self._next[k] < self._n]
            if not self._turn:
                return END
        if not self._turn:
            time.sleep(timeout)
            return None
        if (max_records := admit(self._limit, max_records, timeout)) < 1:
            return None
        k = self._turn.pop(0)
        self._turn.append(k)
        first = self._next[k]
        stop = first + max_records * self._partitions
        if self._n is not None:
            stop = min(stop, self._n)
        ids = range(first, stop, self._partitions)
        if self._limit is not None:
            self._limit.take(len(ids))
        self._polled = (k, first)
        self._next[k] = first + len(ids) * self._partitions
        return SourceBatch([{"id": i, "partition": k} for i in ids], splits=k)

    def splits(self) -> list[int]:
        return list(self._turn)

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        splits = dict(self._next)
        if self._polled is not None:
            k, first = self._polled
            splits[k] = first + emitted * self._partitions
        return {
            "version": _STATE_VERSION,
            "partitions": self._partitions,
            "splits": [[k, i] for k, i in splits.items()],
        }

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False


def _restore(source: SequenceSource, ctx: SourceContext) -> tuple[int, dict[int, int]]:
    """The number of partitions, and the next id of each of them."""
    if not ctx.restored:
        partitions = source.partitions or ctx.parallelism
        return partitions, {k: k for k in range(partitions)}
    for state in ctx.restored:
        if state.get("version") != _STATE_VERSION:
            raise ValueError(
                f"source {ctx.source_id}: the checkpoint holds the state of another kind or version of source "
                f"({state!r:.200}). Give the source the id it had, or start without restoring"
            )
    partitions = ctx.restored[0]["partitions"]
    if source.partitions not in (None, partitions):
        raise ValueError(
            f"source {ctx.source_id}: partitions={source.partitions}, but the checkpoint was taken with {partitions}. "
            f"Ids would come twice: keep partitions={partitions}, or start without restoring"
        )
    next_ids = {k: i for state in ctx.restored for k, i in state["splits"]}
    if sorted(next_ids) != list(range(partitions)):
        raise RuntimeError(
            f"source {ctx.source_id}: the restored state holds partitions {sorted(next_ids)} of {partitions}. "
            "A subtask needs the state of all old subtasks, or it would emit ids twice or leave them out"
        )
    return partitions, next_ids


def positions_in(state: Any) -> list[Position] | None:
    """What one subtask's state says, by partition; `None` if it is not the state of a `SequenceSource`."""
    match state:
        case {"version": version, "partitions": int(), "splits": list(rows)} if version == _STATE_VERSION:
            return [Position(str(partition), next_id) for partition, next_id in sorted(rows)]
    return None
