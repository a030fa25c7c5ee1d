"""Which of the costly tests a run takes, by its seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

WHOLE_JOBS = ("tests/cluster/", "tests/kafka_e2e/", "tests/pipelines/")
SHARE = 1 / 6
"""What a run takes of the tests of whole jobs that say nothing else."""
REAL_PARTS = {"kafka", "spark"}
SHARE_WITH_REAL_PARTS = 2 / 5
"""What a run takes of other tests with a broker or Spark that say nothing else."""


def mark_costly(items: Iterable[pytest.Item]) -> None:
    """Mark as `sample` what is costly by its folder or fixtures and has no mark that says when it is taken."""
    for item in items:
        if any(item.get_closest_marker(name) for name in ("full", "matrix", "sample", "stress")):
            continue
        if item.nodeid.startswith(WHOLE_JOBS):
            item.add_marker(pytest.mark.sample(SHARE))
        elif REAL_PARTS.intersection(item.fixturenames):  # type: ignore[attr-defined]  # every test function's
            item.add_marker(pytest.mark.sample(SHARE_WITH_REAL_PARTS))


def left_out(items: Iterable[pytest.Item], seed: str, share: float) -> set[pytest.Item]:
    """What a run with this seed doesn't take of `items`: rows marked `matrix` of which it takes `share`, and tests and
    tables marked `sample(part)` of which it takes `part`, and of a table one row at least; `share` instead if that is
    more. Decided test by test, so that the tests of a file are the same ones if only that file is run. Those of a file
    that are marked `sample(part, together="name")` with one name are all taken, or none of them."""

    def drawn(name: str) -> float:
        return random.Random(f"{seed} {name}").random()

    out: set[pytest.Item] = set()
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("full") or item.get_closest_marker("stress"):
            continue  # taken whole, or not at all
        if item.get_closest_marker("matrix"):
            if drawn(item.nodeid) >= share:
                out.add(item)
        elif (marker := item.get_closest_marker("sample")) is not None:
            if together := marker.kwargs.get("together"):
                if drawn(f"{item.nodeid.partition('::')[0]} {together}") >= max(share, marker.args[0]):
                    out.add(item)
            else:
                tables[item.nodeid.partition("[")[0]].append(item)
    for rows in tables.values():
        marker = rows[0].get_closest_marker("sample")
        assert marker is not None
        part = max(share, marker.args[0])
        left = sorted((item for item in rows if drawn(item.nodeid) >= part), key=lambda item: drawn(item.nodeid))
        out.update(left[1:] if len(left) == len(rows) > 1 else left)
    return out
