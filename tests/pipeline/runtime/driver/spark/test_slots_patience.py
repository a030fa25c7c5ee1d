"""How long slots are waited for, on a clock that only moves in a wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf

from pipeline.errors import NotEnoughSlots
from pipeline.runtime.driver.spark import slots

NEEDED = 4
PLAN: Any = SimpleNamespace(
    subtasks=NEEDED, vertices=[SimpleNamespace(name="in", parallelism=1), SimpleNamespace(name="map", parallelism=3)]
)


def told(what: str | None) -> None:
    """See `test_slots.py`."""


class Cluster(threading.Event):
    """Has so many slots after so many seconds; also the event that is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *changes: tuple[float, int]) -> None:
        super().__init__()
        self.now = 0.0
        self._changes = changes
        monkeypatch.setattr(slots, "free_slots", lambda context: self._slots())
        monkeypatch.setattr(slots, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(slots, "threading", SimpleNamespace(Event=lambda: self))

    def _slots(self) -> int:
        return [count for at, count in self._changes if at <= self.now + 1e-9][-1]

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return False


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    return lambda *changes: Cluster(monkeypatch, (0.0, 0), *changes)


def context(master: str, **settings: str) -> Any:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(f"spark.{name.replace('_', '.')}", value)
    return SimpleNamespace(master=master, getConf=lambda: conf)


def seconds(cluster: Cluster, wait: Callable[[], None], enough: bool) -> int:
    """Until it ends."""
    if enough:
        wait()
    else:
        with pytest.raises(NotEnoughSlots):
            wait()
    return round(cluster.now)


@pytest.mark.parametrize(
    ("master", "changes", "enough", "after"),
    [
        ("local[4]", [(0, 4)], True, 0),
        ("local[3]", [(0, 3)], False, 0),
        ("yarn", [(0, 1), (100, 4)], True, 100),
        ("yarn", [(0, 3)], False, 120),
        ("spark://a:1", [], False, 120),  # no executor has come yet
        ("spark://a:1", [(5, 2), (12, 3), (21, 5)], True, 21),
        ("spark://a:1", [(5, 2), (12, 3), (23, 5)], False, 22),  # all that come have come
    ],
)
def test_executors_may_be_on_their_way(
    cluster: Callable[..., Cluster], master: str, changes: list[tuple[float, int]], enough: bool, after: int
) -> None:
    one = cluster(*changes)
    assert seconds(one, lambda: slots.require_slots(context(master), PLAN, told), enough) == after


@pytest.mark.parametrize(
    ("master", "changes", "enough", "after"),
    [
        ("local[4]", [(0, 3)], False, 0),
        ("spark://a:1", [(0, 2), (50, 4)], True, 50),
        ("spark://a:1", [(0, 2), (61, 4)], False, 60),
    ],
)
def test_a_lost_executor_may_be_replaced_within_a_minute(
    cluster: Callable[..., Cluster], master: str, changes: list[tuple[float, int]], enough: bool, after: int
) -> None:
    one = cluster(*changes)
    assert seconds(one, lambda: slots.await_slots(context(master), PLAN, one, told), enough) == after


def test_nobody_waits_for_slots_of_a_job_that_is_stopped(cluster: Callable[..., Cluster]) -> None:
    one = cluster()
    one.set()
    assert seconds(one, lambda: slots.await_slots(context("yarn"), PLAN, one, told), enough=True) == 0


@pytest.mark.parametrize(
    ("master", "settings", "most"),
    [
        ("spark://a:1", {"cores_max": "3"}, 3),
        ("spark://a:1", {"cores_max": "7", "task_cpus": "2"}, 3),
        ("spark://a:1", {"cores_max": "4"}, None),
        ("spark://a:1", {}, None),
        ("yarn", {"cores_max": "3"}, None),
    ],
)
def test_a_session_that_may_never_have_enough_is_refused_at_once(
    cluster: Callable[..., Cluster], master: str, settings: dict[str, str], most: int | None
) -> None:
    one = cluster((1, 4))
    if most is None:
        slots.require_slots(context(master, **settings), PLAN, told)
        return
    with pytest.raises(
        NotEnoughSlots,
        match=rf"needs 4 slots, .*\(in × 1, map × 3\), .* has {most} \(spark\.cores\.max\); .*local\[4\]",
    ):
        slots.require_slots(context(master, **settings), PLAN, told)
    assert one.now == 0.0
