"""What a pipeline has changed of its edges, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checkpoint_folders import metadata_of

from checkpoint.in_flight.edges import EdgeShape
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from pipeline import Pipeline
from pipeline.plan import Plan
from pipeline.runtime.topology_changes import describe, replay_reasons, snapshot_edges, topology_changes
from pipeline.testing import TestingSink, TestingSource


def plan() -> Plan:
    p = Pipeline("job", parallelism=2)
    p.source("in", TestingSource()).rebalance().sink("out", TestingSink())
    return p.plan()


def checkpoint(**fields: Any) -> CheckpointMetadata:
    """A checkpoint of the same job whose one edge had a shape with these fields."""
    ((name, edge),) = snapshot_edges(plan()).items()
    return metadata_of(CheckpointRef(3, 1), {}, edges={name: replace(edge, shape=replace(edge.shape, **fields))})


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"upstreams": 3}, "had 3 → 2 subtasks, and has 2 → 2 now"),
        ({"downstreams": 3}, "had 2 → 3 subtasks, and has 2 → 2 now"),
        ({"upstreams": 3, "distribution": "forward"}, "had 3 → 2 subtasks, and has 2 → 2 now"),
        ({"distribution": "forward", "fingerprint": "f"}, "was forward, and is rebalance now"),
        ({"fingerprint": "another"}, "is partitioned by another key or function now"),
        ({"carries_keys": True}, "carries no keys any more"),
    ],
)
def test_a_changed_edge_says_what_has_changed(fields: dict[str, Any], change: str) -> None:
    assert topology_changes(checkpoint(**fields), plan()) == [f"the edge from 'in' to 'out' {change}"]


def test_an_edge_that_carries_keys_now_says_so() -> None:
    p = Pipeline("job", parallelism=2)
    p.source("in", TestingSource()).key_by(0).sink("out", TestingSink())
    ((name, edge),) = snapshot_edges(p.plan()).items()
    old: EdgeShape = replace(edge.shape, carries_keys=False)
    metadata = metadata_of(CheckpointRef(3, 1), {}, edges={name: replace(edge, shape=old)})
    assert topology_changes(metadata, p.plan()) == [f"the edge {describe(name)} carries keys now"]


def test_nothing_has_changed_where_nothing_has() -> None:
    assert replay_reasons(checkpoint(), plan()) == []


def test_edges_that_are_gone_or_new_are_named() -> None:
    p = Pipeline("job", parallelism=2)
    p.source("in", TestingSource()).rebalance().sink("other", TestingSink())
    assert topology_changes(checkpoint(), p.plan()) == [
        "the edge from 'in' to 'out' is gone",
        "the edge from 'in' to 'other' is new",
    ]
