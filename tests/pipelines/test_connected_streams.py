"""Two streams into one operator, one of them broadcast, behind Arrow batches: whole jobs, restored and rescaled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, running

from pipeline import BroadcastState, CheckpointConfig, JobHandle, KeyedOperator, Pipeline, RestartStrategy, ValueState
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]
KEYS = 11


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("double", pc.multiply(batch["id"], 2))


class LookUp(KeyedOperator):
    rules = BroadcastState[str, Any]()
    count = ValueState(default=0)

    def process(self, value: dict[str, Any], ctx: Any) -> Iterable[Any]:
        self.count.value += 1
        yield {**value, "rule": self.rules.get(ctx.key), "number": self.count.value}

    def process_connected(self, value: dict[str, Any], ctx: Any) -> Iterable[Any] | None:
        assert ctx.key is None
        if value["rule"] is None:
            del self.rules[value["key"]]
        else:
            self.rules[value["key"]] = value["rule"]
        return None


def taken(handle: JobHandle) -> list[int]:
    """Records that each subtask of the operator has taken."""
    return [values["recordsIn"] for name, values in handle.metrics()["subtasks"].items() if name.startswith("look up")]


@pytest.mark.sample(1 / 5)
@pytest.mark.parametrize(("old", "new"), [(2, 2), (2, 3), (3, 1)])
def test_broadcast_state_is_there_in_every_subtask_after_a_restore(
    tmp_path: Path, unique_name: Name, spark: Any, old: int, new: int
) -> None:
    rules = [{"key": f"k{i}", "rule": [i, "rule"]} for i in range(KEYS)]
    withdrawn = {"key": "k0", "rule": None}
    rule_source = TestingSource([*rules, withdrawn, TestingSource.PAUSE()], directory=tmp_path / "rules")
    events = [{"id": i, "key": f"k{i % KEYS}"} for i in range(100)]
    event_source = TestingSource(
        [*events[:50], TestingSource.PAUSE(), *events[50:]], batch_size=7, directory=tmp_path / "events"
    )
    sink, name = TestingSink(tmp_path / "sink"), unique_name("job")

    def job(parallelism: int) -> Pipeline:
        config = CheckpointConfig(tmp_path.as_uri(), **NEVER)
        p = Pipeline(name, parallelism, checkpoints=config, restart=RestartStrategy.none())
        of_rules = p.source("rules", rule_source, parallelism=1)
        batched = p.source("events", event_source, parallelism=1).map_batches(doubled)
        looked_up = batched.key_by("key").connect(of_rules.broadcast()).process("look up", LookUp())
        looked_up.rebalance().sink("out", sink)
        return p

    with running(job(old), spark) as handle:
        # Each subtask has had all rules, and together they have had half of the events.
        eventually(lambda: sum(taken(handle)) == old * (KEYS + 1) + 50)
        handle.checkpoint(PATIENCE)
    rule_source.release()
    event_source.release()
    job(new).run(spark=spark, timeout=PATIENCE)
    records = sorted(sink.records, key=lambda record: record["id"])
    assert [(r["id"], r["key"], r["double"], r["number"]) for r in records] == [
        (i, f"k{i % KEYS}", 2 * i, 1 + i // KEYS) for i in range(100)
    ]
    assert [r["rule"] for r in records[50:]] == [[i % KEYS, "rule"] if i % KEYS else None for i in range(50, 100)]
