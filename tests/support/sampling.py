"""Which of the costly tests a run takes, by its seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

import pytest


def left_out(items: Iterable[pytest.Item], seed: str, share: float) -> set[pytest.Item]:
    """What a run with this seed doesn't take of `items`: rows marked `matrix` of which it takes `share`, and tests and
    tables marked `sample(part)` of which it takes `part`, and of a table one row at least; `share` instead if that is
    more. Decided test by test, so that the tests of a file are the same ones if only that file is run."""

    def drawn(item: pytest.Item) -> float:
        return random.Random(f"{seed} {item.nodeid}").random()

    out: set[pytest.Item] = set()
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("full"):
            continue  # taken whole, or not at all
        if item.get_closest_marker("matrix"):
            if drawn(item) >= share:
                out.add(item)
        elif item.get_closest_marker("sample"):
            tables[item.nodeid.partition("[")[0]].append(item)
    for rows in tables.values():
        marker = rows[0].get_closest_marker("sample")
        assert marker is not None
        left = sorted((item for item in rows if drawn(item) >= max(share, marker.args[0])), key=drawn)
        out.update(left[1:] if len(left) == len(rows) > 1 else left)
    return out
