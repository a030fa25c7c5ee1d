"""Whether there are slots for all, and what is told while there are not."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from idle_handle import idle_handle

from pipeline.errors import NotEnoughSlots
from pipeline.runtime.driver.spark import slots


class Cluster:
    """What of a `SparkContext` is asked for: where it runs, with so many slots at each look."""

    master = "k8s://cluster"

    def __init__(self, *free: int) -> None:
        self.free = [*free]


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    monkeypatch.setattr(slots, "_TELL", 0.0)
    monkeypatch.setattr(slots, "_POLL", 0.001)
    monkeypatch.setattr(slots, "free_slots", lambda cluster: cluster.free.pop(0) if cluster.free else 0)
    return []


def test_it_is_told_how_many_slots_there_are_until_there_are_enough(waited: list[str | None]) -> None:
    plan = idle_handle()._master.options.plan
    context: Any = Cluster(0, 2, 2, 3)
    slots.await_slots(context, plan, threading.Event(), waited.append)
    assert waited == [*(f"slots: it needs 3, and Spark at k8s://cluster has {n}" for n in (0, 2)), None]


def test_it_is_over_when_they_do_not_come(waited: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_REPLACEMENT", 0.05)
    context: Any = Cluster()
    with pytest.raises(NotEnoughSlots, match="needs 3 slots"):
        slots.await_slots(context, idle_handle()._master.options.plan, threading.Event(), waited.append)
    assert waited[-1] is None
