"""`distinct` and `latest_by_key` in a pipeline: any interleaving, restored at any record with another parallelism."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import Pipeline, WatermarkStrategy
from pipeline.testing import PipelineHarness, TestingSource

DISORDER = 20
"""Milliseconds."""


def pipeline(parallelism: int, lateness: int) -> Pipeline:
    p = Pipeline("by-key", parallelism=parallelism)
    source = p.source("in", TestingSource())
    stream = source.assign_timestamps(WatermarkStrategy.bounded("at", DISORDER / 1000, idle_after=None)).key_by("key")
    once = stream.distinct("once", within=0.010, lateness=lateness / 1000)
    once.map(lambda record: record, id="passed")
    once.late().map(lambda record: record, id="late")
    stream.latest_by_key("table").map(lambda record: record, id="changes")
    return p


_RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 120), st.integers(0, 1)), max_size=40)


@settings(deadline=None, max_examples=25)
@given(
    records=_RECORDS,
    restarts=st.dictionaries(st.integers(0, 40), st.integers(1, 4), max_size=2),
    lateness=st.sampled_from([0, 100]),
    seed=st.integers(0, 2**16),
)
def test_results_are_right_however_the_job_runs(
    records: list[tuple[str, int, int]], restarts: dict[int, int], lateness: int, seed: int
) -> None:
    out: dict[str, list[Any]] = {"passed": [], "late": [], "changes": []}
    harness = PipelineHarness(pipeline(2, lateness), seed=seed, partitions={"in": 2})
    sent = []
    for number, (key, at, partition) in enumerate(records):
        if number in restarts:
            snapshot = harness.snapshot()
            for step, all_ in out.items():
                all_ += harness.outputs(step)
            harness = PipelineHarness.restore(pipeline(restarts[number], lateness), snapshot, seed=seed)
        record = {"key": key, "at": at * 1000 + number}  # so that no two are equally new
        sent.append(record)
        harness.send("in", record, partition=partition)
    harness.deliver()
    harness.end_of_input()
    harness.deliver()
    for step, all_ in out.items():
        all_ += harness.outputs(step)
    for key in "abcd":
        mine, passed, late, changes = (
            [record["at"] for record in all_ if record["key"] == key]
            for all_ in (sent, out["passed"], out["late"], out["changes"])
        )
        assert all(abs(a - b) >= 10 for i, a in enumerate(passed) for b in passed[:i]), "nothing passes twice"
        assert len(set(passed) | set(late)) == len(passed) + len(late)
        reached = [*passed, *late]
        assert all(any(abs(at - other) < 10 for other in reached) for at in mine), "what is left out repeats something"
        assert changes == sorted(changes), "no older version comes back"
        assert changes[-1:] == sorted(mine)[-1:]
