"""What one reaches for, together in one job that fails on its way: each order once, and in one branch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadlines import PATIENCE

from pipeline import CheckpointConfig, Pipeline, RestartStrategy, WatermarkStrategy
from pipeline.testing import TestingSink, TestingSource

ORDERS = 120
RATE = 60.0


def orders() -> list[list[dict[str, Any]]]:
    """Each three times, in disorder, in two partitions."""
    chance = random.Random(7)
    partitions: list[list[dict[str, Any]]] = [[], []]
    for id in [*range(ORDERS)] * 3:
        partitions[chance.randrange(2)].append({"id": id, "at": id * 10, "amount": id % 7 * 10})
    for partition in partitions:
        chance.shuffle(partition)
    return partitions


def test_peek_distinct_split_and_limit_rate_are_exact_over_a_failure(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any
) -> None:
    first, second = orders()
    looked_at = tmp_path / "looked_at"

    def look(order: dict[str, Any]) -> None:
        with looked_at.open("a") as file:
            file.write(f"{order['id']}\n")
        order["amount"] = 1000

    source = TestingSource(
        partitions=[[*first[:100], TestingSource.ABORT(), *first[100:]], second], directory=tmp_path / "source"
    )
    large, small, others = TestingSink(), TestingSink(), TestingSink()
    p = Pipeline(
        unique_name("words"),
        parallelism=2,
        checkpoints=CheckpointConfig(str(tmp_path / "checkpoints"), interval=0.2),
        restart=RestartStrategy.fixed_delay(attempts=2, delay=0.1),
    )
    once = (
        p.source("in", source)
        .assign_timestamps(WatermarkStrategy.bounded("at", ORDERS))
        .peek(look)
        .filter_not(lambda order: order["amount"] == 0)
        .key_by("id")
        .distinct("once", within=3600)
    )
    branches = once.split("size", large=lambda order: order["amount"] > 40, small=lambda order: order["amount"] < 20)
    branches.large.limit_rate(RATE, "slow").sink("large", large)
    branches["small"].sink("small", small)
    branches.default.sink("others", others)
    began = time.monotonic()
    p.run(spark=spark, timeout=PATIENCE)
    took = time.monotonic() - began

    def expected(takes: Callable[[int], bool]) -> list[int]:
        return [id for id in range(ORDERS) if id % 7 and takes(id % 7 * 10)]

    def ids(sink: TestingSink) -> list[int]:
        return sorted(order["id"] for order in sink.records)

    assert ids(large) == expected(lambda amount: amount > 40)
    assert ids(small) == expected(lambda amount: amount < 20)
    assert ids(others) == expected(lambda amount: 20 <= amount <= 40)
    assert {order["amount"] for order in large.records} == {50, 60}, "what peek did to its copies changed nothing"
    assert set(map(int, looked_at.read_text().split())) == set(range(ORDERS))
    assert took > len(large.records) / RATE / 2
