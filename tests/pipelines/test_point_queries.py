"""Point queries to a job on Spark: the owner of each key answers while records come, and the results stay exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually

from pipeline import CheckpointConfig, KeyedOperator, MapState, Pipeline, PipelineError, ValueState
from pipeline.key_state import NotAnswered
from pipeline.testing import TestingSink
from sources import SequenceSource

KEYS = 50


class Count(KeyedOperator):
    total = ValueState(default=0)
    last = MapState[str, int]()

    def process(self, value: Any, ctx: Any) -> Any:
        self.total.value += 1
        self.last["id"] = value["id"]
        if self.total.value % 10_000 == 0:
            yield value


def test_keys_are_asked_for_while_records_come_and_nothing_is_changed_by_that(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any
) -> None:
    # Aligned: nothing is in flight in the last checkpoint, so its state has all records.
    checkpoints = CheckpointConfig(str(tmp_path), interval=0.5, alignment="aligned")
    p = Pipeline(unique_name("job"), parallelism=2, checkpoints=checkpoints)
    stream = p.source("in", SequenceSource(None, rate=20_000)).key_by(lambda value: value["id"] % KEYS)
    stream.process("totals", Count()).sink("out", TestingSink())
    handle = p.start(spark=spark)
    try:
        totals = handle.state("totals")
        eventually(lambda: all(totals.get(key, "total", timeout=PATIENCE).value for key in range(KEYS)))
        before: dict[int, int] = {}
        for _ in range(5):
            for key in range(KEYS):
                found = totals.get(key, timeout=PATIENCE)
                assert found.as_of == "live"
                assert found.states["last"]["id"] % KEYS == key
                assert found.states["total"] >= before.get(key, 1)
                before[key] = found.states["total"]
        eventually(lambda: totals.get(0, timeout=PATIENCE).checkpoint is not None)
        stored = totals.get(0, "total", at="checkpoint")
        assert isinstance(stored.as_of, int)
        assert totals.get(0, "total", timeout=PATIENCE).value >= stored.value
        assert totals.get(KEYS, timeout=PATIENCE).states == {}, "nobody has seen that key"
        with pytest.raises(PipelineError, match="no state of keys called 'sum'; it has total, last"):
            totals.get(0, "sum")
        handle.stop(timeout=PATIENCE)
    finally:
        handle.cancel()
    assert (handle.status, handle.restarts) == ("finished", 0)
    with pytest.raises(NotAnswered, match="the job is finished"):
        totals.get(0)
    final = [totals.get(key, "total", at="checkpoint").value for key in range(KEYS)]
    assert sum(final) == handle.records_in
    assert all(last >= before[key] for key, last in enumerate(final))
