"""A checkpoint restored at another parallelism: state by key group, sources by partition, committables by owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, Count, assert_exact, running, small_job

from pipeline import JobHandle
from pipeline.testing import TestingSink, TestingSource, failpoints

Name = Callable[[str], str]
KEYS = 17
PARTITIONS = 3


def part(first: int, last: int, partition: int) -> list[Any]:
    """Every key lies in one partition, so that its records have an order."""
    ids = range(first, last)
    return [{"id": i, "key": f"k{i % KEYS}"} for i in ids if i % KEYS % PARTITIONS == partition]


class CountHere(Count):
    """Notes the subtask, too."""

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        for record in super().process(value, ctx):
            yield {**record, "subtask": ctx.subtask}


def written(handle: JobHandle) -> int:
    """Records that the sink's subtasks have taken."""
    return sum(values["recordsOut"] for name, values in handle.metrics()["subtasks"].items() if name.startswith("out"))


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(("old", "new"), [(2, 3), (3, 2), (1, 5), (4, 1)])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("incremental", [True, False])
def test_the_output_is_exact_at_another_parallelism(
    tmp_path: Path, unique_name: Name, spark: Any, old: int, new: int, committed: bool, incremental: bool
) -> None:
    source = TestingSource(
        partitions=[
            [*part(0, 100, k), TestingSource.PAUSE(), *part(100, 200, k), TestingSource.PAUSE(), *part(200, 300, k)]
            for k in range(PARTITIONS)
        ],
        directory=tmp_path / "source",
    )
    sink, name = TestingSink(tmp_path / "sink"), unique_name("job")

    def job(parallelism: int) -> Any:
        return small_job(
            name,
            tmp_path,
            source,
            sink,
            parallelism=parallelism,
            operator=CountHere(),
            then=lambda s: s.rebalance(),
            **NEVER,
            incremental=incremental,
        )

    if not committed:
        # Of the second checkpoint no subtask commits, so what it holds goes over to the new subtasks.
        failpoints.hold("committer.before_commit", nth=old + 1, times=1000)
    with running(job(old), spark) as handle:
        eventually(lambda: written(handle) == 100)
        handle.checkpoint(PATIENCE)
        eventually(lambda: len(sink.records) == 100)
        source.release()
        eventually(lambda: written(handle) == 200)
        handle.checkpoint(PATIENCE)
        eventually(lambda: len(sink.records) == (200 if committed else 100))
    failpoints.clear()
    source.release()
    job(new).run(spark=spark, timeout=PATIENCE)
    assert_exact(sink, (record for k in range(PARTITIONS) for record in part(0, 300, k)))
    places: dict[str, set[int]] = {}
    for record in sink.records:
        if record["id"] >= 200:
            places.setdefault(record["key"], set()).add(record["subtask"])
    assert all(len(subtasks) == 1 for subtasks in places.values())
    assert set().union(*places.values()) == set(range(new))


def test_a_parallelism_above_the_fixed_number_of_key_groups_is_refused(tmp_path: Path, unique_name: Name) -> None:
    p = small_job(unique_name("job"), tmp_path, TestingSource(), TestingSink(), parallelism=5, max_parallelism=4)
    with pytest.raises(ValueError, match="parallelism 5 is above the pipeline's max_parallelism 4"):
        p.start()
