"""Two joins in one job that fails on its way."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadlines import PATIENCE

from pipeline import CheckpointConfig, Pipeline, RestartStrategy, WatermarkStrategy
from pipeline.testing import TestingSink, TestingSource

ORDERS = 120
TIMES = WatermarkStrategy.bounded("at", 60)


def in_disorder(records: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    return random.Random(seed).sample(records, len(records))


def test_a_left_join_and_what_was_known_then_are_exact_over_a_failure(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any
) -> None:
    orders = in_disorder([{"id": id, "at": id * 100} for id in range(ORDERS)], 1)
    payments = in_disorder([{"order": id, "at": id * 100 + id % 60} for id in range(ORDERS) if id % 3], 2)
    rates = in_disorder([{"parity": id % 2, "rate": id, "at": id * 1000} for id in range(12)], 3)
    p = Pipeline(
        unique_name("joins"),
        parallelism=2,
        checkpoints=CheckpointConfig(str(tmp_path / "checkpoints"), interval=0.2),
        restart=RestartStrategy.fixed_delay(attempts=2, delay=0.1),
    )
    failing = TestingSource([*orders[:70], TestingSource.ABORT(), *orders[70:]], directory=tmp_path / "orders")
    left = p.source("orders", failing, parallelism=1).assign_timestamps(TIMES)
    right = p.source("payments", TestingSource(payments), parallelism=1).assign_timestamps(TIMES)
    table = p.source("rates", TestingSource(rates), parallelism=1).assign_timestamps(TIMES)
    sink, late = TestingSink(), TestingSink()
    paid = left.key_by("id").join(right.key_by("order"), within=(0, 0.040), how="left", id="paid")
    rated = paid.key_by(lambda pair: pair["key"] % 2).join_as_of(
        table.key_by("parity"),
        select=lambda pair, rate: [pair["key"], pair["right"] is not None, rate["rate"]],
        id="rated",
    )
    rated.sink("out", sink)
    paid.late().sink("late", late)
    p.run(spark=spark, timeout=PATIENCE)

    expected = []
    for id in range(ORDERS):
        found = bool(id % 3) and id % 60 <= 40
        known = id * 100 + (id % 60 if found else 40)
        rate = max((one for one in range(12) if one % 2 == id % 2 and one * 1000 <= known), default=None)
        if rate is not None:
            expected.append([id, found, rate])
    assert sorted(sink.records) == expected
    assert late.records == []
