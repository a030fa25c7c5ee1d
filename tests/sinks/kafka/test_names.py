"""Two sinks of a pipeline that would share transactional ids are refused when it starts, and by `weir plan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from checkpoint.config import CheckpointConfig
from pipeline import Pipeline
from pipeline.preview import preview
from sinks import KafkaSink, PrintSink, Sink
from sources import SequenceSource


def sink(prefix: str | None, **options: Any) -> KafkaSink:
    return KafkaSink("localhost:1", "out", transactional_id_prefix=prefix, **options)


def refusals(folder: Path, sinks: Mapping[str, Sink]) -> list[str]:
    p = Pipeline("p", checkpoints=CheckpointConfig(str(folder)))
    stream = p.source("in", SequenceSource(10))
    for name, made in sinks.items():
        stream.sink(name, made)
    return list(preview(p, offline=True).refusals)


def test_names_that_are_the_same_once_they_are_joined_are_refused(tmp_path: Path) -> None:
    assert refusals(tmp_path, {"c": sink("a-b"), "b-c": sink("a")}) == [
        "sinks 'c' and 'b-c' would both use Kafka's transactional ids and groups a-b-c-<subtask>, and so fence each "
        "other: give one of them another id, or another prefix"
    ]


def direct(delivery: str) -> KafkaSink:
    return sink("a", delivery=delivery)


@pytest.mark.parametrize(
    "sinks",
    [
        {"c": sink("a-b"), "b-d": sink("a")},
        {"c": sink(None), "d": sink(None)},
        {"c": sink("a"), "d": sink("a")},
        {"c": sink("a-b"), "b-c": direct("at_least_once"), "d": PrintSink()},
    ],
)
def test_names_that_differ_and_sinks_without_transactions_are_not(tmp_path: Path, sinks: Mapping[str, Sink]) -> None:
    assert refusals(tmp_path, sinks) == []
